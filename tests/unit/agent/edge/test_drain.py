"""Drains that the guardian asks for, against an API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.agent.edge.drain import DrainLimits, NodeDrainer
from kubeletx.api import SystemClock
from kubeletx.api.names import DRAINED
from kubeletx.health.drain import DrainRequester, DrainState
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.types.core import Pod
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import until

NODE, OTHER = "edge", "other"
LIMITS = DrainLimits(
    cordon_seconds=0.01, drain_seconds=0.5, drain_tries=2, evict_seconds=0.01, unreachable_seconds=0.2
)
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    """An API server with two ready nodes and namespace default."""
    with ApiServerDouble(tmp_path / "api") as double:
        for name in (NODE, OTHER):
            double.admin.create("nodes", {"metadata": {"name": name}})
            double.admin.patch("nodes", name, {"status": READY}, subresource="status")
        yield double


@asynccontextmanager
async def draining(api: ApiServerDouble) -> AsyncIterator[NodeDrainer]:
    client = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=SystemClock())

    def pods() -> list[Pod]:
        found = api.admin.list("pods", "default")["items"]
        return [msgspec.convert(pod, Pod) for pod in found if "deletionTimestamp" not in pod["metadata"]]

    drainer = NodeDrainer(client, NODE, clock=SystemClock(), pods=pods, limits=LIMITS)
    task = asyncio.create_task(drainer.run())
    yield drainer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.close()


def run_pod(api: ApiServerDouble, name: str, **metadata: Any) -> None:
    spec = {"nodeName": NODE, "containers": [{"name": "main", "image": "busybox"}]}
    labels = {"app": "web"}
    api.admin.create(
        "pods", {"metadata": {"name": name, "labels": labels, **metadata}, "spec": spec}, "default"
    )
    api.admin.patch("pods", name, {"status": {"phase": "Running", **READY}}, "default", "status")


def is_cordoned(api: ApiServerDouble) -> bool:
    return bool(api.admin.get("nodes", NODE)["spec"].get("unschedulable"))


def is_marked(api: ApiServerDouble, pod: str) -> bool:
    return "deletionTimestamp" in api.admin.get("pods", pod, "default")["metadata"]


async def says(drainer: NodeDrainer, state: DrainState, requester: DrainRequester) -> None:
    await until(lambda: (drainer.status.status, drainer.status.requested_by) == (state, requester))


async def test_a_node_is_drained_and_uncordoned_after_the_reboot(api: ApiServerDouble) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    run_pod(api, "daemon", ownerReferences=[owner])
    run_pod(api, "web")
    async with draining(api) as drainer:
        assert drainer.status.status == DrainState.NOTREQUESTED
        drainer.request(DrainRequester.DEVICEOP)
        assert drainer.status.status == DrainState.REQUESTED
        await says(drainer, DrainState.COMPLETE, DrainRequester.DEVICEOP)
    assert is_cordoned(api)
    assert is_marked(api, "web")
    assert not is_marked(api, "daemon")
    async with draining(api) as drainer:  # the agent after the reboot
        before = drainer.status
        drainer.request(DrainRequester.NONE)
        # A request that is cancelled leaves a TLS connection that waits for the server, so wait for its answer.
        await until(lambda: drainer.status is not before)
        assert not is_cordoned(api)
        assert DRAINED not in api.admin.get("nodes", NODE)["metadata"].get("annotations", {})


async def test_a_cordon_of_a_user_stays(api: ApiServerDouble) -> None:
    api.admin.patch("nodes", NODE, {"spec": {"unschedulable": True}})
    async with draining(api) as drainer:
        drainer.request(DrainRequester.UPDATE)
        await says(drainer, DrainState.COMPLETE, DrainRequester.UPDATE)
        drainer.request(DrainRequester.NONE)
        await says(drainer, DrainState.NOTREQUESTED, DrainRequester.NONE)
    assert is_cordoned(api)


async def test_a_drain_that_a_budget_forbids_fails_and_is_undone_when_it_is_withdrawn(
    api: ApiServerDouble,
) -> None:
    run_pod(api, "web")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    api.admin.create("poddisruptionbudgets", {"metadata": {"name": "web"}, "spec": spec}, "default")
    counts = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status = {"status": {**counts, "observedGeneration": 1}}
    api.admin.patch("poddisruptionbudgets", "web", status, "default", "status")
    async with draining(api) as drainer:
        drainer.request(DrainRequester.DEVICEOP)
        await says(drainer, DrainState.DRAINRETRYING, DrainRequester.DEVICEOP)
        await says(drainer, DrainState.FAILEDDRAIN, DrainRequester.DEVICEOP)
        assert not is_marked(api, "web")
        drainer.request(DrainRequester.NONE)
        await says(drainer, DrainState.NOTREQUESTED, DrainRequester.NONE)
        assert not is_cordoned(api)


async def test_pods_stay_when_no_other_node_can_take_them(api: ApiServerDouble) -> None:
    run_pod(api, "web")
    api.admin.patch("nodes", OTHER, {"spec": {"unschedulable": True}})
    async with draining(api) as drainer:
        drainer.request(DrainRequester.DEVICEOP)
        await says(drainer, DrainState.COMPLETE, DrainRequester.DEVICEOP)
    assert not is_marked(api, "web")


async def test_a_node_that_cannot_be_cordoned_is_not_drained(api: ApiServerDouble) -> None:
    run_pod(api, "web")
    api.admin.delete("nodes", NODE)
    async with draining(api) as drainer:
        drainer.request(DrainRequester.DEVICEOP)
        await says(drainer, DrainState.FAILEDCORDON, DrainRequester.DEVICEOP)
    assert not is_marked(api, "web")


async def test_an_api_server_that_is_away_for_long_does_not_hold_a_reboot(api: ApiServerDouble) -> None:
    api.stop()
    async with draining(api) as drainer:
        drainer.request(DrainRequester.DEVICEOP)
        await says(drainer, DrainState.COMPLETE, DrainRequester.DEVICEOP)
