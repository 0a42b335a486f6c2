"""The usage of a session whose pod is measured by its runtime, as machines are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.server.session_views import SessionRequest
from tests.unit.agent.agent_model import AgentModel, a_pod

MILLICORE = 10**-3
"""CPU that a unit of the fake runtime uses."""


async def test_a_session_is_charged_for_its_own_time_only(tmp_path: Path) -> None:
    agent = AgentModel(tmp_path)
    async with agent.running() as backend:
        await agent.apply(a_pod("game"))
        await agent.done(backend.node.usage())  # a reading that is used again for five seconds
        await agent.clock.run_for(4)
        session = await agent.done(
            backend.sessions.open_session(SessionRequest(namespace="default", pod="game"), wait=True)
        )
        await agent.done(backend.sessions.session_usage())  # the reading at the begin
        await agent.clock.run_for(3)
        await agent.done(backend.sessions.close_session(f"default/{session.name}", None, wait=True))
        (row,) = (await agent.done(backend.sessions.session_usage())).sessions
    assert row.costs.cpu_seconds == pytest.approx(row.costs.open_seconds * MILLICORE, rel=0.5)
    assert row.costs.memory_byte_seconds > 0
