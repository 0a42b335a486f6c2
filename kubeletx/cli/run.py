"""Runs the agent: the command line's last step before `kubeletx.agent`."""

from __future__ import annotations

import asyncio
import gc
import os

from .lean_imports import import_aiohttp, import_structlog
from .options.settings import Invocation

_NO_FORK_HANDLERS = ("GRPC_ENABLE_FORK_SUPPORT", "false")
"""Environment of this process.

A library that forks on its own (libvirt's embedded driver) would run gRPC's fork handlers, and its child dies in them
before it can execute the emulator. kubeletx itself never forks.
"""

GC_THRESHOLDS = (10_000, 20, 20)
"""Generations of the garbage collector.

Python's own (700, 10, 10) took 14 % of the CPU time of starting pods, and a tenth of that of the imports; these take
half and 1 MiB more.
"""


def run(invocation: Invocation) -> int:
    """Read the configuration and run until the agent ends; returns its exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    import_structlog()
    import_aiohttp()
    os.environ.setdefault(*_NO_FORK_HANDLERS)
    config = invocation.load()
    from kubeletx.agent.main import run_agent

    return asyncio.run(run_agent(config))
