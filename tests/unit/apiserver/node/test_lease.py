"""Renewals that no one answers, or not now: connections are made again, and no wait is as long as the lease."""

from __future__ import annotations

import asyncio

import pytest

from kubeletx.api import Conflict, KubeletxError, TimedOut
from kubeletx.apiserver.node.lease import SILENT_RENEWALS, NodeLease
from kubeletx.kube.client import TooManyRequests
from kubeletx.testing import FakeClock


class Client:
    """Counts."""

    def __init__(self) -> None:
        self.reconnects = 0
        self.problem = ""
        self.pauses: list[float] = []

    async def reconnect(self) -> None:
        self.reconnects += 1

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


async def test_connections_are_made_again_after_every_two_silences_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    lease = NodeLease(client, "one", clock=FakeClock(), duration_seconds=40)  # type: ignore[arg-type]
    error: KubeletxError = TimedOut("silent")

    async def renew() -> None:
        raise error

    monkeypatch.setattr(lease, "renew", renew)

    async def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(type(error)):
                await lease._renew_within(10)

    await fail(2 * SILENT_RENEWALS)
    assert client.reconnects == 2
    await fail(1)
    error = Conflict("somebody else's")
    await fail(1)
    error = TimedOut("silent")
    await fail(SILENT_RENEWALS - 1)
    assert client.reconnects == 2, "an answer came between"
    await fail(1)
    assert client.reconnects == 3


@pytest.mark.parametrize("error", [Conflict("again"), TooManyRequests("busy", retry_after_seconds=300.0)])
async def test_no_failure_makes_a_node_wait_for_as_long_as_its_lease(
    monkeypatch: pytest.MonkeyPatch, error: KubeletxError
) -> None:
    client = Client()
    lease = NodeLease(client, "one", clock=FakeClock(), duration_seconds=8)  # type: ignore[arg-type]

    async def renew() -> None:
        raise error

    monkeypatch.setattr(lease, "renew", renew)
    task = asyncio.create_task(lease.run())
    while len(client.pauses) < 20:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert max(client.pauses) <= 4.0
