"""Runs the agent: sets up the process, loads the configuration, and calls `kubeletx.agent.main.run_agent`."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import TYPE_CHECKING

from kubeletx.linux.lean_imports import import_aiohttp, import_structlog

from .settings import Invocation

if TYPE_CHECKING:
    from kubeletx.agent.config.tree import AgentConfig
    from kubeletx.agent.host.exit_guard import ExitGuard

_NO_FORK_HANDLERS = ("GRPC_ENABLE_FORK_SUPPORT", "false")
"""Environment variable of this process: its name, and its value unless the operator set it.

When a library forks on its own (libvirt's embedded driver), gRPC's fork handlers run in the child process, and it dies
before it can execute the emulator. The variable switches them off. kubeletx itself never forks.
"""

GC_THRESHOLDS = (10_000, 20, 20)
"""Thresholds of Python's garbage collector, for `gc.set_threshold`.

With Python's defaults (700, 10, 10) it took 14 % of the CPU time for starting pods, and a tenth of the CPU time for
imports. With these it takes half of that, and 1 MiB more memory.
"""


def run(invocation: Invocation) -> int:
    """Load the configuration and run the agent until it ends; returns its exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    import_structlog()
    import_aiohttp()
    os.environ.setdefault(*_NO_FORK_HANDLERS)
    config = invocation.load()
    from kubeletx.agent.host.event_loop import AgentLoop
    from kubeletx.agent.host.exit_guard import ExitGuard

    guard = ExitGuard(config.process.stop_seconds, config.root_dir)
    try:
        with asyncio.Runner(loop_factory=AgentLoop) as runner:
            return runner.run(_run(config, guard))
    finally:
        guard.finish()


async def _run(config: AgentConfig, guard: ExitGuard) -> int:
    from kubeletx.agent.host.logging import set_up_logging
    from kubeletx.agent.main import run_agent

    set_up_logging(config.logs.format, config.logs.verbosity)
    try:
        guard.code = code = await run_agent(config, on_signals=guard.watch_signals)
    finally:
        guard.begin()
    await guard.end_tasks()
    return code
