"""Connections of watches rest in little memory. Pins what is used of CPython's asyncio.sslproto."""

from __future__ import annotations

import asyncio
import gc
import ssl
from asyncio.sslproto import SSLProtocol
from pathlib import Path

import pytest

from kubeletx.api import SystemClock
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.client.resources import CONFIG_MAPS
from kubeletx.kube.tls_buffers import READ_BYTES, begin_small, shrink
from kubeletx_testing.apiserver import ApiServerDouble, CertificateAuthority
from kubeletx_testing.waiting import until

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


async def test_who_opens_a_connection_and_says_nothing_takes_little_once_a_program_began_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    begin_small()
    pair = CertificateAuthority(tmp_path).server("one")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(GUARD_SECONDS):
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: any(map(is_waiting, gc.get_objects())))
        theirs = list(filter(is_waiting, gc.get_objects()))
        assert [len(one._ssl_buffer) for one in theirs] == [READ_BYTES]  # type: ignore[attr-defined]
        silent.close()
        await silent.wait_closed()
        server.close()
        await server.wait_closed()
        await until(lambda: not any(map(is_waiting, gc.get_objects())))


def is_waiting(one: object) -> bool:
    """For the first byte of a handshake."""
    return isinstance(one, SSLProtocol) and one._transport is not None


def test_what_is_not_a_tls_connection_stays_as_it_is() -> None:
    assert not shrink(None)
    assert not shrink(asyncio.Transport())
