"""The connection, on libvirt's own test driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import libvirt
import pytest
import pytest_asyncio
from kubeletx_libvirt.client import Connection, DomainEvent

from kubeletx.api import Internal, InvalidConfig, NotFound, Unavailable
from kubeletx.testing import FakeHost

NOBODY = "00000000-0000-0000-0000-000000000001"


@pytest_asyncio.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    one = Connection("test:///default", FakeHost(tmp_path))
    await one.open()
    yield one
    await one.close()


async def test_errors_of_libvirt_become_ours(connection: Connection) -> None:
    with pytest.raises(NotFound, match="libvirt:"):
        await connection.use(libvirt.virConnect.lookupByUUIDString, NOBODY)
    with pytest.raises(Internal, match="libvirt:"):
        await connection.use(libvirt.virConnect.defineXML, "<no-domain/>")


async def test_events_arrive_at_every_subscriber(connection: Connection) -> None:
    first, second = connection.subscribe(), connection.subscribe()
    domain = await connection.use(libvirt.virConnect.lookupByName, "test")
    await connection.call(domain.suspend)
    async with asyncio.timeout(60):
        events = [await first.get(), await second.get()]
    await connection.call(domain.resume)
    expected = DomainEvent(domain.UUIDString(), "lifecycle", libvirt.VIR_DOMAIN_EVENT_SUSPENDED, 0)
    assert events == [expected, expected]


async def test_events_end_with_the_connection(connection: Connection) -> None:
    events = connection.domain_events()
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable, match="not open"):
        connection.get_handle()


async def test_opening_twice_keeps_the_connection_and_closing_twice_is_fine(connection: Connection) -> None:
    handle = connection.get_handle()
    await connection.open()
    assert connection.get_handle() is handle
    await connection.close()
    await connection.close()
    await connection.open()
    assert connection.get_handle() is not handle


async def test_a_libvirt_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    missing = Connection(f"qemu+unix:///system?socket={tmp_path}/none", FakeHost(tmp_path))
    with pytest.raises(Unavailable, match="does not answer"):
        await missing.open()


async def test_an_embedded_driver_wants_a_short_directory(tmp_path: Path) -> None:
    for url, problem in (
        ("qemu:///embed", "names no directory"),
        (f"qemu:///embed?root=/{'x' * 90}", "91 characters"),
    ):
        with pytest.raises(InvalidConfig, match=problem):
            await Connection(url, FakeHost(tmp_path)).open()
