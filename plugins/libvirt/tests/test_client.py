"""The connection, on libvirt's own test driver."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import libvirt
import pytest
import pytest_asyncio
from kubeletx_libvirt.client import Connection, DomainEvent, forget_unborn

from kubeletx.api import Internal, InvalidConfig, NotFound, Unavailable
from kubeletx.testing import FakeHost
from kubeletx_testing.waiting import until

NOBODY = "00000000-0000-0000-0000-000000000001"


@pytest_asyncio.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    opened = Connection("test:///default", FakeHost(tmp_path))
    await opened.open()
    yield opened
    await opened.close()


def call_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if re.fullmatch(r"libvirt-\d+", thread.name)}


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
    events = connection.subscribe()
    await connection.close()
    assert await events.get() is None
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


async def test_eight_slow_calls_run_at_once_and_a_probe_does_not_wait_for_them(
    connection: Connection,
) -> None:
    running, may_end = threading.Semaphore(0), threading.Event()

    def slow() -> None:
        running.release()
        assert may_end.wait(60)

    calls = [asyncio.ensure_future(connection.call(slow)) for _ in range(10)]
    for _ in range(8):
        assert await asyncio.to_thread(running.acquire, timeout=60)
    assert await connection.probe(libvirt.virConnect.isAlive)
    assert not any(call.done() for call in calls)
    may_end.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [result for result in results[:8] if result is not None] == []


async def test_threads_that_hang_are_not_replaced_when_the_connection_is_made_again(
    connection: Connection,
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert may_end.wait(60)

    call = asyncio.ensure_future(connection.call(hang))
    await asyncio.to_thread(begun.wait, 60)
    before = call_threads()
    connection.get_handle().close()
    await connection.open()
    assert await connection.probe(libvirt.virConnect.isAlive)
    assert before <= call_threads()
    may_end.set()
    await call


async def test_a_call_that_nothing_awaits_any_more_leaves_no_thread_after_the_close(
    connection: Connection,
) -> None:
    begun, may_end, before = threading.Event(), threading.Event(), call_threads()

    def hang() -> None:
        begun.set()
        assert may_end.wait(60)

    call = asyncio.ensure_future(connection.call(hang))
    await asyncio.to_thread(begun.wait, 60)
    call.cancel()
    await connection.close()
    may_end.set()
    await until(lambda: not call_threads() - before)


async def test_a_connection_that_came_too_late_is_closed_and_does_not_tell_events_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, closed = threading.Event(), threading.Event()
    connect = libvirt.open

    def slow_open(url: str) -> libvirt.virConnect:
        assert hung.wait(60)
        handle = connect(url)
        close = handle.close

        def seen_close() -> int:
            left: int = close()
            closed.set()
            return left

        handle.close = seen_close
        return handle

    monkeypatch.setattr(libvirt, "open", slow_open)  # no real libvirt hangs for just long enough
    opened = Connection("test:///default", FakeHost(tmp_path))
    late = asyncio.ensure_future(opened.open())
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    hung.set()
    await opened.open()
    assert await asyncio.to_thread(closed.wait, 60)
    events = opened.subscribe()
    domain = await opened.use(libvirt.virConnect.lookupByName, "test")
    await opened.call(domain.suspend)
    await opened.call(domain.resume)
    async with asyncio.timeout(60):
        reported = [(await events.get() or DomainEvent("", "")).event for _ in range(2)]
    assert reported == [libvirt.VIR_DOMAIN_EVENT_SUSPENDED, libvirt.VIR_DOMAIN_EVENT_RESUMED]
    await opened.close()


async def test_a_connection_that_broke_without_a_word_is_made_again(connection: Connection) -> None:
    broken = connection.get_handle()
    broken.close()
    await connection.open()
    assert connection.get_handle() is not broken
    await connection.use(libvirt.virConnect.lookupByName, "test")


async def test_a_libvirt_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    missing = Connection(f"qemu+unix:///system?socket={tmp_path}/none", FakeHost(tmp_path))
    with pytest.raises(Unavailable, match="does not answer"):
        await missing.open()


async def test_an_embedded_driver_needs_a_short_directory(tmp_path: Path) -> None:
    for url, problem in (
        ("qemu:///embed", "names no directory"),
        (f"qemu:///embed?root=/{'x' * 90}", "91 characters"),
    ):
        with pytest.raises(InvalidConfig, match=problem):
            await Connection(url, FakeHost(tmp_path)).open()


def test_machines_of_which_no_emulator_was_made_are_off_for_an_embedded_driver(tmp_path: Path) -> None:
    """libvirt 9 would keep them on for ever: it looks only after those that have a process."""
    unborn, born = tmp_path / "kx-1.xml", tmp_path / "kx-2.xml"
    unborn.write_text("<!--\n-->\n\n<domstatus state='paused' reason='starting up' pid='0'>\n</domstatus>")
    born.write_text(
        "<domstatus state='running' reason='booted' pid='10'>\n<vcpu id='0' pid='0'/>\n</domstatus>"
    )
    forget_unborn(tmp_path)
    assert list(tmp_path.iterdir()) == [born]
