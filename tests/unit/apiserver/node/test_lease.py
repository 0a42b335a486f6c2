"""Renewals that no one answers, or not now: connections are made again, and no wait is as long as the lease."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from kubeletx.api import Conflict, KubeletxError, TimedOut
from kubeletx.apiserver.node.lease import SILENT_RENEWALS, NodeLease
from kubeletx.kube.client import KubeClient, TooManyRequests
from kubeletx.testing import FakeClock
from kubeletx_testing.waiting import until


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


class Failing(NodeLease):
    """Fails with the next of `errors`, and at last with the same one; `reconnects`: made before each renewal."""

    def __init__(self, client: Client, *errors: KubeletxError, duration_seconds: int) -> None:
        super().__init__(
            cast("KubeClient", client), "one", clock=FakeClock(), duration_seconds=duration_seconds
        )
        self.client, self.errors, self.reconnects = client, list(errors), list[int]()

    async def renew(self) -> None:
        self.reconnects.append(self.client.reconnects)
        raise self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]

    async def run_for(self, times: int) -> None:
        task = asyncio.create_task(self.run())
        await until(lambda: len(self.client.pauses) >= times)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_connections_are_made_again_after_every_two_silences_in_a_row() -> None:
    silent, answer = TimedOut("silent"), Conflict("somebody else's")
    before = 2 * SILENT_RENEWALS + 1
    lease = Failing(Client(), *[silent] * before, answer, silent, duration_seconds=40)
    await lease.run_for(before + 1 + SILENT_RENEWALS + 1)
    assert lease.reconnects[before - 1] == 2
    assert lease.reconnects[before + SILENT_RENEWALS] == 2, "an answer came between"
    assert lease.reconnects[before + SILENT_RENEWALS + 1] == 3


@pytest.mark.parametrize("error", [Conflict("again"), TooManyRequests("busy", retry_after_seconds=300.0)])
async def test_no_failure_makes_a_node_wait_for_as_long_as_its_lease(error: KubeletxError) -> None:
    client = Client()
    await Failing(client, error, duration_seconds=8).run_for(20)
    assert max(client.pauses) <= 4.0
