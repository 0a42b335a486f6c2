"""Facts of one pod: its last state seen on the runtime, and the results of the agent's own actions for it.

`plan_pod(desired, facts, now)` plans from these values only; `build_status` also reads the node's identity. Facts
are frozen; `results.apply` returns a changed copy. Monotonic times are floats in seconds. A unit is a container
or a virtual machine.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Self, TypeVar

import msgspec

from kubeletx.api import ImageStatus, PodUid, RuntimeName, UnitId, UnitSummary
from kubeletx.kube.types.core import Container, Pod, PodStatus, ResourceRequirements
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from .sources import BUILT_IN, SourceTraits


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the frozen structs in this file and of similar ones about pods and the node."""


class Now(Fact, frozen=True, kw_only=True):
    """One moment on both clocks. `wall`: timezone-aware UTC, may jump. `mono`: monotonic seconds.

    `draw`: a random number from 0 to 1, for the jitter of a back-off that begins at this moment.
    """

    wall: datetime
    mono: float
    draw: float = 0.5


class Deletion(Fact, frozen=True, kw_only=True):
    """Request to end the pod. `requested_at`: monotonic. A later request may only shorten `grace_seconds`.

    `reason` and `message`: for the pod's status if the node ended the pod (Evicted, DeadlineExceeded, ...); empty
    if the pod was deleted. `force`: do not wait for a runtime that does not answer. `over_own_limit`: the
    pod exceeded one of its own limits, so it gets no DisruptionTarget condition. See docs/kubelet-parity.md, row T4.
    `has_succeeded`: a pod that the node ended becomes Succeeded, not Failed: its work is done.
    """

    requested_at: float
    grace_seconds: int
    force: bool = False
    reason: str = ""
    message: str = ""
    over_own_limit: bool = False
    has_succeeded: bool = False


class DesiredPod(Fact, frozen=True, kw_only=True):
    """Desired state of a pod, as its source (API server, manifest file, ...) last delivered it.

    `problem`: error text if the manifest has become invalid, else empty; the pod keeps running. `held_until`: set
    for a pod that the agent found at its start and that no source has delivered yet. Until this monotonic time
    nothing is started or changed for the pod. None: a source has delivered it.
    """

    uid: PodUid
    pod: Pod
    source: str
    spec_hash: str
    deletion: Deletion | None = None
    problem: str = ""
    held_until: float | None = None
    source_traits: SourceTraits | None = None
    """Traits of the pod's source; None: the built-in source with the name `source`."""

    @property
    def traits(self) -> SourceTraits:
        """Treatment of pods of this source, for example whether they get mirror pods or may be evicted."""
        return self.source_traits or BUILT_IN.of(self.source)

    @property
    def ref(self) -> str:
        """The pod as ``namespace/name``, for logs."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def is_ending(self) -> bool:
        """True if the pod is being deleted. False if it runs, or if only the node ended it (deadline, eviction)."""
        return self.deletion is not None and not self.deletion.reason


class ActionFailure(Fact, frozen=True, kw_only=True):
    """Last failure of an action. `reason`: the reason shown in a container's Waiting state.

    `retry_at`: monotonic time of the next try; None: no retry before the pod or the failed request changes.
    `delay_seconds`: the present back-off delay, without jitter. `count`: failures in a row.
    """

    reason: str
    message: str
    retry_at: float | None
    delay_seconds: float = 0.0
    count: int = 1


class Waiting(Fact, frozen=True, kw_only=True):
    """Reason that a pod waits before it is assigned to a runtime (DECISIONS 5 in docs/decisions/answers.md).

    `reason`: RuntimeNotFound, RuntimeCordoned, RuntimeNotReady, or the reason given by an admission review or by
    the preemption of other pods.
    """

    reason: str
    message: str


class Rejection(Fact, frozen=True, kw_only=True):
    """Final refusal to run a pod: it becomes Failed with this reason (docs/kubelet-parity.md, row A2)."""

    reason: str
    message: str


class HookState(enum.Enum):
    """State of a container's postStart hook; NONE: there is no hook to run.

    While it is PENDING, RUNNING or FAILED, the container does not count as started.
    """

    NONE = "none"
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The agent crashed after the hook began. The hook is not repeated, and the container counts as started."""


class RestartBackoff(Fact, frozen=True, kw_only=True):
    """Crash-loop back-off of one container. `delay_seconds`: time between its next exit and the start after it.

    `updated_at`: monotonic time of the restart that wrote this entry. See `backoff` and docs/kubelet-parity.md,
    row B1.
    """

    delay_seconds: float
    updated_at: float


class ProbeFacts(Fact, frozen=True, kw_only=True):
    """Latest outcome of each probe of one container or machine. None: there is no such probe, or no outcome yet.

    Without an outcome, readiness counts as False, liveness as True and startup as unknown (docs/kubelet-parity.md,
    row P2).
    """

    unit_id: UnitId
    boot: str = ""
    """Identifier of the probed boot, from `runs.boot_of`; outcomes of an earlier boot are discarded."""
    readiness: bool | None = None
    liveness: bool | None = None
    startup: bool | None = None
    message: str = ""


