"""Facts of one pod: the last look plus what the worker's own actions reported.

`plan_pod(desired, facts, now)` and `build_status(desired, facts, now)` read nothing else. Facts are frozen;
`results.apply` returns a changed copy. Monotonic times are floats in seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Self, TypeVar

import msgspec

from kubeletx.api import ImageStatus, PodUid, RuntimeName, UnitId, UnitSummary
from kubeletx.kube.types.core import Container, Pod, PodStatus
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from .grants import Grants
from .sources import BUILT_IN, SourceTraits


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base of frozen values about pods and the node."""


class Now(Fact, frozen=True, kw_only=True):
    """One moment on both clocks. `wall` is aware UTC and may jump; `mono` only grows.

    `draw`: a random number from 0 to 1, for the jitter of what begins to wait at this moment.
    """

    wall: datetime
    mono: float
    draw: float = 0.5


class Deletion(Fact, frozen=True, kw_only=True):
    """Request to end the pod. `requested_at`: monotonic. `grace_seconds` may only shrink (T4).

    `reason`/`message`: for the status if the node, not the source, ended the pod (Evicted, DeadlineExceeded,
    ...). `force`: do not wait for a runtime that does not answer. `over_own_limit`: the pod exceeded a limit
    of its own, so its end is no disruption.
    """

    requested_at: float
    grace_seconds: int
    force: bool = False
    reason: str = ""
    message: str = ""
    over_own_limit: bool = False


class DesiredPod(Fact, frozen=True, kw_only=True):
    """The pod as its source wants it.

    `problem`: error of a manifest that became invalid (the pod runs on); or empty. `held_until`: monotonic;
    set for a recovered pod that its source has not claimed yet: nothing is started or changed for it before
    this time. None: claimed.
    """

    uid: PodUid
    pod: Pod
    source: str
    spec_hash: str
    deletion: Deletion | None = None
    problem: str = ""
    held_until: float | None = None
    source_traits: SourceTraits | None = None
    """Traits of a source that is not built in; None: look them up by its name."""

    @property
    def traits(self) -> SourceTraits:
        """Traits of the pod's source, which differ for pods of the API server, of files and of other sources."""
        return self.source_traits or BUILT_IN.of(self.source)

    @property
    def ref(self) -> str:
        """namespace/name, as in logs."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def is_going(self) -> bool:
        """True if the pod is being deleted; False if the node only ended it (deadline, eviction)."""
        return self.deletion is not None and not self.deletion.reason


class ActionFailure(Fact, frozen=True, kw_only=True):
    """Last failure of an action. `reason`: the Waiting reason that users see.

    `retry_at`: monotonic time of the next try; None: no try before something else changes. `delay_seconds`:
    the back-off step reached, without jitter. `count`: failures in a row.
    """

    reason: str
    message: str
    retry_at: float | None
    delay_seconds: float = 0.0
    count: int = 1


class Waiting(Fact, frozen=True, kw_only=True):
    """Reason that a pod is not bound yet (DECISIONS 5 in docs/decisions/answers.md).

    `reason`: RuntimeNotFound, RuntimeCordoned, RuntimeNotReady, or that of a review or a preemption.
    """

    reason: str
    message: str


class Rejection(Fact, frozen=True, kw_only=True):
    """Final refusal of a pod: it becomes Failed with this reason (A2 in docs/kubelet-parity.md)."""

    reason: str
    message: str


class HookState(enum.Enum):
    """State of a unit's postStart hook. A unit is started once its hook is DONE or UNKNOWN."""

    NONE = "none"
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The hook had begun before a crash of the agent; it is never run again."""


class RestartBackoff(Fact, frozen=True, kw_only=True):
    """Crash-loop entry of one container (B1): `delay_seconds` between an exit and the next start.

    `updated_at`: monotonic time of the restart that made the entry.
    """

    delay_seconds: float
    updated_at: float


class ProbeFacts(Fact, frozen=True, kw_only=True):
    """Latest outcome of each probe of one unit. None: no probe, or no outcome yet.

    First values (P2): readiness False, liveness True, startup None.
    """

    unit_id: UnitId
    boot: str = ""
    """Boot of the unit that was probed (`boots.boot_of`); outcomes of an earlier boot do not count."""
    readiness: bool | None = None
    liveness: bool | None = None
    startup: bool | None = None
    message: str = ""


_OPEN_HOOKS = (HookState.PENDING, HookState.RUNNING, HookState.FAILED)


class UnitFacts(Fact, frozen=True, kw_only=True):
    """Facts of one container, found by its name, that the runtime's lists do not show."""

    failure: ActionFailure | None = None
    """Failure of the last create or start."""
    image: ImageStatus | None = None
    """Status of the image in the bound store; None if it is not there or not known yet."""
    image_failure: ActionFailure | None = None
    backoff: RestartBackoff | None = None
    exited_at: float | None = None
    """Monotonic time at which the newest unit was first seen ended."""
    hook: HookState = HookState.NONE
    hook_unit: UnitId | None = None
    probes: ProbeFacts | None = None
    resize_failure: ActionFailure | None = None
    killed: str = ""
    """Reason of the `StopUnit` that stopped the newest unit for a restart, or empty."""
    termination_messages: dict[UnitId, str] = {}
    """Termination messages of ended units, from their file or the end of their log (ST9)."""
    restarts_before: int = 0
    """Restart count known from the log directory if the runtime no longer has older units."""


