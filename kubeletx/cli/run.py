"""Running the agent: the command line's last step before `kubeletx.agent`."""

from __future__ import annotations

import asyncio
import os
import sys

from .options.settings import Invocation

_NO_FORK_HANDLERS = ("GRPC_ENABLE_FORK_SUPPORT", "false")
"""A library in this process that forks on its own (libvirt's embedded driver) would run gRPC's fork handlers, and
its child dies in them before it can execute the emulator. We never fork ourselves."""


def run(invocation: Invocation) -> int:
    """Read the configuration and run until the agent ends; its exit code."""
    _import_structlog()
    os.environ.setdefault(*_NO_FORK_HANDLERS)
    config = invocation.load()
    from kubeletx.agent.main import run_agent

    return asyncio.run(run_agent(config))


def _import_structlog() -> None:
    """Hide rich, if it is installed: structlog imports it for tracebacks that the agent never prints, 5 MiB and 40 ms."""
    is_hidden = "rich" not in sys.modules
    if is_hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        if is_hidden:
            del sys.modules["rich"]
