"""`PodDependencies`: objects that the executor and the steps of all pods share. The agent builds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from kubeletx.api import Clock, ClusterObjects, EventSink, IdMapping
from kubeletx.kube.types.core import Pod
from kubeletx.node.cgroups.pods import PodCgroupManager
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.volumes.preparer import VolumePreparer

from .admission import NodeAdmission
from .counters import Counters
from .logs.pod_files import PodFiles
from .model.facts import Rejection, Waiting
from .model.node_context import NodeContext
from .model.sources import BUILT_IN, SourceTable
from .probes.all_probes import UnitProbes
from .probes.hook_runner import UnitHooks
from .records import PodRecords
from .specs import ExtrasProvider
from .status.board import StatusBoard
from .status.build import NodeIdentity
from .unit_images import UnitImages

Review = Callable[[Pod], Awaitable[Rejection | Waiting | None]]


class PodDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that the steps use, one field per concern. `cgroups` None: the agent makes no cgroups for pods.

    `classes`: runtime class → NAME or NAME--HANDLER; changes while the agent runs. `cluster`: cluster objects by the
    source whose pods may refer to them; pods of other sources have none.
    """

    registry: RuntimeRegistry
    node: NodeContext
    identity: NodeIdentity
    volumes: VolumePreparer
    admission: NodeAdmission
    images: UnitImages
    probes: UnitProbes
    hooks: UnitHooks
    directories: PodFiles
    cgroups: PodCgroupManager | None
    records: PodRecords
    board: StatusBoard
    counters: Counters
    events: EventSink
    clock: Clock
    user_mappings: Callable[[Pod], Awaitable[tuple[IdMapping, ...] | None]]
    """Returns the pod's own user namespace, for pods with hostUsers false."""
    on_unit_started: Callable[[], None]
    """Called after each start of a unit, so that the log keeper looks for a log that the agent has to write."""
    review: Review | None = None
    """Called before a pod is bound: returns why it may not run here, or what it waits for.

    None: admission alone decides.
    """
    classes: Mapping[str, str] = {}
    cluster: Mapping[str, ClusterObjects] = {}
    extras: Mapping[str, ExtrasProvider] = {}
    """Providers of mounts, variables and annotations for units, by name; may change."""
    sources: SourceTable = BUILT_IN
    crash_cap_seconds: float = 300.0
