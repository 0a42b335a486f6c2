"""Component of the agent: ends pods in order when the host shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from kubeletx.api import Clock, Conflict, TimedOut
from kubeletx.node.shutdown import ShutdownGroup, groups_of
from kubeletx.pods import HostShutdown, ShutdownLock
from kubeletx.server.views import Progress

from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .views import ViewsAssembly
from .volumes import VolumesAssembly

if TYPE_CHECKING:
    from ..cluster.member import Cluster

SHUTTING_DOWN = "node is shutting down"
GRACE_SECONDS = 300.0
"""Longest time in which a user or the guardian waits for the end of pods; used without a configured grace period."""
CRITICAL_GRACE_SECONDS = 30.0
LOOK_SECONDS = 0.2


class AnnouncedShutdown:
    """Shutdown that a program announces, the guardian or a user's drain, as `HostShutdown` waits for it (`ShutdownLock`)."""

    def __init__(self) -> None:
        self.is_ending = False
        self.is_released = False
        """All pods have ended, or their time was over."""
        self._news = asyncio.Event()

    def announce(self, is_ending: bool) -> None:
        if is_ending != self.is_ending:
            self.is_ending = is_ending
            self._news.set()

    async def open(self, delay_seconds: int) -> bool:
        self._news.clear()
        return self.is_ending

    async def hold(self) -> None:
        self.is_released = False

    def release(self) -> None:
        self.is_released = True

    async def next(self) -> bool:
        await self._news.wait()
        self._news.clear()
        return self.is_ending

    def close(self) -> None:
        self._news.clear()


class Shutdowns:
    """Tasks that end the pods, one for each place that announces a shutdown of the host.

    A shutdown also closes pod admission and makes the node not Ready.
    """

    def __init__(
        self,
        ctx: PartContext,
        node: NodeAssembly,
        pods: PodsAssembly,
        views: ViewsAssembly,
        cluster: Cluster | None,
    ) -> None:
        settings = ctx.config.shutdown
        self.groups = groups_of(settings.grace_seconds, settings.critical_grace_seconds, settings.by_priority)
        """Configured groups of pods; empty: pods do not end when systemd-logind announces a shutdown."""
        self._ctx, self._node, self._pods, self._views, self._cluster = ctx, node, pods, views, cluster
        self._announced: set[str] = set()
        self._cordon_mark = ctx.config.root_dir / "cordoned"
        """Its existence means that a user has cordoned the node."""
        self._follow_cordon()

    def watch(self, name: str, lock: ShutdownLock, groups: Sequence[ShutdownGroup] | None = None) -> None:
        """Add the task `name`, which waits for shutdowns of `lock` and then ends the pods.

        `groups` None: the configured ones, or groups of `GRACE_SECONDS`.
        """
        if groups is None:
            groups = self.groups or groups_of(GRACE_SECONDS, CRITICAL_GRACE_SECONDS)

        def on_change(is_ending: bool) -> None:
            (self._announced.add if is_ending else self._announced.discard)(name)
            self._pods.admission.is_shutting_down = bool(self._announced)
            self._views.node.problems_changed(*([SHUTTING_DOWN] if self._announced else []))

        shutdown = HostShutdown(
            lock,
            groups,
            pods=self._pods.services.active,
            clock=self._ctx.clock,
            events=self._node.events,
            node=self._node.ref,
            on_change=on_change,
            has_reported=lambda: self._cluster is None or self._cluster.statuses.is_idle,
        )
        self._ctx.made.add(Part(name=name, tasks=(Task(name=name, run=shutdown.run),)))

    def cordon(self, is_cordoned: bool) -> None:
        """Refuse new pods, or accept them again. Raises Conflict in a cluster."""
        if self._cluster is not None:
            verb, name = "cordon" if is_cordoned else "uncordon", self._node.reporter.name
            raise Conflict(f"node {name} belongs to a cluster; use 'kubectl {verb} {name}'")
        if is_cordoned:
            self._cordon_mark.touch()
        else:
            self._cordon_mark.unlink(missing_ok=True)
        self._follow_cordon()

    def _follow_cordon(self) -> None:
        self._pods.admission.is_cordoned = self._cluster is None and self._cordon_mark.exists()
        if self._cluster is None:
            self._views.node.cordon_changed(self._pods.admission.is_cordoned)

    def left(self) -> set[str]:
        """Return the pods, as namespace/name, that have not ended."""
        active = self._pods.services.active
        return {str(w.desired.ref) for uid, w in active.workers.items() if not active.has_stopped(uid)}


class PodsDrain:
    """A user's drain: ends all pods as a shutdown of the host does, and refuses new ones. Implements `DrainVerbs`."""

    def __init__(self, shutdowns: Shutdowns, clock: Clock) -> None:
        self._shutdowns, self._clock, self._lock = shutdowns, clock, AnnouncedShutdown()
        shutdowns.watch("drain", self._lock)

    async def drain(self, timeout_seconds: float) -> AsyncIterator[Progress]:
        end = self._clock.monotonic() + timeout_seconds
        left = self._shutdowns.left()
        self._lock.announce(True)
        while left or not self._lock.is_released:
            if not self._lock.is_ending:
                raise Conflict(
                    "another command ended the drain of this node; drain it again if it is still needed"
                )
            if self._clock.monotonic() >= end:
                what = f"pods {', '.join(sorted(left))}" if left else "reports of their statuses"
                raise TimedOut(f"after {timeout_seconds:g}s not ended: {what}; the node goes on to drain")
            await self._clock.sleep(LOOK_SECONDS)
            before, left = left, self._shutdowns.left()
            for ref in sorted(before - left):
                yield Progress(message=f"pod {ref} ended")
        yield Progress(message="all pods have ended; new ones are refused", done=True)

    async def cordon_node(self, cordoned: bool) -> Progress:
        self._shutdowns.cordon(cordoned)
        return Progress(message=f"node {'cordoned' if cordoned else 'uncordoned'}", done=True)

    async def undo(self) -> Progress:
        self._lock.announce(False)
        while self._lock.is_released:
            await self._clock.sleep(LOOK_SECONDS)
        return Progress(message="new pods are accepted", done=True)


def make_shutdown(
    ctx: PartContext,
    node: NodeAssembly,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
    cluster: Cluster | None,
) -> Shutdowns:
    """Build the task that ends the pods when systemd-logind announces a shutdown of the host."""
    shutdowns = Shutdowns(ctx, node, pods, views, cluster)
    shutdowns.watch("host-shutdown", ctx.host.logind(volumes.files), shutdowns.groups)
    return shutdowns
