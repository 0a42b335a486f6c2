"""Views of application sessions on the admin socket."""

from __future__ import annotations

from datetime import datetime

from .views import View


class SessionClientView(View, frozen=True, kw_only=True):
    """A client that has joined a session. `joined_at`: None if the instance did not say."""

    name: str
    joined_at: datetime | None = None


class SessionCostsView(View, frozen=True, kw_only=True):
    """Usage of sessions. `opened`: number of sessions. Several sessions of one pod share its CPU and memory equally.

    `client_seconds`: seconds of all clients together. `memory_byte_seconds`: bytes multiplied by seconds.
    """

    opened: int = 0
    open_seconds: float = 0.0
    client_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_byte_seconds: float = 0.0


class LogPositionView(View, frozen=True, kw_only=True):
    """End of a container's log. `file`: relative to the pod's log directory. `inode`: its number, kept by rotation."""

    container: str
    file: str
    inode: int
    offset: int


class SessionUsageView(View, frozen=True, kw_only=True):
    """Usage of one session. `counted_at`: time up to which it is counted. `closed_at`: None while it is open.

    `logs_at_open`, `logs_at_close`: ends of the pod's logs when it opened and ended; empty: not known.
    """

    namespace: str
    name: str
    pod: str
    application: str
    opened_at: datetime
    counted_at: datetime
    closed_at: datetime | None = None
    costs: SessionCostsView
    logs_at_open: tuple[LogPositionView, ...] = ()
    logs_at_close: tuple[LogPositionView, ...] = ()


class ApplicationUsageView(View, frozen=True, kw_only=True):
    """Usage of all sessions of an application since it was first used; both names empty: all other applications."""

    namespace: str
    application: str
    costs: SessionCostsView


class SessionUsageList(View, frozen=True, kw_only=True):
    """Usage by application, and of each session that is open or ended within the last ten minutes."""

    applications: tuple[ApplicationUsageView, ...] = ()
    sessions: tuple[SessionUsageView, ...] = ()


class SessionView(View, frozen=True, kw_only=True):
    """One session of an application on a pod of this node; ended ones are known for ten minutes.

    `pod`: the instance, as ``namespace/name``. `state`: see docs/states.md. `origin`: local or fornax. `data`: base64 in
    JSON. `ready_at`, `closed_at`: None if it is not open or ended yet. `heartbeat_at`: last message of the instance about
    the session; None: none yet. `silent`: no message came within the heartbeat limit. `reason`: why it ended; empty if it
    was closed as requested, and before the end.
    """

    namespace: str
    name: str
    pod: str
    pod_uid: str
    state: str
    application: str = ""
    origin: str = ""
    data: bytes = b""
    kill_instance: bool = False
    open_timeout_seconds: float
    close_grace_seconds: float
    clients: tuple[SessionClientView, ...] = ()
    created_at: datetime
    ready_at: datetime | None = None
    closed_at: datetime | None = None
    heartbeat_at: datetime | None = None
    silent: bool = False
    reason: str = ""
    message: str = ""
    usage: SessionUsageView | None = None
    """None in lists, and before it was open."""


class SessionList(View, frozen=True, kw_only=True):
    """All sessions of the node, in order of namespace and name."""

    items: tuple[SessionView, ...] = ()


class SessionRequest(View, frozen=True, kw_only=True):
    """Request to open a session on a pod of the same namespace. `name` empty: the agent chooses one.

    `data`: passed to the instance; base64 in JSON. `kill_instance`: end the pod when the session ends.
    """

    namespace: str
    pod: str
    name: str = ""
    application: str = ""
    data: bytes = b""
    kill_instance: bool = False
    open_timeout_seconds: float = 10.0
    close_grace_seconds: float = 60.0
