"""`PodActor`: one task and one mailbox for each pod of a core.

    command of a core ─┐                                         ┌─► row in the database
    status of the pod ─┼─► mailbox ─► causes that hold ─► `step` ─┼─► pod source, sessions
    change of session ─┘                                         └─► `changed`, if a core sees a difference

Commands are carried out in their order. Everything else is looked at again after each input, so inputs of one kind count
once. A state that ends the pod is on the disk before the pod is removed, and the row is deleted when nothing is left:
after a crash at any point, the next start continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, Conflict, KubeletxError, NotFound, names
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.pods import FINAL, DesiredPod, PodFacts, PodManager, StatusBoard
from kubeletx.pods.workloads.standby.facts import StandbyFacts, find_standby
from kubeletx.sessions.model import FORNAX, OPEN, OpenRequest, Reason, Session
from kubeletx.sessions.service import Sessions

from ..mailbox import OnChange
from ..stubs import k8s_core_v1_pb2 as core
from .machine import ENDING, NEW, PodCause, PodState, step
from .ports import is_unused
from .records import CorePodRecords, PodRow
from .reports import CorePodView, PodFailure, PodReport, endpoints_of, is_awaited, view_of
from .source import is_here, start_pod

log = structlog.get_logger(__name__)

RECHECK_SECONDS: Final = 5.0
"""Interval of looks at a pod that ends, and of retries of database writes."""
_FREEZE_FAILED: Final = "FreezeFailed"
"""Reason of condition ``kubeletx.io/Standby`` of a pod that cannot be frozen."""
_HOPELESS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
    }
)
"""Reasons of a waiting container of a new pod after which the pod fails: its core starts another one elsewhere."""

Work = Callable[[], Awaitable[None]]


class CoreServices(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the agent, and settings of the node, for the pods of cores.

    `node`: identifier of the node, namespace/name. `node_name`: name in `spec.nodeName`. `host_ip`: address of the node
    for host ports. `liveness_seconds`: time in which the containers of a new pod must become ready once they were
    started. `is_port_free`: returns True if no program of the node uses the port.
    """

    clock: Clock
    manager: PodManager
    board: StatusBoard
    sessions: Sessions
    records: CorePodRecords
    node: str
    node_name: str
    host_ip: str
    liveness_seconds: float = 60.0
    is_port_free: Callable[[int], bool] = is_unused


