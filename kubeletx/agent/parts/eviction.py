"""Eviction as a part of the agent: what the evictor hears, whom it tells, and how processes are counted."""

from __future__ import annotations

from collections.abc import Callable

from kubeletx.api import Blocking, Clock, EventSink
from kubeletx.kube.types.core import Pod
from kubeletx.node.cgroup_fs import CgroupTrees
from kubeletx.node.cgroups import PodCgroupManager
from kubeletx.node.memory_events import MemoryEvents
from kubeletx.node.readiness import Pressure
from kubeletx.pods.admission import Door
from kubeletx.pods.eviction.evictor import Evictor, Node

from ..backend.node import NodeBackend
from ..config.tree import AgentConfig
from .settings import eviction_policy


def make_evictor(
    config: AgentConfig,
    evicted: Node,
    *,
    door: Door,
    node: NodeBackend,
    clock: Clock,
    blocking: Blocking,
    events: EventSink,
    stalls: MemoryEvents,
) -> Evictor:
    """The evictor; admission and the node's conditions hear of every pressure. `stalls`: make it look sooner."""

    def on_pressure(pressure: Pressure) -> None:
        door.pressure = pressure
        node.pressure_changed(pressure)

    return Evictor(
        evicted,
        eviction_policy(config),
        clock=clock,
        blocking=blocking,
        events=events,
        on_pressure=on_pressure,
        wait=stalls.wait,
    )


def pids_counter(cgroups: PodCgroupManager | None, trees: CgroupTrees) -> Callable[[Pod], int | None]:
    """How many processes a pod has, by its cgroup; pods without one of ours cannot be counted."""

    def count(pod: Pod) -> int | None:
        if cgroups is None:
            return None
        return len(trees.processes(cgroups.location(pod))) or None

    return count
