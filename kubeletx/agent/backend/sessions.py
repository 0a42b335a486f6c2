"""Requests about sessions on the admin socket: list, describe, open, close."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kubeletx.api import NotFound, Unsupported
from kubeletx.server.session_views import SessionClientView, SessionRequest, SessionView

if TYPE_CHECKING:
    from kubeletx.sessions.model import Session
    from kubeletx.sessions.service import Sessions


class SessionBackend:
    """Answers the requests about sessions of the admin socket. Implements `SessionVerbs`."""

    def __init__(self, sessions: Sessions | None) -> None:
        """`sessions` None: the agent has no sessions; every request raises Unsupported."""
        self._sessions = sessions
        self._waiters: dict[str, set[asyncio.Event]] = {}
        if sessions is not None:
            sessions.subscribe(self._changed)

    async def list_sessions(self) -> Sequence[SessionView]:
        return [_view(session) for session in sorted(self._room.all(), key=lambda one: one.id)]

    async def find_session(self, id: str) -> SessionView:
        return _view(self._find(id))

    async def open_session(self, request: SessionRequest, *, wait: bool) -> SessionView:
        from kubeletx.sessions.model import OPENING, OpenRequest

        name = request.name or f"{request.pod}-{secrets.token_hex(3)}"
        session = await self._room.open(
            OpenRequest(
                id=f"{request.namespace}/{name}",
                pod_id=f"{request.namespace}/{request.pod}",
                application=request.application,
                data=request.data,
                kills_instance=request.kill_instance,
                open_timeout_seconds=request.open_timeout_seconds,
                close_grace_seconds=request.close_grace_seconds,
            )
        )
        if wait:
            return _view(await self._wait(session, lambda now: now.state not in OPENING))
        return _view(session)

    async def close_session(self, id: str, grace_seconds: float | None, *, wait: bool) -> SessionView:
        session = await self._room.close(id, grace_seconds)
        if wait:
            session = await self._wait(session, lambda now: now.is_over)
        return _view(self._room.find(id) or session)

    @property
    def _room(self) -> Sessions:
        if self._sessions is None:
            raise Unsupported("this agent serves no sessions")
        return self._sessions

    def _find(self, id: str) -> Session:
        session = self._room.find(id)
        if session is None:
            raise NotFound(f"session {id} not found; 'kubeletx session list -A' shows all of this node")
        return session

    async def _wait(self, session: Session, holds: Callable[[Session], bool]) -> Session:
        """Wait until `holds` is true of the session, and return it. Its own time-outs bound the wait."""
        news = asyncio.Event()
        waiters = self._waiters.setdefault(session.id, set())
        waiters.add(news)
        try:
            while True:
                present = self._room.find(session.id)
                if present is None or present.created_at != session.created_at:
                    raise NotFound(f"session {session.id} has ended and is forgotten")
                if holds(present):
                    return present
                await news.wait()
                news.clear()
        finally:
            waiters.discard(news)
            if not waiters:
                self._waiters.pop(session.id, None)

    def _changed(self, session: Session) -> None:
        for news in self._waiters.get(session.id, ()):
            news.set()


def _view(session: Session) -> SessionView:
    namespace, _, name = session.id.partition("/")
    return SessionView(
        namespace=namespace,
        name=name,
        pod=session.pod_id,
        pod_uid=session.pod_uid,
        state=session.state.value,
        application=session.application,
        origin=session.origin,
        data=session.data,
        kill_instance=session.kills_instance,
        open_timeout_seconds=session.open_timeout_seconds,
        close_grace_seconds=session.close_grace_seconds,
        clients=tuple(SessionClientView(name=one.name, joined_at=one.joined_at) for one in session.clients),
        created_at=session.created_at,
        ready_at=session.ready_at,
        closed_at=session.closed_at,
        heartbeat_at=session.heartbeat_at,
        silent=session.is_silent,
        reason=session.reason,
        message=session.message,
    )