_OPEN_HOOKS = (HookState.PENDING, HookState.RUNNING, HookState.FAILED)


class UnitFacts(Fact, frozen=True, kw_only=True):
    """Facts of one container, over all its restarts, that the runtime does not report."""

    failure: ActionFailure | None = None
    """Failure of the container's last create or start; None if it succeeded."""
    image: ImageStatus | None = None
    """The image's status in the image store of the pod's runtime; None if it is missing or not checked yet."""
    image_failure: ActionFailure | None = None
    backoff: RestartBackoff | None = None
    exited_at: float | None = None
    """Monotonic time at which the newest unit ended, from its finish time; None if it was not seen ended."""
    hook: HookState = HookState.NONE
    hook_unit: UnitId | None = None
    probes: ProbeFacts | None = None
    resize_failure: ActionFailure | None = None
    killed: str = ""
    """Reason of the `StopUnit` that stopped the newest unit for a restart; empty if there was none."""
    termination_messages: dict[UnitId, str] = {}
    """Termination messages of ended units, read from their file or the end of their log."""
    restarts_before: int = 0
    """Restart count of the container's next run by its log files; used if the runtime no longer has its units."""


class VolumeFacts(Fact, frozen=True, kw_only=True):
    """State of the pod's volumes. `ready`: all are prepared on the node. `released`: none is left on the node.

    `stale_at`: monotonic time of the last change of config maps, secrets or pod fields that is not written to the
    volumes yet; until then containers see the old content. None: the volumes are up to date. `failure`: of the last
    preparation; `release_failure`: of the last release.
    """

    ready: bool = False
    stale_at: float | None = None
    failure: ActionFailure | None = None
    release_failure: ActionFailure | None = None
    released: bool = False


class Outage(Fact, frozen=True, kw_only=True):
    """Outage of the pod's runtime: it does not answer since `since`.

    All other facts stay as last seen (DECISIONS 24 in docs/decisions/answers.md).
    """

    since: datetime
    reason: str
    message: str


class RepeatCount(Fact, frozen=True, kw_only=True):
    """Runs of one action in a row that changed nothing: their number (`count`), and monotonic time of the last (`at`).

    `cancelled`: how many of them a plan cancelled. See `repeats`.
    """

    count: int
    at: float
    cancelled: int = 0


class Granted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CPU and memory granted to one container.

    `restart`: unit `unit_id` must be restarted to apply them. `before`: what the unit has until then; None: unknown.
    """

    unit_id: UnitId
    resources: ResourceRequirements
    restart: bool = False
    before: ResourceRequirements | None = None


class Grants(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources granted by in-place resizes of one pod, and requested restarts, from its overrides file.

    Subclass `PodOverrides` adds the other requests of operators.
    """

    granted: dict[str, Granted] = {}
    """Container name → granted resources. A container that is not listed has the resources of its creation."""
    granted_pod: ResourceRequirements | None = None
    """Granted pod-level CPU and memory; None: the pod has the resources of its creation."""
    restarts: dict[str, UnitId] = {}
    """Container name → unit that a user wants to be restarted."""


class Doubt(Fact, frozen=True, kw_only=True):
    """Parts of the pod that the last reads of its state lacked. `looks`: number of these reads. See `plan.doubt`."""

    missing: frozenset[str]
    looks: int


class WorkloadFacts(Fact, frozen=True, kw_only=True):
    """Base of the facts that only one kind of workload has, such as virtual machines.

    The base class itself is used for pods of plain containers, which have no such facts.
    """

    reboots: ClassVar[bool] = False
    """True if a unit can reboot and stay the same unit. Only the unit's status shows a reboot, no list of units."""
    has_own_kernel: ClassVar[bool] = False
    """True if the pod is one unit with its own kernel and root disk, outside the node's cgroups."""
    noun: ClassVar[str] = "container"
    """A unit of the pod, in messages."""
    no_ephemeral: ClassVar[str] = ""
    """Reason that the workload does not support ephemeral containers; empty if it does."""

    def edited(self) -> Self:
        """Return the facts to use after a user edited the pod: failures are dropped, so that they are retried."""
        return self


_CONTAINERS = WorkloadFacts()
W = TypeVar("W", bound=WorkloadFacts)


