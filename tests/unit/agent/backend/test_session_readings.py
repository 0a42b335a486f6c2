"""The usage of a session whose pod is measured by its runtime, as machines are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import TimedOut
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


async def test_a_query_that_times_out_leaves_out_only_its_own_pod(tmp_path: Path) -> None:
    agent = AgentModel(tmp_path)
    async with agent.running() as backend:

        async def cpu() -> list[float]:
            rows = (await agent.done(backend.sessions.session_usage())).sessions
            return [row.costs.cpu_seconds for row in rows]

        for name in ("game", "shop"):
            await agent.apply(a_pod(name, runtime="one"))
            request = SessionRequest(namespace="default", pod=name)
            await agent.done(backend.sessions.open_session(request, wait=True))
        before = await cpu()
        await agent.clock.run_for(3)
        agent.runtimes["one"].script("list_unit_stats", times=1, error=TimedOut("no answer"))
        failed = await cpu()
        assert sorted(now > old for now, old in zip(failed, before, strict=True)) == [False, True]
        assert all(now > old for now, old in zip(await cpu(), before, strict=True))
