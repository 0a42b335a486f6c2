"""Requests are counted as a kubelet counts them, and strangers cannot make series."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from kubeletx.server.metrics.http_counts import HttpCounts, counting, first_part
from tests.unit.server.api_client import serving


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/pods", "pods"),
        ("/containerLogs/ns/pod/main", "containerLogs"),
        ("/metrics", "metrics"),
        ("/metrics/cadvisor", "metrics/cadvisor"),
        ("/", ""),
    ],
)
def test_the_first_part_of_a_path_counts(path: str, part: str) -> None:
    assert first_part(path) == part


async def test_a_request_is_in_flight_until_it_is_answered_and_unknown_paths_are_one_series() -> None:
    counts, gate = HttpCounts(), asyncio.Event()
    middleware = counting(counts, "readwrite", ["/exec/{namespace}/{pod}/{container}", "/pods"])

    async def wait(_request: web.Request) -> web.StreamResponse:
        await gate.wait()
        raise web.HTTPNotFound

    paths = [*(f"/x{n}" for n in range(50)), "/exec/a/b/c"]
    tasks = [asyncio.ensure_future(middleware(make_mocked_request("GET", path), wait)) for path in paths]
    tasks.append(asyncio.ensure_future(middleware(make_mocked_request("BREW", "/pods"), wait)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    other = ("GET", "other", "readwrite", "false")
    exec_ = ("GET", "exec", "readwrite", "true")
    odd = ("other", "pods", "readwrite", "false")
    assert counts.inflight == {other: 50, exec_: 1, odd: 1}
    gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert counts.requests == {other: 50, exec_: 1, odd: 1}
    assert not +counts.inflight
    assert {labels: sum(one.counts) for labels, one in counts.durations.items()} == counts.requests


async def test_the_api_counts_refused_requests_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.get("/pods")
        await api.ask("GET", "/pods", certificate=None)
        await api.get("/no/such/path")
        found = api.counts.requests
        assert found["GET", "pods", "readwrite", "false"] == 2
        assert found["GET", "other", "readwrite", "false"] == 1
