"""Connections to a machine's address, against a server of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kubeletx_libvirt.forwarding import Forwards
from kubeletx_libvirt.records import Records, SandboxRecord

from kubeletx.api import Channel, Conflict, NotFound, SandboxId, Unavailable
from kubeletx.testing import FakeHost, sandbox_spec

BOX = SandboxId("box")


async def forwards(directory: Path, *ips: str, is_stopped: bool = False) -> Forwards:
    records = Records(FakeHost(directory))
    record = SandboxRecord(
        spec=sandbox_spec("web"), created_at_ns=1, is_ready=True, is_stopped=is_stopped, ips=ips
    )
    await records.save_sandbox(BOX, record)
    return Forwards(records)


@asynccontextmanager
async def echo_server() -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = await reader.read()
        writer.write(text.upper())
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_bytes_go_both_ways_over_a_half_close(tmp_path: Path) -> None:
    async with echo_server() as port:
        session = await (await forwards(tmp_path, "127.0.0.1")).port_forward(BOX, port)
        await session.write(b"hello " * 100_000)
        await session.close_stdin()
        answer = b""
        async for channel, data in session.output():
            assert channel is Channel.STDOUT
            answer += data
        assert answer == b"HELLO " * 100_000
        assert await session.wait() == 0
        await session.close()
        await session.close()


async def test_the_next_address_is_tried_when_one_takes_no_connection(tmp_path: Path) -> None:
    async with echo_server() as port:
        session = await (await forwards(tmp_path, "::1", "127.0.0.1")).port_forward(BOX, port)
        await session.close()


async def test_a_port_no_one_listens_on_is_reported_with_machine_and_address(tmp_path: Path) -> None:
    async with echo_server() as port:
        pass
    with pytest.raises(Unavailable, match=f"port {port} of machine default/web: 127.0.0.1: .*refused"):
        await (await forwards(tmp_path, "127.0.0.1")).port_forward(BOX, port)


async def test_a_machine_without_an_address_takes_no_connection(tmp_path: Path) -> None:
    for one in (await forwards(tmp_path), await forwards(tmp_path, "127.0.0.1", is_stopped=True)):
        with pytest.raises(Conflict, match="no address"):
            await one.port_forward(BOX, 80)
    with pytest.raises(NotFound):
        await one.port_forward(SandboxId("other"), 80)
