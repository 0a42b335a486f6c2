"""One client in several lanes: the same connections, limits of their own."""

from __future__ import annotations

import asyncio

import pytest
from scripted_server import Script, pod_list, serve

from kubeletx.api import Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.core import PodList
from kubeletx.runtimes.clock import SystemClock


async def never() -> None:
    """A limit that is used up."""
    await asyncio.Event().wait()


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
