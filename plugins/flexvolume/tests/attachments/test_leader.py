"""The agent that scans: one of many, daily, and another one after it has gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubeletx_flexvolume.agent.background import DAY_SECONDS, FIRST_SECONDS, lead, scan_daily
from kubeletx_flexvolume.attachments.definitions import LEASE, NAMESPACE
from kubeletx_flexvolume.attachments.stale import Scanner, StaleReport

from kubeletx.api import Unavailable
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import let_others_work, until
from plugins.flexvolume.tests.attachments.cluster_model import close, set_up


class ScannerDouble(Scanner):
    """Counts scans. `at`: times of the scans; `fails`: how many of the next fail."""

    def __init__(self, clock: FakeClock) -> None:
        self._watch = clock
        self.at: list[float] = []
        self.fails = 0

    async def scan(self, *, dry_run: bool = False) -> StaleReport:
        self.at.append(self._watch.monotonic())
        if self.fails:
            self.fails -= 1
            raise Unavailable("the API server does not answer")
        return StaleReport(records=0, entries=0, stale=(), problems=("node n1: no answer",))


async def test_a_scan_comes_after_a_pause_and_then_daily() -> None:
    clock = FakeClock()
    scanner = ScannerDouble(clock)
    scanner.fails = 1
    task = asyncio.create_task(scan_daily(scanner, clock, draw=lambda: 0.5), name="scan")
    begin = clock.monotonic()
    await clock.run_for(3 * DAY_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    pauses = [round(at - begin) for at in scanner.at]
    assert pauses == [
        round(FIRST_SECONDS),
        round(2 * FIRST_SECONDS),
        round(2 * FIRST_SECONDS + DAY_SECONDS),
        round(2 * FIRST_SECONDS + 2 * DAY_SECONDS),
    ]


async def test_one_agent_leads_and_the_next_follows_it(api: ApiServerDouble) -> None:
    clock, working = FakeClock(), list[str]()
    kubeconfig = set_up(api)
    clients = [KubeClient(load_kubeconfig(kubeconfig), clock=clock) for _ in range(3)]

    def work(name: str) -> Any:
        async def run() -> None:
            working.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                working.remove(name)

        return run

    tasks = {
        str(number): asyncio.create_task(
            lead(client, NAMESPACE, clock, [work(str(number)), work(str(number))]), name=f"agent {number}"
        )
        for number, client in enumerate(clients)
    }
    try:
        await until(lambda: len(working) == 2)
        first = working[0]
        assert working == [first, first]
        for _ in range(300):  # a renewal has 60 seconds of this clock
            clock.advance(1)
            await let_others_work()
        assert working == [first, first]
        tasks.pop(first).cancel()
        await until(lambda: not working)

        def is_followed() -> bool:
            clock.advance(1)
            return len(working) == 2

        await until(is_followed)
        assert working[0] != first
        api.admin.patch("leases", LEASE, {"spec": {"holderIdentity": "another"}}, NAMESPACE)

        def has_lost() -> bool:
            clock.advance(1)
            return not working

        await until(has_lost)
        assert not any(task.done() for task in tasks.values()), "it competes again"
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        await close(*clients)


@pytest.mark.parametrize("draw", [0.0, 1.0])
async def test_agents_that_start_together_do_not_scan_together(draw: float) -> None:
    clock = FakeClock()
    scanner = ScannerDouble(clock)
    task = asyncio.create_task(scan_daily(scanner, clock, draw=lambda: draw), name="scan")
    begin = clock.monotonic()
    await clock.run_for(FIRST_SECONDS * 1.2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert scanner.at[0] - begin == pytest.approx(FIRST_SECONDS * (0.9 + 0.2 * draw))
