"""`PodDependencies`: objects that the executor and the steps of all pods share. The agent builds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import Clock, ClusterObjects, EventSink, IdMapping, PodUid
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
from .probes.lifecycle_hooks import UnitHooks
from .records import PodRecords
from .specs.extras import ExtrasProvider
from .status.board import StatusBoard
from .status.build import NodeIdentity
from .unit_images import UnitImages

if TYPE_CHECKING:
    from .start_traces import StartTraces  # needs OpenTelemetry

Review = Callable[[Pod], Awaitable[Rejection | Waiting | None]]


class Evacuation(msgspec.Struct, frozen=True, kw_only=True):
    """Hook that ends what clients use in a pod, such as sessions, before the pod's containers are stopped.

    It is used for every pod that ends while a container of it runs: deletion, eviction, preemption, deadline, shutdown of
    the host. Forced deletions and those without a grace period skip it.
    """

    is_needed: Callable[[PodUid], bool]
    """Returns True if clients use the pod. Called in each round of the worker of a pod that ends, so it must be quick."""
    run: Callable[[PodUid, float], Awaitable[None]]
    """Returns when no client uses the pod, at the latest at the given monotonic time.

    It is cancelled if the pod has to end earlier or its containers have ended, and when the agent stops: after a restart
    it is called again if it is still needed.
    """


class PodDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that the steps of all pods use, one field per concern.

    `cgroups`: None if the agent makes no cgroups for pods. `classes`: the runtime of each RuntimeClass, as ``NAME`` or
    ``NAME--HANDLER``, by name of the class; changes while the agent runs. `cluster`: access to cluster objects, such as
    secrets, by pod source; pods of a source that is missing here cannot use cluster objects.
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
    """Returns the ID mappings of the pod's own user namespace; None if the pod has none (hostUsers is not false)."""
    on_unit_started: Callable[[], None]
    """Called after each start of a container or machine; `LogKeeper` then checks if the agent must write its log."""
    review: Review | None = None
    """Called before a pod is assigned to a runtime. Returns a rejection, what the pod waits for, or None to allow it.

    If `review` is None, only admission decides.
    """
    classes: Mapping[str, str] = {}
    cluster: Mapping[str, ClusterObjects] = {}
    extras: Mapping[str, ExtrasProvider] = {}
    """Providers of additional mounts, variables and annotations for containers, by provider name; may change."""
    evacuations: Sequence[Evacuation] = ()
    """Hooks called before the containers of a pod are stopped because the pod ends; may change."""
    sources: SourceTable = BUILT_IN
    traces: StartTraces | None = None
    """None: starts of pods are not traced."""
    crash_cap_seconds: float = 300.0
    thaw_seconds: float = 5.0
    """Deadline of one thaw of a container in a pod that ends, and of a thaw before a stop.

    For a machine, whose memory may be on the disk, it is at least the grace period. If the thaw fails, the unit is
    stopped while frozen.
    """
    exit_seconds: float = 3.0
    """Time for which a worker of a stopping agent waits for its calls in flight."""
