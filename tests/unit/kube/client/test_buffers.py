"""Connections of watches rest in little memory. Pins what is used of CPython's asyncio.sslproto."""

from __future__ import annotations

import asyncio
import gc
from asyncio.sslproto import SSLProtocol
from pathlib import Path

from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.client.buffers import READ_BYTES, shrink
from kubeletx.kube.client.resources import CONFIG_MAPS
from kubeletx.runtimes.clock import SystemClock
from kubeletx.testing.apiserver import ApiServerDouble

GUARD_SECONDS = 60
PATH = CONFIG_MAPS.path("default")


async def test_a_watch_reads_into_a_small_buffer_and_large_events_come_whole(tmp_path: Path) -> None:
    with ApiServerDouble(tmp_path / "api") as api:
        client = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=SystemClock())
        big = "x" * 900_000
        params = {"watch": "true", "resourceVersion": str(api.revision)}
        async with asyncio.timeout(GUARD_SECONDS):
            async with client.stream(PATH, params=params) as content:
                ours = [one for one in gc.get_objects() if isinstance(one, SSLProtocol)]
                sizes = {len(one._ssl_buffer) for one in ours}  # type: ignore[attr-defined]
                assert READ_BYTES in sizes
                value = {"metadata": {"name": "big"}, "data": {"k": big}}
                await asyncio.to_thread(api.admin.create, "configmaps", value, "default")
                received = bytearray()
                while not received.endswith(b"\n"):
                    received += await content.readany()
                assert big.encode() in received
            await client.close()


def test_what_is_no_tls_connection_stays_as_it_is() -> None:
    assert not shrink(None)
    assert not shrink(asyncio.Transport())
