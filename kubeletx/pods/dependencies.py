"""What `PodServices` is made of: protocols of this room's own, and `Collaborators`, which holds one of each.

The agent composes them; tests put doubles in their places.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from kubeletx.api import Clock, ClusterObjects, EventSink, IdMapping, PodUid, UnitId
from kubeletx.kube.types.core import Container, LifecycleHandler, Pod
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.volumes.preparer import VolumePreparer

from .admission.counter import Room
from .model.changes import Change
from .model.facts import DesiredPod, Rejection, Waiting
from .model.node_context import NodeContext
from .plan.draft import Goal
from .records import PodRecords
from .status.board import StatusBoard
from .status.build import NodeIdentity

if TYPE_CHECKING:
    from .steps.context import StepContext
    from .worker import PodWorker


class Admission(Protocol):
    """Counts what pods take of the node. Synchronous: an admitted pod is counted before the next is asked."""

    async def refresh(self) -> None:
        """Have the node's labels as they are in the cluster now; keep those known when nobody tells."""
        ...

    def runtime_awaited(self, pod: Pod) -> Waiting | None:
        """What a pod that was refused for the node's labels waits for; None: it is refused for good."""
        ...

    def admit(self, desired: DesiredPod, handle: RuntimeHandle, handler: str) -> Rejection | None:
        """Admit and count the pod, or say why not. `handler`: of its runtime class, or empty."""
        ...

    def make_room(
        self,
        desired: DesiredPod,
        handle: RuntimeHandle,
        handler: str,
        *,
        leaves: Callable[[PodUid], bool],
        may_leave: Callable[[PodUid], bool],
    ) -> Room | Rejection | None:
        """Reserve room for a critical pod that was not admitted, or say why it gets none; None: nobody ends for it."""
        ...

    def restore(self, pod: Pod, handle: RuntimeHandle | None, source: str) -> None:
        """Count a pod that runs already, whatever the sums say (A6)."""
        ...

    def would_ever_fit(self, pod: Pod, handle: RuntimeHandle, source: str) -> bool:
        """Whether the node could take the pod if it were the only one."""
        ...

    def change(self, pod: Pod, handle: RuntimeHandle, source: str) -> Rejection | None:
        """Count the pod with what it wants now in place of what it took, or say why that does not fit."""
        ...

    def release(self, uid: PodUid) -> None:
        """The pod takes nothing any more; unknown ones are ignored."""
        ...


class Images(Protocol):
    """Images for units, in the store of the bound runtime."""

    async def ensure(self, step: StepContext, name: str) -> Change:
        """Have the container's image there, by its pull policy."""
        ...


class Probes(Protocol):
    """Probes of the units that run."""

    def sync(self, worker: PodWorker, goal: Goal) -> None:
        """Start and stop probes to match the worker's facts."""
        ...

    def drop(self, worker: PodWorker) -> None:
        """The pod is gone."""
        ...


class Hooks(Protocol):
    """Lifecycle hooks."""

    async def run(
        self,
        step: StepContext,
        handler: LifecycleHandler,
        container: Container,
        unit_id: UnitId,
        seconds: float | None,
    ) -> str:
        """Run it; the text of the failure, or an empty string."""
        ...


class PodCgroups(Protocol):
    """The cgroups in which pods stand."""

    async def create(self, pod: Pod) -> str:
        """Make the pod's cgroup with its limits; returns the parent to give to the runtime."""
        ...

    async def remove(self, pod: Pod) -> None:
        """Remove it; succeeds if there is none."""
        ...


class Directories(Protocol):
    """A pod's directories outside its volumes."""

    async def create(self, pod: Pod) -> dict[str, int]:
        """The log directory and the pod's own one. Returns containers whose logs are there already, each
        with the restart count of its next run."""
        ...

    async def remove(self, pod: Pod) -> None:
        """Both, with everything below; refuses while something is mounted there."""
        ...

    async def read_message(self, pod: Pod, container: Container, attempt: int, *, failed: bool) -> str:
        """The termination message that one ended attempt left."""
        ...

    async def remove_log(self, pod: Pod, container: str, attempt: int) -> None:
        """Remove one attempt's log."""
        ...

    async def begin_once(self, pod: Pod, what: str) -> bool:
        """Write down that `what` begins; False when it began before, in an earlier life of the agent perhaps."""
        ...

    async def read_orders(self, pod: Pod) -> bytes | None:
        """What was asked of the pod's machine, as it was written; None if nothing was."""
        ...

    async def write_orders(self, pod: Pod, data: bytes) -> None:
        """Replace it, lasting over a loss of power. Raises Unavailable when it cannot be written."""
        ...

    async def link_log(self, pod: Pod, container: str, attempt: int, unit_id: UnitId) -> None:
        """Link the log to where collectors look; a link that cannot be made stops nothing."""
        ...


class Collaborators(msgspec.Struct, frozen=True, kw_only=True):
    """What `PodServices` is made of. `cgroups` None: pods get no cgroup of ours.

    `classes`: runtime class → NAME or NAME--HANDLER; may change. `cluster`: objects of the cluster by the source of the
    pods that may ask for them; pods of other sources have none.
    """

    registry: RuntimeRegistry
    node: NodeContext
    identity: NodeIdentity
    volumes: VolumePreparer
    admission: Admission
    images: Images
    probes: Probes
    hooks: Hooks
    directories: Directories
    cgroups: PodCgroups | None
    records: PodRecords
    board: StatusBoard
    events: EventSink
    clock: Clock
    user_mappings: Callable[[Pod], Awaitable[tuple[IdMapping, ...] | None]]
    """The pod's own user namespace, for pods with hostUsers false."""
    on_unit_started: Callable[[], None]
    classes: Mapping[str, str] = {}
    cluster: Mapping[str, ClusterObjects] = {}
    crash_cap_seconds: float = 300.0
