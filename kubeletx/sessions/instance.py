"""`Instance`: a pod as the sessions see it: its connection, its open sessions, and the power state they need."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog
from msgspec.structs import replace

from kubeletx.api import PermissionDenied, PodUid
from kubeletx.pods.workloads.power import Power

from .actor import Attached, SessionActor
from .model import Session, SessionLimits
from .records import InstanceRow
from .stubs import session_service_pb2 as pb
from .wire import close_leftover, is_about_earlier, read_report

log = structlog.get_logger(__name__)
_LEFTOVERS_LIMIT: Final = 64


class OutgoingStream:
    """Queue of messages to one connection of an instance; iterate over it to take them. Ends once, see `end`.

    A full queue ends the stream and the instance has to connect again: the memory of an instance that does not read,
    such as a frozen or hostile one, cannot grow.
    """

    def __init__(self, limit: int = 400) -> None:
        """`limit`: most messages that wait."""
        self._limit = limit
        self._waiting: deque[pb.SessionMessage] = deque()
        self._news = asyncio.Event()
        self._sent = 0
        self.is_ended = False

    def send(self, message: pb.SessionMessage) -> bool:
        """Queue a message and return True. Without an identifier it gets the next one (1, 2, ...).

        Returns False if the stream has ended. A full queue ends it.
        """
        if self.is_ended or len(self._waiting) >= self._limit:
            self.end()
            return False
        self._sent += 1
        message.messageIdentifier = message.messageIdentifier or str(self._sent)
        self._waiting.append(message)
        self._news.set()
        return True

    def end(self) -> None:
        """Drop waiting messages and end the iteration."""
        self.is_ended = True
        self._waiting.clear()
        self._news.set()

    def __aiter__(self) -> OutgoingStream:
        return self

    async def __anext__(self) -> pb.SessionMessage:
        while not self._waiting:
            if self.is_ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()


class Instance:
    """A pod that has sessions, or on which a session was opened.

    Sessions of a pod without the annotation (`has_sessions` False) need no answer of its containers.
    """

    def __init__(
        self,
        row: InstanceRow,
        *,
        limits: SessionLimits,
        find: Callable[[str], Session | None],
        changed: Callable[[Instance], None],
        note_unconfirmed: Callable[[PodUid, str, bool], None],
    ) -> None:
        """`find`: finds a session of any pod by its ID; raises Unavailable if it may be stored and is not loaded yet.

        `changed`: called when the instance connects. `note_unconfirmed`: stores a change of `unconfirmed`.
        """
        self.row = row
        self._limits = limits
        self._find = find
        self._changed = changed
        self._note_unconfirmed = note_unconfirmed
        self.actors: dict[str, SessionActor] = {}
        """Sessions that have not ended, by ID."""
        self.is_ending = bool(row.end_reason)
        """True once sessions are evacuated or the pod has ended: no new session is accepted."""
        self.is_gone = False
        """True once the pod is gone from the node."""
        self.asked: Power | None = None
        """Power state that was last requested of the pod manager."""
        self.unconfirmed: set[str] = set()
        """IDs of ended sessions that the application may still hold, since it did not answer in time."""
        self.containers: frozenset[str] = frozenset()
        """IDs of the containers that ran at the last status."""
        self._stream: OutgoingStream | None = None
        self._leftovers: set[str] = set()

    @property
    def uid(self) -> PodUid:
        return self.row.uid

    @property
    def pod_id(self) -> str:
        return self.row.pod_id

    @property
    def has_sessions(self) -> bool:
        return self.row.has_sessions

    @property
    def is_connected(self) -> bool:
        """True while the application is connected; the connection survives a freeze."""
        return self._stream is not None and not self._stream.is_ended

    @property
    def data_bytes(self) -> int:
        """Bytes of the data of all sessions that have not ended."""
        return sum(len(actor.session.data) for actor in self.actors.values())

    @property
    def power(self) -> Power | None:
        """Power state that the sessions need: RUNNING, a state requested without a session, or None.

        A new instance runs until its application has connected, since a frozen one never would.
        """
        is_new = self.has_sessions and not self.row.was_connected
        if self.actors or is_new:
            return Power.RUNNING
        return Power(self.row.request) if self.row.request else None

    # --- the connection -----------------------------------------------------------------------------

    def attach(self) -> OutgoingStream:
        """Return the stream of a new connection, which replaces an earlier one.

        It begins with OPEN_SESSION for sessions that were not answered, and PING_SESSION for open ones. The caller
        ends it when the connection ends.
        """
        self.detach()
        self._stream = OutgoingStream(4 * self._limits.sessions_per_pod)
        self.row = replace(self.row, was_connected=True)
        for actor in self.actors.values():
            actor.put(Attached())
        self._changed(self)
        return self._stream

    def detach(self) -> None:
        """End the connection."""
        if self._stream is not None:
            self._stream.end()
        self._stream = None

    def send(self, message: pb.SessionMessage) -> bool:
        """Queue a message to the application and return True; False: it is not connected, or does not read."""
        if self._stream is None or self._stream.is_ended:
            return False
        if self._stream.send(message):
            return True
        log.warning("Ended the connection of an instance that does not read", pod=self.pod_id)
        return False

    def received(self, message: pb.SessionMessage) -> None:
        """Take a message of the application; returns at once.

        Raises InvalidConfig for an invalid message, PermissionDenied if the pod has no such session, and Unavailable
        while stored sessions are not loaded. Reports of closed sessions are always accepted: the published SDK repeats them forever. An application that holds a session
        that the node has ended or does not know is asked once to close it.
        """
        named = message.sessionIdentifier
        if named.podId not in ("", self.pod_id):
            raise PermissionDenied(f"pod {self.pod_id} must not report for pod {named.podId!r}")
        report = read_report(message, clients_limit=self._limits.clients_per_session)
        actor = self.actors.get(named.identifier)
        if actor is not None:
            if not is_about_earlier(message, actor.session):
                actor.put(report)
            return
        session = self._find(named.identifier)
        if session is not None and session.pod_uid != self.uid:
            raise PermissionDenied(f"pod {self.pod_id} has no session {named.identifier!r}")
        if report.state == pb.STATE_CLOSED:
            self.set_unconfirmed(named.identifier, False)
            return
        self._close_leftover(named.identifier)
        if session is None:
            raise PermissionDenied(f"pod {self.pod_id} has no session {named.identifier!r}")

    def _close_leftover(self, session_id: str) -> None:
        """Ask the application once to close a session that it still holds."""
        if session_id in self._leftovers or len(self._leftovers) >= _LEFTOVERS_LIMIT:
            return
        if self.send(close_leftover(self.pod_id, session_id)):
            self._leftovers.add(session_id)

    def set_unconfirmed(self, session_id: str, is_unconfirmed: bool) -> None:
        """Set and store whether the application may still hold an ended session."""
        if is_unconfirmed == (session_id in self.unconfirmed):
            return
        if is_unconfirmed:
            self.unconfirmed.add(session_id)
        else:
            self.unconfirmed.remove(session_id)
        self._note_unconfirmed(self.uid, session_id, is_unconfirmed)

    def confirm_all(self) -> None:
        """Note that the application holds no ended session."""
        for session_id in tuple(self.unconfirmed):
            self.set_unconfirmed(session_id, False)

    def merge(self, stored: InstanceRow) -> None:
        """Add the stored facts of an instance that was made before they were loaded."""
        now = self.row
        ended = now if now.end_reason else stored
        self.row = replace(
            now,
            was_connected=now.was_connected or stored.was_connected,
            request=now.request or stored.request,
            end_reason=ended.end_reason,
            end_message=ended.end_message,
        )
        self.is_ending = self.is_ending or bool(stored.end_reason)

    # --- the containers -----------------------------------------------------------------------------

    def replaced(self, containers: frozenset[str]) -> bool:
        """Set the IDs of the running containers; return True if none of those that ran before is among them.

        The instance is then a new one: it holds nothing of earlier sessions, and has to connect.
        """
        before, self.containers = self.containers, containers
        if not before or before & containers:
            return False
        self.confirm_all()
        self.row = replace(self.row, was_connected=self.is_connected)
        return True
