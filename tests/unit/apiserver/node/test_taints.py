"""Taints that follow readiness, by an identity that may patch nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest

from kubeletx.api import SystemClock
from kubeletx.apiserver.node.taints import TypeTaints, merged
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.resources import NODES
from kubeletx.kube.types.core import ObjectMeta
from kubeletx.kube.types.node import Node, NodeSpec, Taint
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import until

GUARD_SECONDS = 60
NAME = "tainted"
VM = Taint(key="workload.kubeletx.io/vm", value="no-ready-runtime", effect="PreferNoSchedule")
CONTAINER = Taint(key="workload.kubeletx.io/container", value="no-ready-runtime", effect="NoSchedule")
OTHER = Taint(key="example.com/gpu", effect="NoSchedule")


def test_taints_of_others_stay() -> None:
    assert merged((OTHER, CONTAINER), (VM,)) == (OTHER, VM)
    assert merged((OTHER, CONTAINER), ()) == (OTHER,)
    assert merged((CONTAINER, OTHER, VM), (VM, CONTAINER)) is None


class Sink:
    """Hands the node on, as `ApiNode` does."""

    def __init__(self, taints: TypeTaints) -> None:
        self._taints = taints

    def replace(self, items: Any, unreadable: Any) -> None:
        self._taints.node_changed(items[0] if items else None)

    def put(self, item: Node) -> None:
        self._taints.node_changed(item)

    def drop(self, item: Node) -> None:
        self._taints.node_changed(None)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        raise AssertionError(problem)


class Due:
    """The taints that are due, as a node that is watched."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[tuple[Taint, ...]] = asyncio.Queue()

    async def watch(self) -> AsyncIterator[Node]:
        while True:
            yield Node(spec=NodeSpec(taints=await self.news.get()))


@pytest.fixture
async def due(api: ApiServerDouble) -> AsyncIterator[Due]:
    clock, due = SystemClock(), Due()
    api.admin.create(
        "nodes",
        {"metadata": {"name": NAME}, "spec": {"taints": [{"key": OTHER.key, "effect": OTHER.effect}]}},
    )
    client = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=clock)
    taints = TypeTaints(client, due.watch, clock=clock)
    reflector = Reflector(client, NODES, Node, Sink(taints), clock=clock)
    tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(taints.run())]
    yield due
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()
    port = int(api.url.rpartition(":")[2])
    await until(
        lambda: not [c for c in psutil.Process().net_connections() if c.raddr and c.raddr.port == port]
    )


def keys(api: ApiServerDouble) -> list[str]:
    """But those that the API server itself gives to a new node."""
    found = api.admin.get("nodes", NAME)
    keys = [one["key"] for one in found["spec"].get("taints", ())]
    return [key for key in keys if not key.startswith("node.kubernetes.io/")]


async def test_taints_come_and_go_with_readiness(api: ApiServerDouble, due: Due) -> None:
    due.news.put_nowait((CONTAINER, VM))
    await until(lambda: keys(api) == [OTHER.key, CONTAINER.key, VM.key])
    due.news.put_nowait((VM,))
    await until(lambda: keys(api) == [OTHER.key, VM.key])
    due.news.put_nowait(())
    await until(lambda: keys(api) == [OTHER.key])


async def test_what_another_changes_meanwhile_is_not_lost(api: ApiServerDouble, due: Due) -> None:
    for number in range(5):
        node = api.admin.get("nodes", NAME)
        mine = {"key": f"example.com/{number}", "effect": "NoSchedule"}
        due.news.put_nowait((CONTAINER,) if number % 2 == 0 else ())
        node["spec"]["taints"] = [*node["spec"].get("taints", ()), mine]
        del node["metadata"]["resourceVersion"]
        api.admin.replace("nodes", node)
    await until(lambda: CONTAINER.key in keys(api))
    assert [f"example.com/{number}" in keys(api) for number in range(5)] == [True] * 5


async def test_a_taint_that_someone_removes_comes_back(api: ApiServerDouble, due: Due) -> None:
    due.news.put_nowait((CONTAINER,))
    await until(lambda: CONTAINER.key in keys(api))
    api.admin.patch("nodes", NAME, {"spec": {"taints": None}})
    await until(lambda: keys(api) == [CONTAINER.key])
