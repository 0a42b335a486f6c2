"""Tasks of the agent that fail are started again, and end nothing else."""

from __future__ import annotations

import asyncio
import itertools

import pytest
import structlog

from kubeletx.agent.host.supervise import RESTART_SECONDS, supervise
from kubeletx.api import Unavailable
from kubeletx.testing import FakeClock


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Unavailable("no answer")])
async def test_a_task_that_fails_is_started_again_after_a_while(error: Exception) -> None:
    clock, runs = FakeClock(), []

    async def run() -> None:
        runs.append(clock.monotonic())
        if len(runs) < 3:
            raise error

    with structlog.testing.capture_logs() as said:
        task = asyncio.create_task(supervise("collector", run, clock))
        await clock.run_for(3 * RESTART_SECONDS)
    assert task.done()
    assert [later - earlier for earlier, later in itertools.pairwise(runs)] == [RESTART_SECONDS] * 2
    assert [line["task"] for line in said] == ["collector"] * 2


async def test_a_cancellation_passes() -> None:
    async def run() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(supervise("collector", run, FakeClock()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
