"""`AsyncSessionClient`: serves the sessions of this instance in an asyncio event loop.

    stream of commands ─► one task a session: on_open ─► open ─► on_close ─► closed
                                  │ every change marks the session
                                  ▼
                   marked sessions ─► one sender ─► reports

A report holds the present state, and only the newest session of a name is reported. So no queue grows, a report may be
repeated after a failure, and a late CLOSED of a session never ends the next one of the same name: the name belongs to the
next one as soon as its OPEN_SESSION has arrived. For reports that are on their way then, each one carries the identifier
of its session's OPEN_SESSION.

A session that was reported as closed is forgotten. A node that missed this (it restarted) pings, and is answered CLOSED.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import Self

import grpc

from .session import Session, SessionState
from .settings import Settings, SettingsError
from .stubs import session_service_pb2 as pb
from .wire import connect, get_messages, put_message, state_message, try_to_connect

log = logging.getLogger("kubeletx_session")

OnOpen = Callable[[Session], Awaitable[None]]
OnClose = Callable[[Session, float], Awaitable[None]]

REPLACED_GRACE_SECONDS = 2.0
"""Grace of a session whose end this instance missed, when the next one of its name is opened."""
_FIRST_PAUSE_SECONDS = 0.1
_MOST_LATE_REPORTS = 2  # in a row: then the connection is made again. One may be late because of a freeze.

_TO_WIRE = {
    SessionState.OPENING: pb.STATE_INITIALIZING,
    SessionState.OPEN: pb.STATE_OPEN,
    SessionState.CLOSING: pb.STATE_CLOSING,
    SessionState.CLOSED: pb.STATE_CLOSED,
}
_RETRIED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}


class AsyncSessionClient:
    """Connects to the session service of the node, and calls `on_open` and `on_close` for each session.

    Use it as an async context manager, with `start` and `close`, or with `run`. It reconnects by itself.
    """

    def __init__(
        self, on_open: OnOpen, on_close: OnClose | None = None, *, settings: Settings | None = None
    ) -> None:
        """`on_open`: the session is ready when it returns; an exception closes the session.

        `on_close`: gets the seconds that are left of the grace period; it is cancelled when they are over. The session is
        closed when it returns. `settings` None: from the environment; raises SettingsError if that has none.
        """
        self._on_open = on_open
        self._on_close = on_close
        self._settings = Settings.from_environment() if settings is None else settings
        self._pod_id = self._settings.pod_id
        self._sessions: dict[str, _Served] = {}
        self._marked: dict[str, _Served] = {}
        self._has_marked = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_connected = asyncio.Event()
        self._channel: grpc.aio.Channel | None = None
        self._stream: grpc.aio.UnaryStreamCall[pb.PodIdentifier, pb.SessionMessage] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._served: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def sessions(self) -> Mapping[str, Session]:
        """Sessions by id: open ones, and closed ones until the node knows."""
        return MappingProxyType({id: served.session for id, served in self._sessions.items()})

    @property
    def is_connected(self) -> bool:
        return self._is_connected.is_set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to serve sessions; does not wait for the connection."""
        self._loop = asyncio.get_running_loop()
        for run in (self._keep_connected, self._send_reports, self._beat):
            self._tasks.append(asyncio.create_task(run(), name=f"kubeletx-session{run.__name__}"))

    async def run(self) -> None:
        """Serve sessions until SIGTERM, SIGINT or a cancellation; then close them and return."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            async with self:
                await stop.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def close(self, grace_seconds: float | None = None) -> None:
        """Close all sessions, report that, and disconnect.

        `grace_seconds` None: `Settings.shutdown_seconds`. It returns also if the node is not reached by then.
        """
        grace = self._settings.shutdown_seconds if grace_seconds is None else grace_seconds
        self._is_closing = True
        for served in self._sessions.values():
            served.ask_close(grace)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace + self._settings.call_seconds):
                await self._is_empty.wait()
        ending = [*self._tasks, *self._served]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._tasks.clear()

    # --- commands ---

    async def _keep_connected(self) -> None:
        """Connect, and again after each end of the stream, after a random pause that grows."""
        loop = asyncio.get_running_loop()
        attempt, said = 0, ""
        while True:
            began = loop.time()
            try:
                await self._listen()
                problem = "the service ended the stream"
            except grpc.aio.AioRpcError as error:
                problem = f"{error.code().name}: {error.details()}"
            except SettingsError as error:
                problem = str(error)
            except TimeoutError:
                problem = f"no answer within {self._settings.call_seconds:g}s"
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                problem = "reports were not answered"
            except Exception:
                log.exception("Session connection failed")
                problem = "an unexpected error"
            lasted = loop.time() - began
            # A stream that ends soon was refused, or another process of the pod took it over.
            attempt = attempt + 1 if lasted < self._settings.longest_pause_seconds else 0
            if problem != said or attempt == 0:
                log.warning("Session service is not connected: %s", problem)
            said = problem
            await asyncio.sleep(pause_seconds(attempt, self._settings.longest_pause_seconds))

    async def _listen(self) -> None:
        async with connect(self._settings) as channel:
            self._pod_id = self._pod_id or self._settings.metadata().pod_id
            async with asyncio.timeout(self._settings.call_seconds):
                is_ready = await try_to_connect(channel)
            stream = get_messages(channel, self._pod_id)
            if is_ready:
                log.info("Connected to session service")
                self._channel, self._stream = channel, stream
                self._is_connected.set()
                self._mark(*self._sessions.values())
            try:
                async for message in stream:
                    self._receive(message)
            finally:
                self._is_connected.clear()
                self._channel = self._stream = None

    def _receive(self, message: pb.SessionMessage) -> None:
        id = message.sessionIdentifier.identifier
        served = self._sessions.get(id)
        match message.WhichOneof("MessageBody"):
            case "openSession":
                data = message.openSession.sessionConfiguration.sessionData
                self._open(id, data, message.messageIdentifier)
            case "closeSession" if served is not None:
                served.ask_close(message.closeSession.gracePeriodSeconds)
            case "sessionConfiguration" if served is not None:
                served.session.data = message.sessionConfiguration.sessionData
            case "pingSession" | "closeSession":
                self._mark(served or self._closed(id, message.messageIdentifier))
            case _:
                log.warning("Ignored a message of type %s for session %r", message.messageType, id)

    def _open(self, id: str, data: bytes, message_id: str) -> None:
        earlier = self._sessions.get(id)
        if earlier is not None and earlier.session.message_id == message_id != "":
            self._mark(earlier)  # repeated after a reconnect
            return
        if self._is_closing or (earlier is None and len(self._sessions) >= self._settings.most_sessions):
            log.warning("Refused session %r: %s", id, "closing" if self._is_closing else "too many sessions")
            self._mark(self._closed(id, message_id))
            return
        served = self._serve(id, data, message_id)
        if earlier is not None:
            earlier.ask_close(REPLACED_GRACE_SECONDS)
        served.task = asyncio.create_task(self._live(served, earlier), name=f"kubeletx-session {id}")
        self._served.add(served.task)
        served.task.add_done_callback(self._served.discard)

    def _serve(self, id: str, data: bytes, message_id: str) -> _Served:
        session = Session(
            id, data, message_id=message_id, changed=self._on_changed, ask_close=self._on_ask_close
        )
        served = self._sessions[id] = _Served(session)
        self._is_empty.clear()
        return served

    def _closed(self, id: str, message_id: str) -> _Served:
        """Return a session that is only there to be reported as closed."""
        served = self._serve(id, b"", message_id)
        served.session.become(SessionState.CLOSED)
        return served

    async def _live(self, served: _Served, earlier: _Served | None) -> None:
        """Call the application for one session, from its opening to its end."""
        session = served.session
        try:
            async with asyncio.timeout(None) as served.limit:
                if earlier is not None and earlier.task is not None:
                    await asyncio.wait({earlier.task})
                if not served.close_asked.is_set():
                    await self._on_open(session)
                    if not served.close_asked.is_set():
                        session.become(SessionState.OPEN)
                    await served.close_asked.wait()
                    if self._on_close is not None:
                        await self._on_close(session, served.left_seconds())
        except Exception:
            if served.limit is not None and served.limit.expired():
                log.warning("Session %r did not close within its grace period", session.id)
            else:
                log.exception("The application failed in session %r, which is closed", session.id)
        finally:
            session.become(SessionState.CLOSED)

    # --- reports ---

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat_seconds)
            self._mark(*self._sessions.values())

    async def _send_reports(self) -> None:
        attempt = late = 0
        while True:
            await self._is_connected.wait()
            await self._has_marked.wait()
            served = self._marked.pop(next(iter(self._marked)))
            if not self._marked:
                self._has_marked.clear()
            code = await self._report(served)
            if code not in _RETRIED:
                attempt = late = 0
                continue
            if self._sessions.get(served.session.id) is served:
                self._mark(served)
            late = late + 1 if code is grpc.StatusCode.DEADLINE_EXCEEDED else 0
            if late >= _MOST_LATE_REPORTS and self._stream is not None:
                self._stream.cancel()
            await asyncio.sleep(pause_seconds(attempt, self._settings.longest_pause_seconds))
            attempt += 1

    async def _report(self, served: _Served) -> grpc.StatusCode | None:
        """Send the present state of a session. Returns the code of a failure, None if the service accepted it."""
        session = served.session
        state, clients = session.to_report()
        message = state_message(
            pod_id=self._pod_id,
            session_id=session.id,
            message_id=session.message_id,
            state=_TO_WIRE[state],
            clients=((client.id, client.joined_at, client.left_at) for client in clients),
        )
        code: grpc.StatusCode | None = None
        try:
            if self._channel is None:
                return grpc.StatusCode.UNAVAILABLE
            await put_message(self._channel, message, self._settings.call_seconds)
            session.reported(clients)
        except asyncio.CancelledError:  # grpc raises it also when the channel is closed during a call
            if _is_cancelled():
                raise
            return grpc.StatusCode.UNAVAILABLE
        except grpc.aio.AioRpcError as error:
            code = error.code()
            if code not in _RETRIED:
                log.warning(
                    "A report of session %r was refused: %s: %s", session.id, code.name, error.details()
                )
        if state is SessionState.CLOSED and code not in _RETRIED and self._sessions.get(session.id) is served:
            del self._sessions[session.id]
            self._marked.pop(session.id, None)
            if not self._marked:
                self._has_marked.clear()
            if not self._sessions:
                self._is_empty.set()
        return code

    def _mark(self, *changed: _Served) -> None:
        for served in changed:
            self._marked[served.session.id] = served
        if self._marked:
            self._has_marked.set()

    # --- calls of sessions, in any thread ---

    def _on_changed(self, session: Session) -> None:
        self._in_loop(self._mark, session)

    def _on_ask_close(self, session: Session, grace_seconds: float) -> None:
        self._in_loop(lambda served: served.ask_close(grace_seconds), session)

    def _in_loop(self, call: Callable[[_Served], None], session: Session) -> None:
        def run() -> None:
            served = self._sessions.get(session.id)
            if served is not None and served.session is session:
                call(served)

        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(run)


class _Served:
    """A session with the task that serves it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.task: asyncio.Task[None] | None = None
        self.limit: asyncio.Timeout | None = None
        self.close_asked = asyncio.Event()
        self._ends_at: float | None = None

    def ask_close(self, grace_seconds: float) -> None:
        """Begin to close the session. A later call may only shorten the grace period."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + max(grace_seconds, 0.0)
        if self.session.state is SessionState.CLOSED or (
            self._ends_at is not None and self._ends_at <= ends_at
        ):
            return
        self._ends_at = ends_at
        self.session.become(SessionState.CLOSING)
        self.close_asked.set()
        if self.limit is not None and self.task is not None and not self.task.done():
            self.limit.reschedule(ends_at)

    def left_seconds(self) -> float:
        """Seconds of the grace period that are left."""
        return max((self._ends_at or 0.0) - asyncio.get_running_loop().time(), 0.0)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def pause_seconds(attempt: int, longest_seconds: float) -> float:
    """Return a random pause before attempt number `attempt` (0: the first), so that many instances do not come at once."""
    return random.uniform(0.0, min(longest_seconds, _FIRST_PAUSE_SECONDS * 2.0 ** min(attempt, 16)))
