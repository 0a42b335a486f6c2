"""Node, events and usage for the admin socket.

`NodeBackend` also recomputes the node's conditions when a runtime, a pressure or a plugin's health check changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, EventSink, NotFound, ObjectRef
from kubeletx.api.names import Event as Reason
from kubeletx.kube.requests import measured_limits
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import AttachedVolume, Node, NodeCondition
from kubeletx.node.events import EventRecorder
from kubeletx.node.host_usage import HostUsage
from kubeletx.node.readiness import CheckFacts, Pressure, RuntimeFacts
from kubeletx.node.status import NodeReporter, is_ready
from kubeletx.node.totals import Usage, UsageReport, add_up, usage_of, usage_of_runtime
from kubeletx.pods import PodManager
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.runtimes.usage import RATE_SECONDS, UsageBoard
from kubeletx.server import views

from .images import ImageBackend
from .usage_ring import UsageRing
from .watching import Latest

log = structlog.get_logger(__name__)

OLDEST_RATE_SECONDS = 60.0
"""Longest time over which the CPU rate of the machine is averaged."""
_PRESSURE_REASONS = {
    "memory": (Reason.SUFFICIENT_MEMORY, Reason.INSUFFICIENT_MEMORY),
    "disk": (Reason.NO_DISK_PRESSURE, Reason.HAS_DISK_PRESSURE),
    "pids": (Reason.SUFFICIENT_PID, Reason.INSUFFICIENT_PID),
}
"""Field of `Pressure` → event reason when the pressure ends, and when it begins."""


class NodeBackend:
    """Keeps the node's conditions up to date, and shows node, events and usage.

    Implements `NodeVerbs`. The runtime registry calls it after each change of a runtime.
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        reporter: NodeReporter,
        registry: RuntimeRegistry,
        manager: PodManager,
        events: EventRecorder,
        usage: UsageBoard,
        images: ImageBackend,
        attached: Callable[[], tuple[AttachedVolume, ...]],
        read_host: Callable[[], Awaitable[HostUsage]],
        checks: tuple[CheckFacts, ...],
        clock: Clock,
    ) -> None:
        """`attached`: returns the devices of volumes that are attached to the node. `read_host`: the machine's usage.

        `checks`: the plugins' health checks, before their first results.
        """
        self._read_host = read_host
        self._clock = clock
        self._host_before: tuple[float, HostUsage] | None = None
        self._attached = attached
        self._reporter = reporter
        self._registry = registry
        self._manager = manager
        self._events = events
        self._usage = usage
        self._images = images
        self._pressure = Pressure()
        self._problems: tuple[str, ...] = ()
        self._checks = checks
        self._others: tuple[NodeCondition, ...] = ()
        self._watchers: list[Latest[None]] = []
        self._was_ready: bool | None = None
        self._is_cordoned = False
        self._cluster_node: Node | None = None
        self.usage_ring = UsageRing(self.usage, clock)
        registry.subscribe(self)

    def pressure_changed(self, pressure: Pressure) -> None:
        """Set the node's memory, disk and PID pressure, and recompute the conditions.

        An event is recorded for each of the three that has begun or ended since the last call.
        """
        before, self._pressure = self._pressure, pressure
        self.runtime_changed("")
        for name, reasons in _PRESSURE_REASONS.items():
            has_pressure: bool = getattr(pressure, name)
            if has_pressure != getattr(before, name):
                self._record(reasons[has_pressure])

    def problems_changed(self, *problems: str) -> None:
        """Set the further reasons why the node is not Ready, such as a host shutdown, and recompute the conditions.

        The reasons replace the last call's reasons; a call without reasons removes them.
        """
        self._problems = problems
        self.runtime_changed("")

    def checks_changed(self, checks: tuple[CheckFacts, ...]) -> None:
        """Set the last results of the plugins' health checks, and recompute the conditions."""
        self._checks = checks
        self.runtime_changed("")

    def others_changed(self, conditions: tuple[NodeCondition, ...]) -> None:
        """Set further conditions of the node, without their times, and recompute all."""
        self._others = conditions
        self.runtime_changed("")

    # --- the runtimes' listener ---

    def runtime_changed(self, name: str) -> None:
        """Recompute the node's conditions. `name`, the runtime that changed, is not used.

        A change of readiness is recorded as event NodeReady or NodeNotReady. A node that is not ready at the agent's
        start gets no event for that.
        """
        if self._update(self.reports()):
            for watcher in self._watchers:
                watcher.put("node", None)
        now_ready = is_ready(self._reporter.conditions)
        if now_ready == self._was_ready:
            return
        first, self._was_ready = self._was_ready is None, now_ready
        if first and not now_ready:
            return
        log.info(
            "Changed node readiness", ready=now_ready, reason=self._reporter.conditions[-1].message or ""
        )
        self._record(Reason.NODE_READY if now_ready else Reason.NODE_NOT_READY)

    def node_changed(self, node: Node | None) -> None:
        """Listener of the Node in the API server: keep it, and record an event when it is cordoned or uncordoned."""
        self._cluster_node = node
        if node is not None:
            self.cordon_changed(node.spec.unschedulable)

    def cordon_changed(self, is_cordoned: bool) -> None:
        """Set whether the node is cordoned; a change is recorded as an event."""
        if is_cordoned != self._is_cordoned:
            self._is_cordoned = is_cordoned
            self._record(Reason.NODE_NOT_SCHEDULABLE if self._is_cordoned else Reason.NODE_SCHEDULABLE)

    def _update(self, reports: Sequence[RuntimeFacts]) -> bool:
        return self._reporter.update(
            reports,
            pressure=self._pressure,
            problems=self._problems,
            checks=self._checks,
            others=self._others,
        )

    def _record(self, reason: str) -> None:
        sink: EventSink = self._events
        name = self._reporter.name
        ref = ObjectRef(kind="Node", name=name, uid=name)
        sink.record(ref, type="Normal", reason=reason, message=f"Node {name} status is now: {reason}")

    def pod_changed(self, name: str, uid: str, event: object) -> None:
        """Do nothing: changes of pods do not affect the node's conditions."""

    # --- NodeVerbs ---

    async def get_node(self) -> Node:
        reports = self.reports()
        self._update(reports)
        images = await self._images.node_images()
        node = self._reporter.build(reports, images=images, attached=self._attached())
        return replace(node, spec=replace(node.spec, unschedulable=self._is_cordoned))

    def cluster_node(self) -> Node:
        if self._cluster_node is None:
            raise NotFound(f"node {self._reporter.name} is in no cluster; start the agent with --kubeconfig")
        return self._cluster_node

    async def watch_node(self) -> AsyncIterator[Node]:
        changes: Latest[None] = Latest()
        self._watchers.append(changes)
        try:
            yield await self.get_node()
            async for _ in changes:
                yield await self.get_node()
        finally:
            self._watchers.remove(changes)

    async def list_events(self) -> Sequence[Event]:
        return self._events.list_events()

    async def watch_events(self) -> AsyncIterator[Event]:
        async for event in self._events.watch_events():
            yield event

    async def usage(self) -> views.UsageView:
        report = UsageReport(runtimes=await self._usage.read_rates())
        before, host = await self._two_host_readings()
        by_pod = report.units_by_pod()
        pods = []
        for worker in self._manager.workers.values():
            units = by_pod.get(worker.uid)
            if units is None or worker.facts.runtime is None:
                continue
            pod = worker.desired.pod
            cpu_limit, memory_limit = measured_limits(pod.spec)
            pods.append(
                views.PodUsage(
                    namespace=pod.namespace,
                    name=pod.name,
                    runtime=worker.facts.runtime,
                    uid=worker.uid,
                    usage=_view(add_up(usage_of(unit) for unit in units)),
                    cpu_limit_millicores=cpu_limit,
                    memory_limit_bytes=memory_limit,
                    labels=dict(pod.metadata.labels),
                    containers=tuple(
                        views.ContainerUsage(name=unit.name, usage=_view(usage_of(unit))) for unit in units
                    ),
                )
            )
        capacity = self._reporter.capacity
        return views.UsageView(
            node_name=self._reporter.name,
            node=_host_view(before, host),
            node_cpu_capacity_millicores=capacity.cpu_millicores,
            node_memory_capacity_bytes=capacity.memory_bytes,
            runtimes=tuple(
                views.RuntimeUsageView(
                    name=runtime.name,
                    workload_type=runtime.workload_type,
                    pods=len(self._registry.bound_uids(runtime.name)),
                    usage=_view(usage_of_runtime(runtime)),
                )
                for runtime in report.answered
            ),
            pods=tuple(sorted(pods, key=lambda p: (p.namespace, p.name))),
            missing=tuple(report.missing),
        )

    def usage_history(self, after: int) -> views.UsageHistory:
        return self.usage_ring.read(after)

    async def _two_host_readings(self) -> tuple[HostUsage, HostUsage]:
        """Return the present usage of the machine, and an earlier one that is at least a second old."""
        now = self._clock.monotonic()
        if self._host_before is None or not RATE_SECONDS <= now - self._host_before[0] <= OLDEST_RATE_SECONDS:
            self._host_before = now, await self._read_host()
            await self._clock.sleep(RATE_SECONDS)
            now = self._clock.monotonic()
        before, host = self._host_before[1], await self._read_host()
        self._host_before = now, host
        return before, host

    def reports(self) -> list[RuntimeFacts]:
        """Return the state, version and traits of every runtime, from which the Node object is built."""
        return runtime_reports(self._registry)


def runtime_reports(registry: RuntimeRegistry) -> list[RuntimeFacts]:
    """Return the state, version and traits of every runtime of the registry, from which the Node object is built."""
    return [
        RuntimeFacts(
            name=h.name,
            workload_type=h.workload_type,
            state=h.state,
            version=h.last_version,
            traits=h.traits,
        )
        for h in registry.handles()
    ]


def _view(usage: Usage) -> views.MeasuredUsage:
    return views.MeasuredUsage(
        cpu_millicores=usage.cpu_millicores, memory_bytes=usage.memory_bytes, fs_bytes=usage.fs_bytes
    )


def _host_view(before: HostUsage, host: HostUsage) -> views.MeasuredUsage:
    elapsed_ns = host.at_ns - before.at_ns
    return views.MeasuredUsage(
        cpu_millicores=(host.cpu_core_ns - before.cpu_core_ns) * 1000 // elapsed_ns
        if elapsed_ns > 0
        else None,
        memory_bytes=host.memory_working_set_bytes,
        fs_bytes=host.fs.used_bytes if host.fs is not None else None,
    )