class PodActor:
    """Life of one pod of a core, from its row to the deletion of the row."""

    def __init__(
        self,
        row: PodRow,
        pod: Pod,
        services: CoreServices,
        *,
        changed: OnChange,
        is_stored: bool,
    ) -> None:
        """`pod`: the pod as this node runs it. `changed`: called when a core must see the pod again.

        `is_stored`: the row is in the database, since the pod was created by an earlier process.
        """
        self.row, self.pod_id = row, row.pod_id
        self.pod = pod
        self._services = services
        self._changed = changed
        spec = core.Pod.FromString(row.spec)
        self.report = PodReport(spec, services.node)
        self.endpoints = endpoints_of(spec)
        self.is_stored = is_stored
        """True from the first write of the row on."""
        self.state = row.state
        self.status: PodStatus | None = row.status
        self.revision: int | None = None
        """Revision of the last report of the pod or one of its sessions; None: not reported by this process."""
        self.looked = asyncio.Event()
        """Set once the task has looked at the pod for the first time."""
        self._mailbox: asyncio.Queue[Work] = asyncio.Queue()
        self._is_look_queued = False
        self.is_begun = False
        """The pod is on the disk and with the pod manager, or has failed."""
        self._is_removed = False
        self._is_deleted = is_stored and row.state in ENDING
        self._is_ended_here = False
        self._can_rest = True
        """False if the pod's runtime cannot freeze it."""
        self._failure: PodFailure | None = None
        self._failure_cause = PodCause.FAILED
        self._note = ""
        self._has_late_session = False
        self._is_woken = False
        """True from a core's request to activate the pod until the pod has another state than ACTIVATING."""
        self._check_until: float | None = None
        self._cancel_timer: Callable[[], None] = lambda: None
        self._seen = self.view()

    def view(self) -> CorePodView:
        """Return the view of the pod for its cores."""
        return view_of(
            self.state,
            self.status,
            failure=self._failure,
            note=self._note,
            is_deleted=self._is_deleted,
            sessions=(one.id for one in self._live() if one.origin == FORNAX),
        )

    def present_row(self) -> PodRow:
        """Return the row with the present state and the last report."""
        revision = self.row.revision if self.revision is None else self.revision
        return replace(self.row, state=self.state, revision=revision, status=self.status)

    # --- inputs; all return at once -----------------------------------------------------------------

    def terminate(self) -> None:
        """End the pod, as a core has requested."""
        self._put(self._terminate)

    def hibernate(self) -> None:
        """Let the pod stand by without sessions, as a core has requested."""
        self._put(self._hibernate)

    def activate(self) -> None:
        """Wake the pod without a session, as a core has requested."""
        self._put(self._activate)

    def open_session(self, request: OpenRequest, answer: Callable[[KubeletxError | None], None]) -> None:
        """Open a session on the pod. `answer`: called with None once it is accepted, or with the error."""
        self._put(lambda: self._open(request, answer))

    def close_session(self, session_id: str) -> None:
        """Begin to close a session of the pod."""
        self._put(lambda: self._close(session_id))

    def status_changed(self, desired: DesiredPod, facts: PodFacts, status: PodStatus | None) -> None:
        """Take the status of the pod, see `StatusBoard`; None: the pod manager has no such pod any more."""
        if status is not None:
            self.status = status
        self._is_ended_here = desired.deletion is not None
        self._can_rest = facts.runtime is None or facts.of(StandbyFacts) is not None
        self.look()

    def session_changed(self, session: Session) -> None:
        """Take a change of one of the pod's sessions."""
        if session.is_over and session.reason == Reason.OPEN_TIMEOUT and self.state is PodState.ACTIVATING:
            self._has_late_session = True
        self.look()

    def look(self) -> None:
        """Look at the pod again."""
        if not self._is_look_queued:
            self._is_look_queued = True
            self._put(self._looked)

    def begin(self) -> None:
        """Hand a stored pod over to the pod manager, before anything else is done for it; nothing is written."""
        if self._is_here() or self.row.state is PodState.CREATING:
            self._hand_over()
        elif self.row.is_daemon and self.row.state not in ENDING:
            self.state = PodState.CREATING
            self._hand_over()
        else:
            self.is_begun = True
            if self.row.state not in ENDING:
                self._failure = PodFailure(
                    "PodLost", "nothing of the pod was left when the node agent started"
                )

    # --- the task -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out commands until the pod is TERMINATED."""
        if not self.is_begun:
            await self._store_and_start()
        if self.state is PodState.LIVENESS_CHECKING:
            self._begin_check()  # the time begins again after a restart of the agent
        while True:
            await self._settle()
            self.looked.set()
            if self.state is PodState.TERMINATED:
                return
            work = await self._mailbox.get()
            try:
                await work()
            except KubeletxError as error:
                self._refuse(str(error))

    def _put(self, work: Work) -> None:
        self._mailbox.put_nowait(work)

    async def _looked(self) -> None:
        self._is_look_queued = False

    # --- commands -----------------------------------------------------------------------------------

    async def _store_and_start(self) -> None:
        """Store the pod, report it, and hand it over to the pod manager; a pod that cannot be stored fails.

        A core that has seen the pod expects it after a crash, too, so the row is on the disk first.
        """
        try:
            await self._services.records.insert(self.row)
        except KubeletxError as error:
            self._failure = PodFailure("NotStored", str(error))
            self.is_begun = True
            return
        self.is_stored = True
        self._tell()
        self._hand_over()

    def _hand_over(self) -> None:
        self.is_begun = True
        try:
            start_pod(self._services.manager, self.pod)
        except Conflict as error:
            self._failure = PodFailure(error.reason or "Conflict", str(error))

    async def _terminate(self) -> None:
        self._is_deleted = True
        self._note = ""

    async def _hibernate(self) -> None:
        if (obstacle := self._obstacle()) is not None:
            self._refuse(f"pod {self.pod_id} cannot hibernate: {obstacle}")
            return
        self._services.sessions.rest(self.row.uid)
        self._is_woken = False
        await self._keep_rest(True)

    def _obstacle(self) -> str | None:
        """Return why the pod cannot hibernate now; None if it can."""
        if self.row.is_daemon:
            return "daemon pods never stand by"
        if not self._can_rest:
            return "its runtime cannot freeze it"
        live = len(self._live())
        if live:
            return f"it has {live} open session{'s' if live > 1 else ''}"
        if self.state not in (PodState.RUNNING, PodState.HIBERNATING, PodState.STANDBY):
            return f"it is {self.state.value}"
        return None

    async def _activate(self) -> None:
        if self.state in ENDING:
            self._refuse(f"pod {self.pod_id} cannot be activated: it is {self.state.value}")
            return
        self._services.sessions.wake(self.row.uid)
        self._is_woken = self.state in (PodState.STANDBY, PodState.HIBERNATING)
        await self._keep_rest(False)

    async def _keep_rest(self, rests: bool) -> None:
        """Keep whether the pod rests without sessions, and report the pod, also if nothing changes."""
        self._note = ""
        self.row = replace(self.row, rests=rests)
        self._services.records.note_state(self.pod_id, self.row.uid, self.state, rests=rests)
        self._tell()

    async def _open(self, request: OpenRequest, answer: Callable[[KubeletxError | None], None]) -> None:
        if self.state in ENDING or self._is_deleted or self._failure is not None:
            answer(Conflict(f"pod {self.pod_id} is {self.state.value} and ends"))
            return
        try:
            await self._services.sessions.open(request)
        except KubeletxError as error:
            answer(error)
        else:
            answer(None)

    async def _close(self, session_id: str) -> None:
        try:
            await self._services.sessions.close(session_id)
        except NotFound:
            pass  # it has ended meanwhile, which was reported

    def _refuse(self, message: str) -> None:
        """Report that a command was not carried out."""
        if message != self._note:
            log.warning("Refused a command of a core", pod=self.pod_id, err=message)
        self._note = message
        self._tell()

    # --- changes ------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Follow the table of states as far as its causes hold, and report what a core sees differently."""
        self._find_failure()
        after = step(self.state, self._causes())
        if after is not self.state:
            await self._enter(after)
        if self.state in (PodState.EVACUATING, PodState.TERMINATING):
            self._remove()
            self._look_at(self._services.clock.monotonic() + RECHECK_SECONDS)
        self._tell_changes()
        if self.state is PodState.TERMINATED:
            self._cancel_timer()

    def _begin_check(self) -> None:
        self._check_until = self._services.clock.monotonic() + self._services.liveness_seconds
        self._look_at(self._check_until)

    def _look_at(self, monotonic: float) -> None:
        self._cancel_timer()
        self._cancel_timer = self._services.clock.call_at(monotonic, self.look)

    async def _enter(self, state: PodState) -> None:
        before = self.state
        try:
            if state is PodState.TERMINATED:
                if self.is_stored:
                    await self._services.records.delete(self.pod_id, self.row.uid)
            elif state in ENDING and before not in ENDING:
                await self._services.records.set_state(self.pod_id, self.row.uid, state, rests=self.row.rests)
            elif before in NEW:  # the runtime shows later states again after a crash: they are not written
                self._services.records.note_state(self.pod_id, self.row.uid, state, rests=self.row.rests)
        except KubeletxError as error:
            log.warning("Failed to store the state of a pod", pod=self.pod_id, err=str(error))
            if state is PodState.TERMINATED:
                return  # tried again; a row without a pod would start it at the next start of the agent
        self.state = state
        if state is PodState.LIVENESS_CHECKING:
            self._begin_check()
        self._has_late_session = False
        self._is_woken = self._is_woken and state is PodState.ACTIVATING
        log.info("Pod of a core changed", pod=self.pod_id, state=state.value, before=before.value)

    def _remove(self) -> None:
        """Let the pod manager end the pod, unless the node itself is ending it with a reason of its own."""
        is_final = self.status is not None and self.status.phase in FINAL
        if self._is_removed or not (self._is_deleted or self._failure is not None or is_final):
            return
        self._is_removed = True
        self._services.manager.remove(FORNAX, self.row.uid)

    def _tell_changes(self) -> None:
        """Report what a core sees differently."""
        before, self._seen = self._seen, self.view()
        if before != self._seen:
            self._changed(self.pod_id, soon=not is_awaited(before, self._seen))

    def _tell(self) -> None:
        self._seen = self.view()
        self._changed(self.pod_id)

    def _is_here(self) -> bool:
        return is_here(self._services.manager, self.row.uid)

    def _live(self) -> tuple[Session, ...]:
        return self._services.sessions.of_pod(self.row.uid)

    def _find_failure(self) -> None:
        """Set the reason for which the node must end the pod, if there is one and nothing ends it yet."""
        if self._failure is not None or self._is_deleted or self.state in ENDING:
            return
        if self.state in NEW and (found := _hopeless(self.status)) is not None:
            self._fail(PodCause.FAILED, found)
        elif self._is_late():
            limit = self._services.liveness_seconds
            text = f"containers were not ready within {limit:g} s after their start"
            self._fail(PodCause.CHECK_TIMEOUT, PodFailure("LivenessTimeout", text))
        elif self._has_late_session and not self._live():
            text = "the application did not report its first session as ready in time"
            self._fail(PodCause.CALLBACK_TIMEOUT, PodFailure("OpenTimeout", text))

    def _fail(self, cause: PodCause, failure: PodFailure) -> None:
        self._failure, self._failure_cause = failure, cause
        log.warning("Pod of a core failed", pod=self.pod_id, reason=failure.reason, err=failure.message)

    def _is_late(self) -> bool:
        if self.state is not PodState.LIVENESS_CHECKING or self._check_until is None or self._is_ready():
            return False
        return self._services.clock.monotonic() >= self._check_until

    def _is_ready(self) -> bool:
        return self.status is not None and any(
            one.type == names.POD_READY and one.status == "True" for one in self.status.conditions
        )

    def _causes(self) -> frozenset[PodCause]:
        status, live = self.status, self._live()
        standby = find_standby(status)
        is_frozen = standby is not None and standby.status == "True"
        is_failed = standby is not None and standby.status == "False" and standby.reason == _FREEZE_FAILED
        cannot_freeze = is_failed or not self._can_rest
        rests = self.row.rests and not live
        is_resting = is_frozen and not live and not self._is_woken  # perhaps requested by an operator
        is_final = status is not None and status.phase in FINAL
        is_open = any(one.state in OPEN for one in live)
        holds = {
            PodCause.GONE: self.is_begun and not self._is_here(),
            PodCause.ENDING: self._is_deleted or self._is_ended_here or is_final,
            self._failure_cause: self._failure is not None,
            PodCause.EXISTS: status is not None and _exists(status),
            PodCause.READY: self._is_ready() and not is_frozen and (not rests or cannot_freeze),
            PodCause.FROZEN: is_frozen,
            PodCause.WAKES: bool(live) or self._is_woken or not (rests or is_frozen),
            PodCause.ACTIVE: not is_frozen and not rests and (is_open or not live),
            PodCause.HIBERNATE: is_resting or (rests and not cannot_freeze),
            PodCause.STAYS_AWAKE: not rests or cannot_freeze,
            PodCause.EVACUATED: not live,
        }
        return frozenset(cause for cause, does_hold in holds.items() if does_hold)


def _exists(status: PodStatus) -> bool:
    """Return True if a regular container has started at least once."""
    return any(
        one.state.running is not None
        or one.state.terminated is not None
        or one.last_state.terminated is not None
        for one in status.container_statuses
    )


def _hopeless(status: PodStatus | None) -> PodFailure | None:
    """Return the failure of a new pod of which a container cannot start; None if there is none."""
    if status is None:
        return None
    for one in (*status.init_container_statuses, *status.container_statuses):
        waiting = one.state.waiting
        if waiting is not None and waiting.reason in _HOPELESS:
            return PodFailure(waiting.reason, f"container {one.name}: {waiting.message or waiting.reason}")
    return None
