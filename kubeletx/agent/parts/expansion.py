"""Component of the agent: the task that expands volumes of volume drivers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubeletx.api import ClusterObjects, PodUid
from kubeletx.volumes.drivers.expansion import VolumeExpansion

from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .volumes import VolumesAssembly


class ExpansionAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_expansion`: one task."""

    part: Part


def make_expansion(
    ctx: PartContext,
    node: NodeAssembly,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    objects: Mapping[str, ClusterObjects],
) -> ExpansionAssembly:
    """Build the task that expands volumes. `objects`: access to API objects by name of the pods' source."""

    def cluster_of(uid: PodUid) -> ClusterObjects | None:
        worker = pods.manager.workers.get(uid)
        return objects.get(worker.desired.source) if worker is not None else None

    expansion = VolumeExpansion(
        volumes=volumes.preparer.driven, cluster_of=cluster_of, events=node.events, clock=ctx.clock
    )
    task = Task(name="expansion", run=expansion.run)
    return ExpansionAssembly(part=Part(name="expansion", tasks=(task,)))
