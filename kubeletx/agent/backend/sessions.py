"""Requests about sessions on the admin socket: list, describe, open, close."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from kubeletx.api import NotFound
from kubeletx.server.session_views import (
    ApplicationUsageView,
    LogPositionView,
    SessionClientView,
    SessionCostsView,
    SessionRequest,
    SessionUsageList,
    SessionUsageView,
    SessionView,
)

if TYPE_CHECKING:
    from kubeletx.sessions.meter import LogPosition, SessionCosts
    from kubeletx.sessions.model import Session
    from kubeletx.sessions.service import Sessions
    from kubeletx.sessions.usage import SessionUsage
    from kubeletx.sessions.usage_records import UsageRow


class SessionBackend:
    """Answers the requests about sessions of the admin socket. Implements `SessionVerbs`."""

    def __init__(self, sessions: Sessions, usage: SessionUsage) -> None:
        self._sessions = sessions
        self._usage = usage
        self._waiters: dict[str, set[asyncio.Event]] = {}
        sessions.subscribe(self._changed)

    async def list_sessions(self) -> Sequence[SessionView]:
        return [_view(session) for session in sorted(self._sessions.all(), key=lambda session: session.id)]

    async def find_session(self, id: str) -> SessionView:
        session = self._find(id)
        await self._usage.refresh()
        row = self._usage.find(session)
        return replace(_view(session), usage=_usage_view(row) if row is not None else None)

    async def session_usage(self) -> SessionUsageList:
        await self._usage.refresh()
        totals = sorted(self._usage.totals.items.values(), key=lambda total: total.key)
        return SessionUsageList(
            applications=tuple(
                ApplicationUsageView(namespace=namespace, application=application, costs=_costs(total.costs))
                for total in totals
                for namespace, application in (total.labels,)
            ),
            sessions=tuple(_usage_view(row) for row in sorted(self._usage.rows(), key=lambda row: row.key)),
        )

    async def open_session(self, request: SessionRequest, *, wait: bool) -> SessionView:
        from kubeletx.sessions.model import OPENING, OpenRequest

        name = request.name or f"{request.pod}-{secrets.token_hex(3)}"
        session = await self._sessions.open(
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
        session = await self._sessions.close(id, grace_seconds)
        if wait:
            session = await self._wait(session, lambda now: now.is_over)
        return _view(self._sessions.find(id) or session)

    def _find(self, id: str) -> Session:
        session = self._sessions.find(id)
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
                present = self._sessions.find(session.id)
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


def _usage_view(row: UsageRow) -> SessionUsageView:
    namespace, _, name = row.id.partition("/")
    return SessionUsageView(
        namespace=namespace,
        name=name,
        pod=row.pod_id,
        application=row.application,
        opened_at=row.opened_at,
        counted_at=row.counted_at,
        closed_at=row.closed_at,
        costs=_costs(row.costs),
        logs_at_open=_positions(row.logs_at_open),
        logs_at_close=_positions(row.logs_at_close),
    )


def _costs(costs: SessionCosts) -> SessionCostsView:
    return SessionCostsView(**asdict(costs))


def _positions(logs: tuple[LogPosition, ...] | None) -> tuple[LogPositionView, ...]:
    return tuple(LogPositionView(**asdict(position)) for position in logs or ())


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
        clients=tuple(
            SessionClientView(name=client.name, joined_at=client.joined_at) for client in session.clients
        ),
        created_at=session.created_at,
        ready_at=session.ready_at,
        closed_at=session.closed_at,
        heartbeat_at=session.heartbeat_at,
        silent=session.is_silent,
        reason=session.reason,
        message=session.message,
    )
