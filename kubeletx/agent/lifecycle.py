"""`Assembly.run`: starts and stops the agent's components in order.

start  `Part.early` ─► runtimes connect ─► cgroups ─► earlier pods recovered ─► `Part.recovered` ─► pod workers ─► tasks of all parts ─► servers ─► feeds
stop   servers first; then all tasks are cancelled together; containers and virtual machines continue to run

`Part` in `parts.part` says what the tasks, servers and feeds of a component are.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError
from kubeletx.api.names import Event
from kubeletx.linux.notify import notify, watchdog_seconds
from kubeletx.pods import PodManager
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.backend import AdminBackend

from .host.supervise import supervise
from .parts.admin import AdminAssembly
from .parts.node import NodeAssembly
from .parts.part import ListeningServer, Part, Task
from .parts.pods import PodsAssembly
from .parts.runtimes import RuntimesAssembly
from .parts.views import ViewsAssembly

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 1.0
"""Longest wait for each runtime's first list of its pods; the pods of a slower runtime are recovered later."""


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's components, built and connected; `run` starts their tasks and servers."""

    clock: Clock
    parts: tuple[Part, ...]
    node: NodeAssembly
    runtimes: RuntimesAssembly
    pods: PodsAssembly
    views: ViewsAssembly
    admin: AdminAssembly
    enforces_pods_limit: bool
    """True: the cgroup of all pods is limited to the node's capacity minus kubeReserved and systemReserved."""

    @property
    def registry(self) -> RuntimeRegistry:
        return self.runtimes.registry

    @property
    def manager(self) -> PodManager:
        return self.pods.manager

    @property
    def backend(self) -> AdminBackend:
        return self.admin.backend

    async def run(self, began: float | None = None) -> None:
        """Start the agent and run it until cancelled.

        `began`: monotonic time from which the logged duration of the start is measured; None: now.
        """
        began = time.monotonic() if began is None else began
        async with asyncio.TaskGroup() as group:
            self._launch(group, (task for part in self.parts for task in part.early))
            group.create_task(self.registry.run(), name="runtimes")
            await self._prepare_cgroups()
            await self._wait_listed()
            recovered = await self.manager.recover()
            for part in self.parts:
                if part.recovered is not None:
                    part.recovered()
            await self._resume_cgroups()
            ready = asyncio.Event()
            group.create_task(self.manager.run(ready=ready), name="pods")
            await ready.wait()
            self._launch(group, (task for part in self.parts for task in part.tasks))
            await self._serve(group, recovered, began)

    async def _serve(self, group: asyncio.TaskGroup, recovered: int, began: float) -> None:
        listening = list[ListeningServer]()
        try:
            for server in (server for part in self.parts for server in part.servers):
                await server.start()
                listening.append(server)
            self._launch(group, (task for part in self.parts for task in part.feeds))
            gc.freeze()  # without a collection: it takes 50 ms before the first answer, and finds next to nothing
            name = self.node.reporter.name
            log.info(
                "Started",
                node=name,
                runtimes=",".join(handle.name for handle in self.registry.handles()),
                recovered_pods=recovered,
                elapsed_seconds=round(time.monotonic() - began, 3),
            )
            notify(f"READY=1\nSTATUS=node {name}")
            if (seconds := watchdog_seconds()) is not None:
                group.create_task(_feed_watchdog(seconds / 2, self.clock), name="service-manager")
            await asyncio.Event().wait()
        finally:
            notify("STOPPING=1\nSTATUS=stopping; pods keep running")
            for server in reversed(listening):
                await server.stop()

    def _launch(self, group: asyncio.TaskGroup, tasks: Iterable[Task]) -> None:
        for task in tasks:
            root = supervise(task.name, task.run, self.clock, task.on_failure)
            group.create_task(root, name=task.name)

    async def _prepare_cgroups(self) -> None:
        if self.pods.cgroups is not None:
            limit = self.node.reporter.pods_limit if self.enforces_pods_limit else None
            await self.pods.cgroups.prepare(limit)
            if limit is not None:
                self.node.events.record(
                    self.node.ref,
                    type="Normal",
                    reason=Event.NODE_ALLOCATABLE_ENFORCED,
                    message="Updated Node Allocatable limit across pods",
                )

    async def _resume_cgroups(self) -> None:
        """Set the CPU shares of the QoS classes' cgroups for the recovered pods; a failure is only logged."""
        if self.pods.cgroups is None:
            return
        try:
            await self.pods.cgroups.resume(self.manager.running())
        except KubeletxError as error:
            log.warning("Failed to set the shares of running pods", err=str(error))

    async def _wait_listed(self) -> None:
        """Wait, at most `CONNECT_SECONDS`, until every runtime has listed its pods for the first time.

        The pods of these runtimes are then recovered with their present state.
        """
        waiting = [
            asyncio.create_task(handle.wait_listed(), name=f"wait-listed-{handle.name}")
            for handle in self.registry.handles()
        ]
        if not waiting:
            return
        try:
            await asyncio.wait(waiting, timeout=CONNECT_SECONDS)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


async def _feed_watchdog(period_seconds: float, clock: Clock) -> None:
    """Notify the service manager from the event loop, so that it restarts an agent whose loop hangs."""
    while True:
        notify("WATCHDOG=1")
        await clock.sleep(period_seconds)
