"""Runs the agent: the command line's last step before `kubeletx.agent`."""

from __future__ import annotations

import asyncio
import os

from .lean_imports import import_aiohttp, import_structlog
from .options.settings import Invocation

_NO_FORK_HANDLERS = ("GRPC_ENABLE_FORK_SUPPORT", "false")
"""Environment of this process.

A library that forks on its own (libvirt's embedded driver) would run gRPC's fork handlers, and its child dies in them
before it can execute the emulator. kubeletx itself never forks.
"""


def run(invocation: Invocation) -> int:
    """Read the configuration and run until the agent ends; returns its exit code."""
    import_structlog()
    import_aiohttp()
    os.environ.setdefault(*_NO_FORK_HANDLERS)
    config = invocation.load()
    from kubeletx.agent.main import run_agent

    return asyncio.run(run_agent(config))
