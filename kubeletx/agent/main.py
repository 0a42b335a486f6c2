"""`run_agent`: the composition root. Builds every room, injects, and owns start and stop.

start  lock, agent id ─► plugins, endpoints ─► guard ─► store ─► registry (connects) ─► bindings, pods found
       again ─► servers ─► sources
stop   sources and servers first, then pod workers (what runs goes on), history is written, runtimes closed
"""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from contextlib import AsyncExitStack

import structlog

from kubeletx.api import KubeletxError, Unavailable
from kubeletx.kube.client.buffers import begin_small

from .assembly import Assembly, assemble
from .config.tree import AgentConfig
from .host.logging import set_up_logging
from .host.process import apply_process_settings
from .host.service_manager import ServiceManager
from .host.supervise import supervise

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 1.0
"""How long the start waits for runtimes to be listed; a slower one joins by itself."""

GC_THRESHOLDS = (10_000, 20, 20)
"""Python's own (700, 10, 10) took 14 % of the CPU time of starting pods; these take half and 1 MiB more."""


async def run_agent(config: AgentConfig) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code; raises InvalidConfig for what must be corrected."""
    gc.set_threshold(*GC_THRESHOLDS)
    begin_small()
    set_up_logging(config.logs.format, config.logs.verbosity)
    began = time.monotonic()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    for unused in config.unused:
        log.warning(
            "Setting has no effect",
            setting=unused.name,
            origin=unused.origin,
            value=unused.value,
            consequence=unused.consequence,
        )
    apply_process_settings(config.process)
    async with AsyncExitStack() as stack:
        parts = await _built(stack, config)
        try:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(_run(parts, began), name="agent")
                await stopping.wait()
                log.info("Stopping; what runs goes on running")
                task.cancel()
        except* KubeletxError as errors:
            raise _first(errors) from None
    log.info("Stopped")
    return 0


async def _built(stack: AsyncExitStack, config: AgentConfig) -> Assembly:
    """The agent's parts. Raises Unavailable when the machine is in the way (a full disk, say)."""
    try:
        return await stack.enter_async_context(assemble(config))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Unavailable(f"cannot start: {where}{error.strerror or error}") from error


async def _run(parts: Assembly, began: float) -> None:
    manager = ServiceManager()
    async with asyncio.TaskGroup() as group:
        group.create_task(parts.registry.run(), name="runtimes")
        if parts.cgroups is not None:
            await parts.cgroups.prepare(parts.pods_limit)
        await _wait_listed(parts)
        found = await parts.manager.recover()
        await _resume_cgroups(parts)
        ready = asyncio.Event()
        group.create_task(parts.manager.run(ready=ready), name="pods")
        await ready.wait()
        for name, run in parts.background.items():
            group.create_task(supervise(name, run, parts.clock), name=name)
        await parts.start_servers()
        parts.sources.start(group, parts.clock)
        if parts.cluster is not None:
            parts.cluster.start(group, parts.clock, parts.sources.health)
        gc.collect()
        gc.freeze()
        log.info(
            "Started",
            node=parts.node_name,
            runtimes=",".join(h.name for h in parts.registry.handles()),
            recovered_pods=found,
            elapsed_seconds=round(time.monotonic() - began, 3),
        )
        manager.ready(f"node {parts.node_name}")
        group.create_task(manager.run(), name="service-manager")
        try:
            await asyncio.Event().wait()
        finally:
            manager.stopping()
            await parts.stop_servers()


async def _resume_cgroups(parts: Assembly) -> None:
    """Pods that run already keep their share of the processors."""
    if parts.cgroups is None:
        return
    try:
        await parts.cgroups.resume(parts.manager.running())
    except KubeletxError as error:
        log.warning("Failed to set the shares of running pods", err=str(error))


async def _wait_listed(parts: Assembly) -> None:
    """Give every runtime a moment, so that pods come back with their state at once."""
    waiting = [
        asyncio.create_task(handle.wait_listed(), name=f"wait-listed-{handle.name}")
        for handle in parts.registry.handles()
    ]
    if not waiting:
        return
    try:
        await asyncio.wait(waiting, timeout=CONNECT_SECONDS)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _first(group: BaseExceptionGroup[KubeletxError]) -> KubeletxError:
    """The first error of a tree of task groups."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
