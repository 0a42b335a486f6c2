"""The health port and the read-only port."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from kubeletx.api import InvalidConfig
from kubeletx.api.counting import Durations, counter, gauge, histogram
from kubeletx.kube.types.core import ObjectMeta, Pod
from kubeletx.server.healthz import health_server
from kubeletx.server.kubelet.readonly import readonly_server
from kubeletx.server.views import HealthView, PartHealth
from tests.unit.server.api_client import NoFigures
from tests.unit.server.fake_admin import FakeAdminBackend


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def test_health_names_the_part_that_failed() -> None:
    backend = FakeAdminBackend()
    server = health_server(backend, "127.0.0.1", 0)
    await server.start()
    try:
        assert await get(server.port, "/healthz") == (200, "ok")
        assert await get(server.port, "/healthz/ping") == (200, "ok")
        assert await get(server.port, "/healthz/syncloop") == (200, "ok")
        backend.health_view = HealthView(
            parts=(
                PartHealth(name="store", ok=True, message="slow"),
                PartHealth(name="syncloop", ok=False, message="stuck for 6m"),
            )
        )
        code, text = await get(server.port, "/healthz")
        assert code == 500
        assert "[+]store ok: slow\n[-]syncloop failed: stuck for 6m" in text
        assert await get(server.port, "/healthz/syncloop") == (500, "stuck for 6m")
        assert await get(server.port, "/healthz/store") == (200, "ok: slow")
        assert await get(server.port, "/healthz/ping") == (200, "ok")
        assert (await get(server.port, "/healthz/other"))[0] == 404
    finally:
        await server.stop()


async def test_a_connection_without_requests_is_closed() -> None:
    server = health_server(FakeAdminBackend(), "127.0.0.1", 0, idle_seconds=0.1)
    await server.start()
    try:
        async with asyncio.timeout(60):
            for request in (b"", b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(request)
                assert (await reader.read()).endswith(b"ok" if request else b"")
                writer.close()
    finally:
        await server.stop()


async def test_a_port_in_use_is_refused_by_its_flag() -> None:
    backend = FakeAdminBackend()
    first = health_server(backend, "127.0.0.1", 0)
    await first.start()
    try:
        second = health_server(backend, "127.0.0.1", first.port)
        with pytest.raises(InvalidConfig, match=r"--healthz-port: cannot listen"):
            await second.start()
    finally:
        await first.stop()


async def test_the_read_only_port_shows_pods_and_metrics() -> None:
    backend = FakeAdminBackend()
    backend.put(Pod(metadata=ObjectMeta(name="a", namespace="default")))
    took = Durations((0.1, 1.0))
    for seconds in (0.1, 0.5, 2.0):
        took.add(seconds)
    labels = ("operation_type", "runtime")
    backend.agent_metrics = [
        gauge("kubelet_running_pods", "Pods.", lambda: 1),
        gauge("kubelet_running_containers", "Containers.", {"running": 2}, "container_state"),
        counter("kubelet_runtime_operations_total", "Calls.", {("create_sandbox", "one"): 3}, *labels),
        histogram("x_seconds", "Time.", lambda: [(("one", "b"), took)], "runtime", "a"),
    ]
    server = readonly_server(backend.parts, NoFigures(), "127.0.0.1", 0)
    await server.start()
    try:
        assert '"kind":"PodList"' in (await get(server.port, "/pods"))[1]
        text = (await get(server.port, "/metrics"))[1]
    finally:
        await server.stop()
    assert text.partition("# HELP process_")[0] == (
        "# HELP kubelet_running_pods Pods.\n# TYPE kubelet_running_pods gauge\nkubelet_running_pods 1.0\n"
        "# HELP kubelet_running_containers Containers.\n# TYPE kubelet_running_containers gauge\n"
        'kubelet_running_containers{container_state="running"} 2.0\n'
        "# HELP kubelet_runtime_operations_total Calls.\n# TYPE kubelet_runtime_operations_total counter\n"
        'kubelet_runtime_operations_total{operation_type="create_sandbox",runtime="one"} 3.0\n'
        "# HELP x_seconds Time.\n# TYPE x_seconds histogram\n"
        'x_seconds_bucket{le="0.1",a="b",runtime="one"} 1.0\n'
        'x_seconds_bucket{le="1.0",a="b",runtime="one"} 2.0\n'
        'x_seconds_bucket{le="+Inf",a="b",runtime="one"} 3.0\n'
        'x_seconds_count{a="b",runtime="one"} 3.0\nx_seconds_sum{a="b",runtime="one"} 2.6\n'
    )