class VolumeFacts(Fact, frozen=True, kw_only=True):
    """State of the pod's volumes. `ready`: all are prepared on the node.

    `stale_at`: monotonic time of the last change of their content; running containers keep the old content until the
    new one is written. None: up to date.
    """

    ready: bool = False
    stale_at: float | None = None
    failure: ActionFailure | None = None
    released: bool = False


class Outage(Fact, frozen=True, kw_only=True):
    """Outage of the bound runtime: it does not answer; all other facts stay as last seen (DECISIONS 24)."""

    since: datetime
    reason: str
    message: str


class Pace(Fact, frozen=True, kw_only=True):
    """Repeats of an action that succeeded without effect: `count` in a row, the last at `at` (monotonic)."""

    count: int
    at: float


class WorkloadFacts(Fact, frozen=True, kw_only=True):
    """Facts that only one kind of workload has.

    The base class serves pods of plain containers, which have none.
    """

    reboots: ClassVar[bool] = False
    """True if a unit may boot again and stay the same unit; no list shows that, only a look at the unit."""
    has_own_kernel: ClassVar[bool] = False
    """True if the pod is one unit with a kernel and a root disk of its own, outside the node's cgroups."""
    no_ephemeral: ClassVar[str] = ""
    """Reason that the workload takes no ephemeral containers; empty if it does."""

    def edited(self) -> Self:
        """Return the facts after a user changed the pod: failures that excluded a retry are dropped."""
        return self


_CONTAINERS = WorkloadFacts()
W = TypeVar("W", bound=WorkloadFacts)


class PodFacts(Fact, frozen=True, kw_only=True):
    """All that is known of one pod.

    `unsettled_until`: monotonic; a call that timed out may take effect until then, so nothing is changed, and
    the pod does not count as removed, before a look that began later (rule 8 of docs/architecture.md).
    `recovered`: found at start rather than created by this process. `previous_status`: the last one, from
    this process or from the store.
    """

    runtime: RuntimeName | None = None
    runtime_ready: bool = False
    network_ready: bool = False
    network_problem: str = ""
    """Reason the runtime's network is not ready, from the runtime."""
    bind_wanted: bool = True
    """True if choosing a runtime may be tried: nothing was tried yet, or a runtime changed since."""
    expects_address: bool = True
    """True if the runtime gives the pod an address on the pod network."""
    image_before_sandbox: bool = False
    own: WorkloadFacts = _CONTAINERS
    """Facts of the pod's workload; plain containers have none of their own."""
    overrides: Grants | None = None
    """Grants and operators' requests from the pod's file; None if not read yet, or if it needs none."""
    asked: Mapping[str, str] = {}
    """Power states requested without a write to the disk, by owner; they end with this agent process."""
    grace_seconds: int = 30
    """The pod's own grace period."""
    crash_cap_seconds: float = 300.0
    outage: Outage | None = None
    snapshot: PodSnapshot | None = None
    volumes: VolumeFacts = VolumeFacts()
    units: dict[str, UnitFacts] = {}
    sandbox_failure: ActionFailure | None = None
    resize_failure: ActionFailure | None = None
    """Failure of the last resize of the pod as a whole."""
    stop_failure: ActionFailure | None = None
    paces: dict[str, Pace] = {}
    """Recent actions by key, so that one without effect is not repeated in an endless loop."""
    waiting: Waiting | None = None
    rejection: Rejection | None = None
    admitted: bool = False
    in_flight: frozenset[str] = frozenset()
    """Keys of the actions in flight."""
    stopping: dict[str, float] = {}
    """Container name → monotonic time at which the grace of its stop in flight ends."""
    changed_at: float | None = None
    """End of the last changing call; only a look that began later shows its effect."""
    unsettled_until: float | None = None
    look_wanted_at: float | None = None
    started_at: datetime | None = None
    """status.startTime: when the node accepted the pod."""
    deadline_at: float | None = None
    """activeDeadlineSeconds on the monotonic clock."""
    deadline_seconds: int | None = None
    """The activeDeadlineSeconds from which `deadline_at` was computed."""
    finished_init: bool = False
    directories_gone: bool = False
    unbound: bool = False
    recovered: bool = False
    previous_status: PodStatus | None = None

    def unit(self, name: str) -> UnitFacts:
        """Facts of one container name; empty ones if nothing is known."""
        return self.units.get(name, _NO_UNIT_FACTS)

    def of(self, kind: type[W]) -> W | None:
        """The workload's facts if they are of type `kind`; None if the pod is of another workload."""
        return self.own if isinstance(self.own, kind) else None

    def is_started(self, container: Container, unit: UnitSummary) -> bool:
        """Return True if the unit lives, its postStart hook is done and its startup probe passed."""
        if not unit.state.is_alive:
            return False
        known = self.unit(container.name)
        if known.hook_unit == unit.id and known.hook in _OPEN_HOOKS:
            return False
        if container.startup_probe is None:
            return True
        return known.probes is not None and known.probes.unit_id == unit.id and known.probes.startup is True

    def newest(self, name: str) -> UnitSummary | None:
        """The container's newest unit in the last snapshot of the runtime; None if there is none."""
        if self.snapshot is None:
            return None
        return next((unit for unit in self.snapshot.units if unit.name == name), None)


_NO_UNIT_FACTS = UnitFacts()
