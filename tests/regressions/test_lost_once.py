"""``Lost the API server`` stands in the log once per outage, whatever fails and however many requests there are."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.api import KubeletxError, SystemClock
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.connections import Reachability
from kubeletx.kube.client.resources import NODES, PODS
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.node import Node
from kubeletx_testing.apiserver import ApiServerDouble, Rule
from kubeletx_testing.names_sink import NamesSink
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.apiserver.api_connections import connections

NAME = "n"
LOST, REACHED = "Lost the API server", "Reached the API server again"


@pytest.fixture
def reach() -> Reachability:
    return Reachability()


def lines_of(lines: list[dict[str, object]]) -> list[object]:
    return [one["event"] for one in lines if one["event"] in (LOST, REACHED)]


def test_an_answer_to_a_request_from_before_the_loss_does_not_end_it(reach: Reachability) -> None:
    with capture_logs() as lines:
        early = time.perf_counter()
        reach.note_answer("connection refused", "s")
        reach.note_answer("", "s", began=early)
        reach.note_answer("connection refused", "s")
        assert reach.problem
        reach.note_answer("", "s")
    assert lines_of(lines) == [LOST, REACHED]


def test_a_request_that_was_hung_up_in_the_outage_begins_no_other_one_when_it_ends(
    reach: Reachability,
) -> None:
    with capture_logs() as lines:
        hung = time.perf_counter()
        reach.note_answer("connection refused", "s")
        reach.note_answer("", "s")
        reach.note_answer("no answer in time", "s", began=hung)
        assert not reach.problem
        reach.note_answer("connection refused", "s")
    assert lines_of(lines) == [LOST, REACHED, LOST]


def test_a_server_that_hangs_up_is_lost_once_it_does_not_answer_the_next_request_either(
    reach: Reachability,
) -> None:
    with capture_logs() as lines:
        early = time.perf_counter()
        reach.note_answer("hung up", "s", is_hang_up=True)
        reach.note_answer("hung up", "s", began=early, is_hang_up=True)
        assert lines_of(lines) == []
        reach.note_answer("", "s")
        reach.note_answer("hung up", "s", is_hang_up=True)
        assert lines_of(lines) == []
        reach.note_answer("hung up", "s", is_hang_up=True)
    assert lines_of(lines) == [LOST]


async def test_an_outage_is_one_line_for_all_clients_and_a_broken_watch_is_none(tmp_path: Path) -> None:
    clock = SystemClock()
    with ApiServerDouble(tmp_path / "api") as api, capture_logs() as lines:
        api.admin.create("nodes", {"metadata": {"name": NAME}})
        access = load_kubeconfig(api.node_kubeconfig(NAME))
        client = KubeClient(access, clock=clock)
        other = KubeClient(access, clock=clock, reach=client.reach)
        reflectors = [
            Reflector(one, PODS, Pod, NamesSink(), clock=clock, field_selector=f"spec.nodeName={NAME}")
            for one in (client, other)
        ]
        asked = 0

        async def ask(of: KubeClient) -> None:
            nonlocal asked
            while True:
                with contextlib.suppress(KubeletxError):
                    await of.get(NODES.path(name=NAME), Node)
                asked += 1
                await let_others_work()

        tasks = [asyncio.create_task(one.run()) for one in reflectors]
        tasks.append(asyncio.create_task(ask(client)))

        async def more(count: int = 20) -> None:
            goal = asked + count
            await until(lambda: asked >= goal)

        await until(lambda: api.watch_count("pods") == 2)
        api.cut_watches()
        await more()
        assert lines_of(lines) == []
        await until(lambda: api.watch_count("pods") == 2)
        api.stop()
        await until(lambda: lines_of(lines))
        await more()
        assert lines_of(lines) == [LOST]
        api.faults.add(Rule(code=503, times=20))  # a load balancer is there before its servers
        api.start()
        await until(lambda: not client.problem)
        await more()
        assert lines_of(lines) == [LOST, REACHED]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in (client, other):
            await one.close()
        await until(lambda: not connections(api))
