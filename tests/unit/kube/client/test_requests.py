"""One client in several lanes: the same connections, limits of their own."""

from __future__ import annotations

import asyncio

import pytest

from kubeletx.api import SystemClock, Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.types.core import PodList
from tests.unit.kube.client.scripted_server import Script, pod_list, serve


async def never() -> None:
    """A limit that is used up."""
    await asyncio.Event().wait()


async def at_once() -> None:
    """A limit that is far away."""


async def test_a_lane_does_not_wait_for_the_limit_of_another() -> None:
    script = Script()
    script.lists = [pod_list(1)]
    async with serve(script) as access, asyncio.timeout(60):
        client = KubeClient(access, clock=SystemClock(), throttle=never)
        lane = client.lane(None)
        try:
            stuck = asyncio.create_task(client.get("/api/v1/pods", PodList))
            found = await lane.get("/api/v1/pods", PodList)
            assert found.metadata.resource_version == "1"
            assert not stuck.done()
            stuck.cancel()
        finally:
            await client.close()


async def test_lanes_know_together_whether_the_server_answers() -> None:
    async with serve(Script()) as access:
        client = KubeClient(access, clock=SystemClock())
    lane = client.lane(None)
    try:
        with pytest.raises(Unavailable):
            await lane.get("/api/v1/pods", PodList)
        assert client.problem == lane.problem != ""
    finally:
        await client.close()


async def test_requests_are_counted_as_client_go_counts_them() -> None:
    script = Script()
    script.lists = [pod_list(1)]
    async with serve(script) as access:
        client = KubeClient(access, clock=SystemClock(), throttle=at_once)
        other = KubeClient(access, clock=SystemClock(), counts=client.counts)
        try:
            await client.get("/api/v1/pods", PodList)
            with pytest.raises(Unavailable):
                await other.get("/no/such/path", PodList)
        finally:
            await client.close()
            await other.close()
    with pytest.raises(Unavailable):
        await client.get("/api/v1/pods", PodList)
    await client.close()
    host = access.server.removeprefix("http://")
    assert client.counts.answers == {
        ("200", host, "GET"): 1,
        ("503", host, "GET"): 1,
        ("<error>", host, "GET"): 1,
    }
    counted = {
        name: {labels: sum(one.counts) for labels, one in getattr(client.counts, name).items()}
        for name in ("durations", "throttled", "request_sizes", "response_sizes")
    }
    assert counted == {
        "durations": {(host, "GET"): 3},
        "throttled": {(host, "GET"): 2},
        "request_sizes": {(host, "GET"): 3},
        "response_sizes": {(host, "GET"): 1},
    }
