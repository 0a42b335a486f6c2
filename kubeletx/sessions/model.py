"""Values of sessions, and the table of their states. Pure.

    [*] ─► STARTING ─► READINESS_CHECKING ─► READY ◄─► LIVE ─► EVACUATING ─► TERMINATING ─► TERMINATED

    STARTING             accepted; the instance is not connected yet, such as while its pod starts or wakes
    READINESS_CHECKING   OPEN_SESSION was sent; the instance has not answered
    READY                open, without clients
    LIVE                 open, with clients
    EVACUATING           CLOSE_SESSION was sent while clients were joined; they leave
    TERMINATING          CLOSE_SESSION was sent, or the instance closes the session; no client is left
    TERMINATED           over; `Session.reason` says why

Source: the session life cycle in the design document of the Fornax node agent. `TABLE` has every change. It adds
what the document leaves open: a session that is closed before it is ready, and instances that end.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeletx.api import Internal, InvalidConfig, PodUid

LOCAL: Final = "local"
"""`Session.origin` of sessions that a command of this node opened."""
FORNAX: Final = "fornax"
"""`Session.origin` of sessions that a FornaxCore opened."""

DATA_LIMIT: Final = 1 << 20
"""Most bytes of `OpenRequest.data`."""


class SessionState(enum.StrEnum):
    """State of a session, see the drawing at the top of this file."""

    STARTING = "Starting"
    READINESS_CHECKING = "ReadinessChecking"
    READY = "Ready"
    LIVE = "Live"
    EVACUATING = "Evacuating"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"


class Cause(enum.StrEnum):
    """Reason for a change of state; the values are the labels of the drawing in docs/states.md."""

    SENT = "OPEN_SESSION is sent"
    OPENED = "the instance reports open"
    OPEN_TIMEOUT = "openTimeoutSeconds are over"
    JOINED = "the first client joins"
    LEFT = "the last client leaves"
    CLOSE = "close"
    CLOSING = "the instance reports closing"
    CLOSED = "the instance reports closed"
    GRACE_OVER = "closeGracePeriodSeconds are over"
    INSTANCE_ENDED = "the instance ends"


_S, _C = SessionState, Cause
TABLE: Final[Mapping[tuple[SessionState, Cause], SessionState]] = {
    (_S.STARTING, _C.SENT): _S.READINESS_CHECKING,
    # After a restart: the agent ended before it had stored that OPEN_SESSION was sent.
    (_S.STARTING, _C.OPENED): _S.READY,
    (_S.STARTING, _C.OPEN_TIMEOUT): _S.TERMINATED,
    (_S.STARTING, _C.CLOSE): _S.TERMINATED,
    (_S.READINESS_CHECKING, _C.OPENED): _S.READY,
    (_S.READINESS_CHECKING, _C.OPEN_TIMEOUT): _S.TERMINATED,
    (_S.READINESS_CHECKING, _C.CLOSE): _S.TERMINATING,
    (_S.READINESS_CHECKING, _C.CLOSING): _S.TERMINATING,
    (_S.READINESS_CHECKING, _C.CLOSED): _S.TERMINATED,
    (_S.READY, _C.JOINED): _S.LIVE,
    (_S.READY, _C.CLOSE): _S.TERMINATING,
    (_S.READY, _C.CLOSING): _S.TERMINATING,
    (_S.READY, _C.CLOSED): _S.TERMINATED,
    (_S.LIVE, _C.LEFT): _S.READY,
    (_S.LIVE, _C.CLOSE): _S.EVACUATING,
    (_S.LIVE, _C.CLOSING): _S.TERMINATING,
    (_S.LIVE, _C.CLOSED): _S.TERMINATED,
    (_S.EVACUATING, _C.LEFT): _S.TERMINATING,
    (_S.EVACUATING, _C.CLOSED): _S.TERMINATED,
    (_S.EVACUATING, _C.GRACE_OVER): _S.TERMINATED,
    (_S.TERMINATING, _C.CLOSED): _S.TERMINATED,
    (_S.TERMINATING, _C.GRACE_OVER): _S.TERMINATED,
    **{(state, _C.INSTANCE_ENDED): _S.TERMINATED for state in _S if state is not _S.TERMINATED},
}
"""The state after each possible (state, cause). Causes that are not listed for a state are impossible in it."""

OPEN: Final = frozenset({SessionState.READY, SessionState.LIVE})
OPENING: Final = frozenset({SessionState.STARTING, SessionState.READINESS_CHECKING})
CLOSING: Final = frozenset({SessionState.EVACUATING, SessionState.TERMINATING})


class Reason:
    """Values of `Session.reason`: why a session ended. CLOSED: as requested."""

    CLOSED: Final = ""
    OPEN_TIMEOUT: Final = "OpenTimeout"
    CLOSE_TIMEOUT: Final = "CloseTimeout"
    REFUSED: Final = "Refused"
    CLOSED_BY_INSTANCE: Final = "ClosedByInstance"
    INSTANCE_ENDED: Final = "InstanceEnded"
    EVACUATED: Final = "Evacuated"


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A client that has joined a session. `joined_at`: None if the instance did not say."""

    name: str
    joined_at: datetime | None = None


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request to open a session on a pod of this node.

    `id`: ``namespace/name``. `pod_id`: ``namespace/name`` of the pod. `data`: passed to the instance, at most
    `DATA_LIMIT` bytes. `kills_instance`: end the pod when the session ends. `open_timeout_seconds`: longest time until
    the instance reports the session open. `close_grace_seconds`: time that the instance has to close it. `uid`:
    identity of the opener's object: a repeated request with the same `id` and `uid` never opens a second session, even
    if the first one has ended; empty: requests have no identity. `payload`: kept for the opener.
    """

    id: str
    pod_id: str
    application: str = ""
    data: bytes = b""
    kills_instance: bool = False
    open_timeout_seconds: float = 10.0
    close_grace_seconds: float = 60.0
    origin: str = LOCAL
    uid: str = ""
    payload: bytes = b""

    def check(self) -> None:
        """Raise InvalidConfig, which names the field, if the request is invalid."""
        obj = f"session {self.id}"
        for field, value in (("id", self.id), ("pod_id", self.pod_id)):
            namespace, slash, name = value.partition("/")
            if not (namespace and slash and name) or "/" in name:
                raise InvalidConfig(obj=obj, field=field, problem=f"{value!r}", fix="write NAMESPACE/NAME")
        for field, seconds, least in (
            ("open_timeout_seconds", self.open_timeout_seconds, 0.001),
            ("close_grace_seconds", self.close_grace_seconds, 0.0),
        ):
            if not least <= seconds <= 86_400:
                raise InvalidConfig(
                    obj=obj, field=field, problem=f"{seconds:g}", fix=f"use {least:g} to 86400 s"
                )
        if len(self.data) > DATA_LIMIT:
            problem = f"{len(self.data)} bytes"
            raise InvalidConfig(obj=obj, field="data", problem=problem, fix=f"use at most {DATA_LIMIT}")


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an application on one instance (pod). Fields of `OpenRequest` have the meaning they have there.

    `data`: empty once the session has ended, since ended sessions are kept for some time and may be many.
    `clients`: clients that have joined, sorted by name. `ready_at`, `closed_at`: when it became READY and TERMINATED;
    None: not yet. `heartbeat_at`: last message of the instance about this session; None: none yet. `is_silent`: the
    instance has not reported within the heartbeat limit; the node closes no session for this. `reason`: see `Reason`,
    empty before the end. `message`: text for people. Times are aware UTC.
    """

    id: str
    pod_uid: PodUid
    pod_id: str
    application: str
    data: bytes
    kills_instance: bool
    open_timeout_seconds: float
    close_grace_seconds: float
    origin: str
    uid: str
    payload: bytes
    created_at: datetime
    state: SessionState = SessionState.STARTING
    clients: tuple[Client, ...] = ()
    ready_at: datetime | None = None
    closed_at: datetime | None = None
    heartbeat_at: datetime | None = None
    is_silent: bool = False
    reason: str = ""
    message: str = ""

    @property
    def is_over(self) -> bool:
        return self.state is SessionState.TERMINATED

    def has_spec_of(self, request: OpenRequest) -> bool:
        """Return True if the request asks for this session: all fields but `payload` are equal."""
        ours = msgspec.structs.asdict(self)
        asked = msgspec.structs.asdict(request)
        return all(ours[field] == value for field, value in asked.items() if field != "payload")

    def after(self, cause: Cause, now: datetime) -> Session:
        """Return the session in its next state. Raises Internal if the cause is impossible in its state."""
        state = TABLE.get((self.state, cause))
        if state is None:
            raise Internal(f"session {self.id} is {self.state}: impossible cause {cause.name}")
        session = replace(self, state=state)
        if cause is Cause.OPENED:
            session = replace(session, ready_at=now)
        if state is SessionState.TERMINATED:
            session = replace(session, closed_at=now, clients=(), is_silent=False, data=b"")
        return session

    def can(self, cause: Cause) -> bool:
        """Return True if the cause changes the state."""
        return (self.state, cause) in TABLE


def new_session(request: OpenRequest, pod_uid: PodUid, now: datetime) -> Session:
    """Make the session of a request, in state STARTING."""
    return Session(pod_uid=pod_uid, created_at=now, **msgspec.structs.asdict(request))


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Times and bounds of the room.

    `liveness_seconds`: time in which a new instance must connect once its containers run. `ping_seconds`: an open
    session from which no message came for this time is asked with PING_SESSION. `heartbeat_seconds`: time without a
    message after which a session is flagged as silent. `close_margin_seconds`: added to the close grace period, since
    the published SDK reports an ended session up to ten seconds later. `keep_seconds`: time for which ended sessions
    are kept. `kept_sessions`: most ended sessions that are kept. `sessions_per_pod`: most sessions of one pod that have
    not ended. `data_bytes_per_pod`: most bytes of their data, which one metadata file has. `clients_per_session`: most
    clients.
    """

    liveness_seconds: float = 60.0
    ping_seconds: float = 20.0
    heartbeat_seconds: float = 60.0
    close_margin_seconds: float = 15.0
    keep_seconds: float = 600.0
    kept_sessions: int = 2000
    sessions_per_pod: int = 100
    data_bytes_per_pod: int = 8 << 20
    clients_per_session: int = 1000
