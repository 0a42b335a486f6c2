"""Component of the agent: eviction, which ends pods when the node runs short of memory, disk or process ids."""

from __future__ import annotations

from collections.abc import Callable

from kubeletx.kube.types.core import Pod
from kubeletx.node.cgroups.pods import PodCgroupManager
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.node.memory_events import MemoryEvents, pressure_trigger
from kubeletx.node.readiness import Pressure
from kubeletx.pods import EvictedNode, Evictor

from .images import ImagesAssembly
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .settings import eviction_policy
from .views import ViewsAssembly
from .volumes import VolumesAssembly


def make_eviction(
    ctx: PartContext,
    node: NodeAssembly,
    runtimes: RuntimesAssembly,
    images: ImagesAssembly,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    views: ViewsAssembly,
) -> None:
    """Build the task that evicts pods under pressure.

    It passes each change of the node's pressure to pod admission and to the node's conditions.
    """

    def on_pressure(pressure: Pressure) -> None:
        pods.admission.pressure = pressure
        views.node.pressure_changed(pressure)

    stalls = MemoryEvents(ctx.clock, pressure_trigger())
    evictor = Evictor(
        EvictedNode(
            root_dir=ctx.config.root_dir,
            ref=node.ref,
            pods=pods.services.active,
            registry=runtimes.registry,
            stores=images.stores,
            collector=views.collector,
            usage=views.usage,
            disks=views.disks,
            pids=_pids_counter(pods.cgroups, ctx.host.trees),
            evictions=pods.services.counters.evictions,
            measure=ctx.host.measure,
        ),
        eviction_policy(ctx.config),
        clock=ctx.clock,
        blocking=volumes.files,
        events=node.events,
        on_pressure=on_pressure,
        wait=stalls.wait,
    )
    ctx.made.add(
        Part(name="eviction", tasks=(Task(name="eviction", run=evictor.run),), close=(stalls.close,))
    )


def _pids_counter(cgroups: PodCgroupManager | None, trees: CgroupTrees) -> Callable[[Pod], int | None]:
    """Return a function that counts the processes in a pod's cgroup.

    The function returns None if the agent makes no cgroups, or if the cgroup has no process.
    """

    def count(pod: Pod) -> int | None:
        if cgroups is None:
            return None
        return len(trees.processes(cgroups.location(pod))) or None

    return count
