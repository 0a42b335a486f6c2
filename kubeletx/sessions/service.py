"""`Sessions`: all sessions of the node, opened locally or by FornaxCores.

    opener (command, FornaxCore) ─► open, close, wake, rest ─► SessionActor ─► Instance.send ─► application
    application ─► Instance.received ─► SessionActor ─► listeners (metadata, FornaxCore link, usage)
    pods: status of each pod ─► pod_changed;  evacuate before a pod stops;  power requests ─► PodManager.ask_power

Sessions live in memory and are stored soon after each change. The pod of an open session runs; when the last session
has ended, the pod's own rest state, or the one requested by `rest`, applies again. A pod that may still hold an ended
session, since its application did not answer, is ended and never serves another one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, Conflict, InvalidConfig, NotFound, PodUid, Unavailable
from kubeletx.api.names import SESSIONS
from kubeletx.api.waiting import first_of
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.pods import FINAL, DesiredPod, Evacuation, PodFacts, PodManager, PodWorker, has_ended
from kubeletx.pods.workloads.power import STANDING_BY, Power

from .actor import Close, Ended, SessionActor
from .instance import Instance
from .model import OPENING, OpenRequest, Reason, Session, SessionLimits, new_session
from .records import RETRY_SECONDS, InstanceRow, SessionRecords

log = structlog.get_logger(__name__)

Listener = Callable[[Session], None]
"""Called with each changed session; it must return quickly."""
InstanceListener = Callable[[Instance], None]
"""Called when an instance is new, has connected, or is gone (`Instance.is_gone`)."""

_OWNER: Final = "sessions"
_HOUSEKEEPING_SECONDS: Final = 60.0
LIVENESS_TIMEOUT: Final = "LivenessTimeout"
SESSION_CLOSED: Final = "SessionClosed"


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of this node. `is_ending`: it is being deleted, or has ended."""

    pod: Pod
    is_ending: bool


class PodAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Access of sessions to pods.

    `find`: finds a pod by ``namespace/name``. `get`: finds a pod by UID. `ask_power`: `PodManager.ask_power`. `end`:
    ends a pod as (uid, reason, message): as Succeeded for SessionClosed (a session with kills_instance has ended), as
    Failed for LivenessTimeout, OpenTimeout and CloseTimeout.
    """

    find: Callable[[str], PodView | None]
    get: Callable[[PodUid], PodView | None]
    ask_power: Callable[[PodUid, Power | None], None]
    end: Callable[[PodUid, str, str], None]


def has_sessions(pod: Pod) -> bool:
    """Return True if the application in the pod serves sessions."""
    return pod.metadata.annotations.get(SESSIONS) == "true"


def access_to(manager: PodManager) -> PodAccess:
    """Make the access to the pods of a pod manager."""

    def view(worker: PodWorker | None) -> PodView | None:
        if worker is None:
            return None
        desired = worker.desired
        is_ending = desired.deletion is not None or has_ended(desired, worker.facts)
        return PodView(pod=desired.pod, is_ending=is_ending)

    def end(uid: PodUid, reason: str, message: str) -> None:
        has_succeeded = reason == SESSION_CLOSED
        manager.active.end(uid, reason=reason, message=message, has_succeeded=has_succeeded)

    return PodAccess(
        find=lambda pod_id: view(manager.find(*pod_id.split("/", 1))),
        get=lambda uid: view(manager.workers.get(uid)),
        ask_power=lambda uid, power: manager.ask_power(uid, power, _OWNER),
        end=end,
    )


class Sessions:
    """All sessions and instances of the node."""

    def __init__(
        self, *, pods: PodAccess, records: SessionRecords, clock: Clock, limits: SessionLimits | None = None
    ) -> None:
        self.repaired = Counter(instances=0)
        """Instances whose pods were gone without a notice, since the start."""
        self._pods = pods
        self._records = records
        self._clock = clock
        self._limits = limits or SessionLimits()
        self._actors: dict[str, SessionActor] = {}
        """Sessions that have not ended, by ID."""
        self._over: dict[str, Session] = {}
        self._instances: dict[PodUid, Instance] = {}
        self._listeners: list[Listener] = []
        self._instance_listeners: list[InstanceListener] = []
        self._liveness: dict[PodUid, Callable[[], None]] = {}
        """Functions that cancel the liveness time-outs of new instances."""
        self._missed: dict[PodUid, tuple[DesiredPod, PodFacts, PodStatus]] = {}
        """Last status of each pod that changed before the stored instances were loaded, with its first facts."""
        self._group: asyncio.TaskGroup | None = None
        self.removed = 0
        """Ended sessions that housekeeping removed since the start."""

    # --- views --------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` at each change of a session's state, clients or silence."""
        self._listeners.append(listener)

    def subscribe_instances(self, listener: InstanceListener) -> None:
        """Call `listener` when an instance is new, has connected, or is gone."""
        self._instance_listeners.append(listener)

    @property
    def is_loaded(self) -> bool:
        """True once stored sessions are known."""
        return self._records.is_loaded

    def find(self, id: str) -> Session | None:
        """Return the session; None if it is unknown. The last ended sessions are known for ten minutes."""
        actor = self._actors.get(id)
        return actor.session if actor is not None else self._over.get(id)

    def _known(self, id: str) -> Session | None:
        """Return the session; None if there is none. Raises Unavailable if it may be stored and is not loaded yet."""
        session = self.find(id)
        if session is None and not self.is_loaded:
            raise Unavailable(f"session {id}: stored sessions cannot be read now; try again later")
        return session

    def all(self) -> tuple[Session, ...]:
        """Return all sessions, with the last ones that ended in the last ten minutes, in order of their end."""
        return (*(actor.session for actor in self._actors.values()), *self._over.values())

    def of_pod(self, uid: PodUid) -> tuple[Session, ...]:
        """Return the sessions of the pod that have not ended."""
        instance = self._instances.get(uid)
        return tuple(actor.session for actor in instance.actors.values()) if instance is not None else ()

    def instance(self, uid: PodUid) -> Instance | None:
        return self._instances.get(uid)

    def instances(self) -> tuple[Instance, ...]:
        return tuple(self._instances.values())

    # --- requests -----------------------------------------------------------------------------------

    async def open(self, request: OpenRequest) -> Session:
        """Accept a session and wake its pod; the returned session is STARTING.

        A repeated request returns the session that the first one made. Raises InvalidConfig for an invalid request,
        NotFound if the pod is not on this node, and Conflict if the pod ends, has too many sessions or too much data of
        sessions, or the ID is taken by a session with another spec.
        """
        request.check()
        existing = self.find(request.id)
        if existing is not None and _is_repeated(request, existing):
            return existing
        pod = self._pods.find(request.pod_id)
        if pod is None:
            raise NotFound(f"session {request.id}: pod {request.pod_id} is not on this node")
        known = self._instances.get(pod.pod.uid)
        if pod.is_ending or (known is not None and known.is_ending):
            raise Conflict(f"session {request.id}: pod {request.pod_id} is ending; use another pod")
        instance = known or self.ensure_instance(pod.pod)
        self._check_room(request, instance)
        session = new_session(request, instance.uid, self._clock.now())
        self._add(session, instance)
        self._ask(instance)
        self._published(session)
        log.info("Opened session", session=session.id, pod=session.pod_id)
        return session

    def _check_room(self, request: OpenRequest, instance: Instance) -> None:
        """Raise Conflict if the instance has as many sessions, or as much data of sessions, as it may have."""
        has = f"session {request.id}: pod {request.pod_id} has"
        if len(instance.actors) >= self._limits.sessions_per_pod:
            raise Conflict(
                f"{has} {len(instance.actors)} sessions, which is the limit; close one or use another pod"
            )
        used, most = instance.data_bytes, self._limits.data_bytes_per_pod
        if used + len(request.data) > most:
            raise Conflict(
                f"{has} sessions with {used} bytes of data, and {len(request.data)} more exceed the limit of {most}; "
                "close one, use another pod, or send less data"
            )

    async def close(self, id: str, grace_seconds: float | None = None) -> Session:
        """Begin to close the session, and return it. Does nothing more if it is closing or has ended.

        `grace_seconds`: time for the instance; None: the session's own. A repeated call may shorten it. Raises
        NotFound, InvalidConfig for a negative time, and Unavailable while stored sessions are not loaded.
        """
        session = self._known(id)
        if session is None:
            raise NotFound(f"session {id} is not on this node")
        if grace_seconds is not None and not grace_seconds >= 0:
            raise InvalidConfig(
                obj=f"session {id}", field="grace_seconds", problem=f"{grace_seconds:g}", fix="use 0 or more"
            )
        if id in self._actors:
            self._actors[id].put(Close(grace_seconds=grace_seconds))
        return session

    def wake(self, uid: PodUid) -> None:
        """Request that the pod runs, also without sessions; stored. Raises NotFound if it is not on this node."""
        self._request(uid, Power.RUNNING)

    def rest(self, uid: PodUid, power: Power = Power.HIBERNATED) -> None:
        """Request that the pod is on standby or hibernated while it has no sessions; stored. Raises NotFound."""
        if power not in STANDING_BY:
            fix = f"use {' or '.join(one.value for one in STANDING_BY)}"
            raise InvalidConfig(obj=f"pod {uid}", field="power", problem=power.value, fix=fix)
        self._request(uid, power)

    def _request(self, uid: PodUid, power: Power) -> None:
        pod = self._pods.get(uid)
        if pod is None:
            raise NotFound(f"pod {uid} is not on this node")
        instance = self.ensure_instance(pod.pod)
        instance.row = replace(instance.row, request=power.value)
        self._records.note_instance(instance.row)
        self._ask(instance)

    async def evacuate(self, uid: PodUid, deadline: float) -> None:
        """Close all sessions of the pod and accept no new ones; return when they have ended.

        `deadline`: monotonic time at which sessions that the instance has not closed count as ended.
        """
        instance = self._instances.get(uid)
        if instance is None:
            return
        instance.is_ending = True
        actors = tuple(instance.actors.values())
        left = max(0.0, deadline - self._clock.monotonic())
        for actor in actors:
            actor.put(Close(grace_seconds=left, until=deadline, reason=Reason.EVACUATED))
        if actors:
            await first_of("evacuation", _all_ended(actors), self._clock.sleep(left + 1.0))

    def evacuation(self) -> Evacuation:
        """Return the hook by which the pods' workers evacuate sessions."""
        return Evacuation(is_needed=lambda uid: bool(self.of_pod(uid)), run=self.evacuate)

    # --- instances ----------------------------------------------------------------------------------

    def ensure_instance(self, pod: Pod) -> Instance:
        """Return the instance of the pod; make it if the pod has none."""
        instance = self._instances.get(pod.uid)
        if instance is None:
            row = InstanceRow(uid=pod.uid, pod_id=pod.ref, has_sessions=has_sessions(pod))
            instance = self._restore(row)
            self._records.note_instance(row)
            self._ask(instance)
            self._tell(instance)
        return instance

    def _restore(self, row: InstanceRow) -> Instance:
        instance = Instance(
            row,
            limits=self._limits,
            find=self._known,
            changed=self._connected,
            note_unconfirmed=self._records.note_unconfirmed,
        )
        self._instances[row.uid] = instance
        return instance

    def _connected(self, instance: Instance) -> None:
        self._records.note_instance(instance.row)
        self._stop_liveness(instance.uid)
        self._ask(instance)
        self._tell(instance)

    def _tell(self, instance: Instance) -> None:
        for listener in self._instance_listeners:
            listener(instance)

    def _ask(self, instance: Instance) -> None:
        """Request the power state that the instance needs, if it has changed."""
        power = instance.power
        if power is instance.asked or not (self.is_loaded or instance.actors):
            return  # before the stored instance is loaded, only a session is a reason to wake the pod
        try:
            self._pods.ask_power(instance.uid, power)
        except NotFound:
            return  # its worker is gone or not there yet; the next status of the pod asks again
        instance.asked = power

    def pod_changed(self, desired: DesiredPod, facts: PodFacts, status: PodStatus | None) -> None:
        """Take a new status of a pod, see `StatusBoard`. `status` None: the pod is gone."""
        _, facts, _ = self._missed.pop(desired.uid, (desired, facts, status))
        if status is not None and not self.is_loaded:
            self._missed[desired.uid] = desired, facts, status
            return
        instance = self._instances.get(desired.uid)
        if instance is None:
            # Without this, a pod that outlives the loss of the database could not connect.
            is_ours = has_sessions(desired.pod)
            if not is_ours or status is None or status.phase in FINAL or desired.deletion is not None:
                return
            instance = self.ensure_instance(desired.pod)
        if status is None:
            self._drop(instance)
            return
        if status.phase in FINAL:
            instance.is_ending = True
            self._end_all(instance, f"pod {instance.pod_id} has ended: {status.phase}")
            return
        running = _running(status)
        if not instance.containers and facts.previous_status is not None:
            # After a restart this is the stored status: containers may have ended while no agent ran.
            instance.containers = _running(facts.previous_status)
        if instance.replaced(running):
            self._records.note_instance(instance.row)
            for actor in instance.actors.values():
                actor.put(Ended(f"the containers of pod {instance.pod_id} have ended", is_restart=True))
        if running and instance.has_sessions and not instance.row.was_connected:
            self._start_liveness(instance)
        self._ask(instance)

    def _end_all(self, instance: Instance, message: str) -> None:
        instance.detach()
        self._stop_liveness(instance.uid)
        for actor in instance.actors.values():
            actor.put(Ended(message))

    def _drop(self, instance: Instance) -> None:
        """Forget an instance whose pod is gone; its sessions end."""
        instance.is_ending = instance.is_gone = True
        self._end_all(instance, f"pod {instance.pod_id} is gone")
        del self._instances[instance.uid]
        instance.confirm_all()
        self._records.forget_instance(instance.uid)
        self._tell(instance)

    def _start_liveness(self, instance: Instance) -> None:
        if instance.uid not in self._liveness:
            due = self._clock.monotonic() + self._limits.liveness_seconds
            self._liveness[instance.uid] = self._clock.call_at(due, lambda: self._not_live(instance))

    def _stop_liveness(self, uid: PodUid) -> None:
        cancel = self._liveness.pop(uid, None)
        if cancel is not None:
            cancel()

    def _not_live(self, instance: Instance) -> None:
        message = f"the application did not connect to the session service within {self._limits.liveness_seconds:g} s"
        self._end_pod(instance, LIVENESS_TIMEOUT, message)

    def _end_pod(self, instance: Instance, reason: str, message: str) -> None:
        instance.is_ending = True
        instance.row = replace(instance.row, end_reason=reason, end_message=message)
        self._records.note_instance(instance.row)
        self._pods.end(instance.uid, reason, message)

    # --- life of a session --------------------------------------------------------------------------

    def _add(self, session: Session, instance: Instance) -> None:
        actor = SessionActor(
            session,
            is_null=not instance.has_sessions,
            clock=self._clock,
            limits=self._limits,
            send=instance.send,
            publish=self._published,
        )
        self._over.pop(session.id, None)
        self._actors[session.id] = instance.actors[session.id] = actor
        self._launch(actor)

    def _launch(self, actor: SessionActor) -> None:
        if self._group is not None:
            self._group.create_task(_live(actor), name=f"session {actor.session.id}")

    def _published(self, session: Session) -> None:
        instance = self._instances.get(session.pod_uid)
        if session.is_over:
            self._keep(session)
            self._actors.pop(session.id, None)
            if instance is not None:
                instance.actors.pop(session.id, None)
        self._records.note(session)
        self._tell_session(session)
        if session.is_over:
            log.info("Session ended", session=session.id, pod=session.pod_id, reason=session.reason)
            if instance is not None:
                self._ended(session, instance)

    def _tell_session(self, session: Session) -> None:
        for listener in self._listeners:
            try:
                listener(session)
            except Exception:
                log.exception("Listener of sessions failed with a bug", session=session.id)

    def _keep(self, session: Session) -> None:
        """Keep an ended session, and forget the oldest one if there are too many."""
        self._over.pop(session.id, None)
        self._over[session.id] = session
        if len(self._over) > self._limits.kept_sessions:
            self._forget(next(iter(self._over)))

    def _forget(self, session_id: str) -> None:
        del self._over[session_id]
        self._records.forget(session_id)
        self.removed += 1

    def _ended(self, session: Session, instance: Instance) -> None:
        """Withdraw the power request of an ended session, or end its pod."""
        is_answered = session.reason not in (Reason.OPEN_TIMEOUT, Reason.CLOSE_TIMEOUT)
        # An instance that has never connected got no message; its liveness time-out decides.
        if not is_answered and instance.has_sessions and instance.row.was_connected:
            instance.set_unconfirmed(session.id, True)
        elif is_answered:
            instance.set_unconfirmed(session.id, False)
        if instance.is_ending:
            return
        if session.kills_instance:
            self._end_pod(instance, SESSION_CLOSED, f"session {session.id} has ended")
        elif not self._end_unconfirmed(instance, Reason.CLOSE_TIMEOUT if is_answered else session.reason):
            self._ask(instance)

    def _end_unconfirmed(self, instance: Instance, reason: str) -> bool:
        """End the pod and return True if its application may still hold an ended session, and has no other one."""
        if instance.is_ending or instance.actors or not instance.unconfirmed or not self.is_loaded:
            return False
        held = ", ".join(sorted(instance.unconfirmed))
        self._end_pod(instance, reason, f"the application may still hold sessions: {held}")
        return True

    # --- life of the room ---------------------------------------------------------------------------

    async def load(self) -> None:
        """Read stored sessions and instances. Sessions that began meanwhile are kept.

        If the database cannot be read now, `run` reads it later, and nothing is stored before.
        """
        stored = await self._records.load()
        if stored is None:
            return
        rows, sessions, unconfirmed = stored
        for row in rows:
            if (instance := self._instances.get(row.uid)) is None:
                self._restore(row)
            else:
                instance.merge(row)
                self._records.note_instance(instance.row)
        for uid, session_id in unconfirmed:
            if (instance := self._instances.get(uid)) is not None:
                instance.unconfirmed.add(session_id)
            else:
                self._records.note_unconfirmed(uid, session_id, False)
        for session in sorted(sessions, key=lambda one: one.closed_at or one.created_at):
            if self.find(session.id) is not None:
                continue
            instance = self._instances.get(session.pod_uid)
            if session.is_over:
                self._keep(session)
            elif instance is not None:
                self._add(session, instance)
            else:
                self._records.forget(session.id)

    def ask_again(self) -> None:
        """Repeat requests that end with the process: power states and ends of pods. Call it before the first plan.

        Sessions that were open on pods that are not on this node any more end.
        """
        for instance in tuple(self._instances.values()):
            self._ask(instance)
            if instance.row.end_reason:
                self._pods.end(instance.uid, instance.row.end_reason, instance.row.end_message)
            self._end_unconfirmed(instance, Reason.CLOSE_TIMEOUT)
            if self._pods.get(instance.uid) is None:
                for actor in instance.actors.values():
                    if actor.session.state not in OPENING:
                        actor.put(Ended(f"pod {instance.pod_id} is gone"))

    async def run(self) -> None:
        """Run all sessions until cancelled; they stay open in their instances."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._records.run(), name="session records")
            group.create_task(self._load_later(), name="load of sessions")
            for actor in self._actors.values():
                self._launch(actor)
            try:
                while True:
                    await self._clock.sleep(_HOUSEKEEPING_SECONDS)
                    self._keep_house()
            finally:
                self._group = None

    async def _load_later(self) -> None:
        """Go on with the stored sessions as soon as the database can be read, if it could not be read at the start."""
        while not self._records.is_loaded:
            await self._clock.sleep(RETRY_SECONDS)
            await self.load()
            if self.is_loaded:
                for missed in tuple(self._missed.values()):
                    self.pod_changed(*missed)
                self.ask_again()
                for session in self.all():
                    self._tell_session(session)

    def _keep_house(self) -> None:
        """Forget sessions that ended long ago, and instances whose pods never came back after a restart."""
        now = self._clock.now()
        for session in tuple(self._over.values()):
            ended_at = session.closed_at or session.created_at
            if (now - ended_at).total_seconds() >= self._limits.keep_seconds:
                self._forget(session.id)
        for instance in tuple(self._instances.values()):
            if self._pods.get(instance.uid) is None:
                log.warning("Reconciled", what="instances", object=instance.pod_id)
                self.repaired["instances"] += 1
                self._drop(instance)

    async def stop(self) -> None:
        """Cancel timers and write what is not stored yet. Call it when `run` has ended."""
        for uid in tuple(self._liveness):
            self._stop_liveness(uid)
        await self._records.close()


def _is_repeated(request: OpenRequest, existing: Session) -> bool:
    """Return True if the request was accepted before; False if its ID is free again. Raises Conflict."""
    is_same_object = bool(request.uid) and request.uid == existing.uid
    if is_same_object and existing.pod_id == request.pod_id:
        return True
    if existing.is_over and not is_same_object:
        return False
    if existing.has_spec_of(request) and not existing.is_over:
        return True
    raise Conflict(
        f"session {request.id} exists with another spec, on pod {existing.pod_id}; use another name"
    )


def _running(status: PodStatus) -> frozenset[str]:
    """Return the IDs of the running containers."""
    return frozenset(
        one.container_id
        for one in status.container_statuses
        if one.state is not None and one.state.running is not None and one.container_id
    )


async def _live(actor: SessionActor) -> None:
    """Run one session to its end; a bug in it ends only this session."""
    try:
        await actor.run()
    except Exception:
        log.exception("Session failed with a bug", session=actor.session.id)
        actor.fail()


async def _all_ended(actors: Iterable[SessionActor]) -> None:
    for actor in actors:
        await actor.ended.wait()
