"""`FakeSessions`: implements the agent's operations on sessions in memory, for `FakeAdminBackend`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from kubeletx.api import NotFound
from kubeletx.server.session_views import SessionRequest, SessionUsageList, SessionView


class FakeSessions:
    """Implements `kubeletx.server.backend.SessionVerbs` in memory: a session opens at once in state `opens_as`."""

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        """`calls`: list to which each call that changes something is added."""
        self.calls = calls
        self.items: dict[str, SessionView] = {}
        self.usage = SessionUsageList()
        self.opens_as: dict[str, Any] = {"state": "Ready"}

    async def list_sessions(self) -> Sequence[SessionView]:
        return [self.items[id] for id in sorted(self.items)]

    async def find_session(self, id: str) -> SessionView:
        if id not in self.items:
            raise NotFound(f"session {id} not found")
        return self.items[id]

    async def session_usage(self) -> SessionUsageList:
        return self.usage

    async def open_session(self, request: SessionRequest, *, wait: bool) -> SessionView:
        self.calls.append(("open_session", request, wait))
        name = request.name or f"{request.pod}-1"
        made = self.put(name, pod=f"{request.namespace}/{request.pod}", **self.opens_as)
        return made

    async def close_session(self, id: str, grace_seconds: float | None, *, wait: bool) -> SessionView:
        session = await self.find_session(id)
        self.calls.append(("close_session", id, grace_seconds, wait))
        self.items[id] = replace(session, state="Terminated" if wait else "Terminating")
        return self.items[id]

    def put(self, name: str, namespace: str = "default", **fields: Any) -> SessionView:
        """Add a session."""
        made = SessionView(
            namespace=namespace,
            name=name,
            **{
                "pod": "default/web",
                "pod_uid": "u1",
                "state": "Ready",
                "open_timeout_seconds": 10.0,
                "close_grace_seconds": 60.0,
                "created_at": datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC),
                **fields,
            },
        )
        self.items[f"{namespace}/{name}"] = made
        return made