class PodFacts(Fact, frozen=True, kw_only=True):
    """All facts about one pod.

    `unsettled_until`: monotonic time until which a call that timed out may still take effect. Until the runtime
    was queried after this time, nothing is changed and the pod does not count as removed (rule 8 of
    docs/architecture.md). `look_wanted_at`: monotonic time of the next planned query of the runtime; None: none is
    planned. `recovered`: the pod existed before this agent process. `previous_status`: the pod status that this
    process, or an earlier one, published last.
    """

    runtime: RuntimeName | None = None
    runtime_ready: bool = False
    network_ready: bool = False
    network_problem: str = ""
    """The runtime's message on why its network is not ready; empty if it is ready."""
    bind_wanted: bool = True
    """True if a `Bind` may be tried: none was tried yet, the last one failed, or a runtime or the pod changed since."""
    expects_address: bool = True
    """True if the runtime gives the pod an address on the pod network."""
    image_before_sandbox: bool = False
    """True if the runtime needs the images before it creates the sandbox."""
    own: WorkloadFacts = _CONTAINERS
    """Facts that only the pod's kind of workload has; an empty object for plain containers."""
    overrides: Grants | None = None
    """Granted resources and operators' requests from the pod's overrides file; None if the file was not read."""
    asked: Mapping[str, str] = {}
    """Requested power states by the name of the requester. They are kept in memory only."""
    grace_seconds: int = 30
    """The pod's own grace period."""
    crash_cap_seconds: float = 300.0
    outage: Outage | None = None
    snapshot: PodSnapshot | None = None
    doubt: Doubt | None = None
    volumes: VolumeFacts = VolumeFacts()
    units: dict[str, UnitFacts] = {}
    sandbox_failure: ActionFailure | None = None
    resize_failure: ActionFailure | None = None
    """Failure of the last resize of the pod-level resources; None if it succeeded."""
    bind_failure: ActionFailure | None = None
    stop_failure: ActionFailure | None = None
    overrides_failure: ActionFailure | None = None
    """Failure of the last `ReadOverrides` or `DropOverride` that failed; its back-off delays both."""
    repeats: dict[str, RepeatCount] = {}
    """Repeats of recent actions, by the key of `repeats`, so that none without effect is repeated endlessly."""
    waiting: Waiting | None = None
    rejection: Rejection | None = None
    admitted: bool = False
    in_flight: frozenset[str] = frozenset()
    """Keys of the actions in flight."""
    revocable: frozenset[str] = frozenset()
    """Those keys in flight whose action may be cancelled by a plan (`Action.revocable`)."""
    stopping: dict[str, float] = {}
    """Container name → monotonic time at which the grace period of its running stop ends."""
    probes_held: frozenset[str] = frozenset()
    """Names of the containers that an action in flight may pause, so that their probes wait."""
    has_sessions: bool = False
    """True if clients use the pod, so that it must be evacuated before it ends. Read only for pods that end."""
    is_evacuated: bool = False
    """True if `Evacuate` has ended; it is not repeated."""
    changed_at: float | None = None
    """Monotonic end of the last call that changed the pod; only a query begun later shows the effect."""
    unsettled_until: float | None = None
    look_wanted_at: float | None = None
    started_at: datetime | None = None
    """Value of status.startTime: when the node accepted the pod."""
    deadline_at: float | None = None
    """Monotonic time at which activeDeadlineSeconds expires; None: the pod has no deadline."""
    deadline_seconds: int | None = None
    """The activeDeadlineSeconds from which `deadline_at` was computed."""
    finished_init: bool = False
    directories_gone: bool = False
    unbound: bool = False
    recovered: bool = False
    previous_status: PodStatus | None = None

    @property
    def is_in_doubt(self) -> bool:
        """True if a call changed the pod, or may have, after the last look at it, and another look is due."""
        looks = self.look_wanted_at is not None or "look" in self.in_flight
        looked_at = self.snapshot.looked_at if self.snapshot is not None else 0.0
        return looks and self.changed_at is not None and looked_at < self.changed_at

    def unit(self, name: str) -> UnitFacts:
        """Return the facts of the container with this name; empty facts if nothing is known."""
        return self.units.get(name, _NO_UNIT_FACTS)

    def of(self, kind: type[W]) -> W | None:
        """Return the workload's facts if they are of type `kind`; None if the pod is of another workload."""
        return self.own if isinstance(self.own, kind) else None

    def is_started(self, container: Container, unit: UnitSummary) -> bool:
        """Return True if the container counts as started. `unit`: the container on the runtime.

        It must be alive, and its postStart hook and startup probe, if any, must have succeeded.
        """
        if not unit.state.is_alive:
            return False
        known = self.unit(container.name)
        if known.hook_unit == unit.id and known.hook in _OPEN_HOOKS:
            return False
        if container.startup_probe is None:
            return True
        return known.probes is not None and known.probes.unit_id == unit.id and known.probes.startup is True

    def newest(self, name: str) -> UnitSummary | None:
        """Return the container's newest unit on the runtime as last seen; None if there is none."""
        if self.snapshot is not None:
            for unit in self.snapshot.units:
                if unit.name == name:
                    return unit
        return None


_NO_UNIT_FACTS = UnitFacts()
