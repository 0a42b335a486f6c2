"""A console session over a stream that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import libvirt
import pytest
from kubeletx_libvirt.console import TAKEN_OVER, Consoles, ConsoleSession

from kubeletx.api import Channel, Conflict, StreamRequest, UnitId, UnitState
from kubeletx.testing import FakeHost

UNIT = UnitId("u")


class Stream:
    """A virStream: what the guest printed, what it took, and the events that are watched."""

    def __init__(self) -> None:
        self.printed: list[bytes] = []
        self.typed = b""
        self.room = 1 << 20
        self.watched = 0
        self.aborted = False
        self.writable_wanted = asyncio.Event()
        self.callback: Callable[..., None] | None = None

    def eventAddCallback(self, events: int, callback: Callable[..., None], opaque: Any) -> None:
        self.watched, self.callback = events, callback

    def eventUpdateCallback(self, events: int) -> None:
        self.watched = events
        if events & libvirt.VIR_STREAM_EVENT_WRITABLE:
            self.writable_wanted.set()

    def eventRemoveCallback(self) -> None:
        self.callback = None

    def recv(self, size: int) -> bytes | int:
        return self.printed.pop(0) if self.printed else -2

    def send(self, data: bytes) -> int:
        if not self.room:
            return -2
        taken = data[: self.room]
        self.room -= len(taken)
        self.typed += taken
        return len(taken)

    def abort(self) -> None:
        self.aborted = True

    def tell(self, events: int) -> None:
        assert self.callback is not None
        self.callback(self, events, None)


class Wire:
    """A `Connection` whose every console is a new `Stream`."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.forced: list[int] = []

    async def use(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(self, *args)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def lookupByUUIDString(self, uuid: str) -> Wire:
        return self

    def newStream(self, flags: int) -> Stream:
        assert flags == libvirt.VIR_STREAM_NONBLOCK
        self.streams.append(Stream())
        return self.streams[-1]

    def openConsole(self, name: str | None, stream: Stream, flags: int) -> None:
        self.forced.append(flags)


class Identity:
    namespace, pod = "default", "web"


class Machines:
    identity = Identity()

    def __init__(self, state: UnitState) -> None:
        self._state = state

    async def get(self, unit_id: UnitId) -> Machines:
        return self

    def state(self, unit_id: UnitId, domain: Machines) -> UnitState:
        return self._state


def consoles(wire: Wire, tmp_path: Path, state: UnitState = UnitState.RUNNING) -> Consoles:
    return Consoles(wire, Machines(state), FakeHost(tmp_path))  # type: ignore[arg-type]  # fakes of our own


async def collect(session: ConsoleSession) -> bytes:
    return b"".join([data async for channel, data in session.output() if channel is Channel.STDOUT])


async def test_what_the_guest_prints_is_read_and_its_end_ends_the_session(tmp_path: Path) -> None:
    wire = Wire()
    session = await consoles(wire, tmp_path).attach(UNIT, StreamRequest(stdin=True))
    (stream,) = wire.streams
    stream.printed = [b"login: "]
    stream.tell(libvirt.VIR_STREAM_EVENT_READABLE)
    stream.printed = [b"bye\n", b""]
    stream.tell(libvirt.VIR_STREAM_EVENT_READABLE | libvirt.VIR_STREAM_EVENT_HANGUP)
    assert await collect(session) == b"login: bye\n"
    assert await session.wait() == 0
    await session.close()
    await session.close()
    assert stream.aborted


async def test_typing_waits_until_the_guest_takes_it(tmp_path: Path) -> None:
    wire = Wire()
    session = await consoles(wire, tmp_path).attach(UNIT, StreamRequest(stdin=True))
    (stream,) = wire.streams
    stream.room = 2
    writing = asyncio.create_task(session.write(b"root"))
    await stream.writable_wanted.wait()
    assert not writing.done()
    stream.room = 10
    stream.tell(libvirt.VIR_STREAM_EVENT_WRITABLE)
    await writing
    assert stream.typed == b"root"
    await session.close()


async def test_without_input_nothing_is_typed(tmp_path: Path) -> None:
    wire = Wire()
    session = await consoles(wire, tmp_path).attach(UNIT, StreamRequest())
    await session.write(b"reboot\n")
    assert wire.streams[0].typed == b""
    await session.close()


async def test_a_new_attach_ends_the_one_before_with_a_message(tmp_path: Path) -> None:
    wire = Wire()
    one = consoles(wire, tmp_path)
    first = await one.attach(UNIT, StreamRequest(stdin=True))
    second = await one.attach(UNIT, StreamRequest(stdin=True))
    assert await collect(first) == TAKEN_OVER
    assert await first.wait() == 0
    assert (wire.streams[0].aborted, wire.streams[1].aborted) == (True, False)
    assert set(wire.forced) == {libvirt.VIR_DOMAIN_CONSOLE_FORCE}
    await one.close()
    assert await second.wait() == 137


async def test_reading_pauses_while_no_one_takes_the_output(tmp_path: Path) -> None:
    wire = Wire()
    session = await consoles(wire, tmp_path).attach(UNIT, StreamRequest())
    (stream,) = wire.streams
    readable = libvirt.VIR_STREAM_EVENT_READABLE
    while stream.watched & readable:
        stream.printed = [b"x" * 65536]
        stream.tell(readable)
        await asyncio.sleep(0)
    async with aclosing(session.output()) as output:
        while not stream.watched & readable:
            await anext(output)
    await session.close()


@pytest.mark.parametrize("state", [UnitState.CREATED, UnitState.EXITED, UnitState.SUSPENDED])
async def test_a_machine_that_is_off_has_no_console(state: UnitState, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="not running"):
        await consoles(Wire(), tmp_path, state).attach(UNIT, StreamRequest())
