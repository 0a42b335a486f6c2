"""The live serial console as a `Session` (attach).

The emulator always writes the console's output to the unit's raw log file. A session gets the output that
appears during the session, and the session's input is written to the console. There is one console, and so
one session for each machine: a new attach ends the previous session with a message (as with ``virsh console
--force``; the session of a dead client must not lock an operator out). A session ends with the machine, not
at a reboot. The console has no end of file and no size: half-close and resize do nothing.

libvirt's event thread reads (without blocking) and passes bytes to the asyncio loop. Writes run on the host's
threads. If the output is not read, reading pauses and the guest's serial line fills up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import libvirt

from kubeletx.api import Channel, Host, KubeletxError, StreamRequest, UnitId
from kubeletx_libvirt.client import Connection
from kubeletx_libvirt.domain_reader import DomainReader, get_on

TAKEN_OVER = b"\r\n(kubeletx: another attach took over this console)\r\n"
_CHUNK = 64 * 1024
_PAUSE_AT = 1 << 20
"""Reading from the guest pauses while this many bytes wait for the client."""
_ENDED_EXIT_CODE = 0
_ABANDONED_EXIT_CODE = 137
_ENDS = libvirt.VIR_STREAM_EVENT_HANGUP | libvirt.VIR_STREAM_EVENT_ERROR


class Consoles:
    """Opens serial consoles of one runtime's machines (`SupportsAttach`), at most one session for each machine."""

    def __init__(self, connection: Connection, domains: DomainReader, host: Host) -> None:
        self._connection = connection
        self._domains = domains
        self._host = host
        self._open: dict[UnitId, ConsoleSession] = {}
        self._locks: dict[UnitId, asyncio.Lock] = {}

    async def attach(self, unit_id: UnitId, request: StreamRequest) -> ConsoleSession:
        await get_on(self._domains, unit_id, "it has no console; what it printed before is in its log")
        lock = self._locks.setdefault(unit_id, asyncio.Lock())
        async with lock:
            before = self._open.pop(unit_id, None)
            if before is not None:
                await before.end(TAKEN_OVER)
            session = ConsoleSession(self._connection, self._host, writable=request.stdin)
            await session.open(unit_id)
            self._open = {key: opened for key, opened in self._open.items() if not opened.is_ended}
            self._open[unit_id] = session
        return session

    async def close(self) -> None:
        sessions, self._open = list(self._open.values()), {}
        for session in sessions:
            await session.close()


class ConsoleSession:
    """One session on the serial console of a machine. Implements `kubeletx.api.Session`."""

    def __init__(self, connection: Connection, host: Host, *, writable: bool) -> None:
        """`writable`: False discards data that is written to the session."""
        self._connection = connection
        self._host = host
        self._writable = writable
        self._loop = asyncio.get_running_loop()
        self._stream: libvirt.virStream | None = None
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._is_paused = False
        self._can_write = asyncio.Event()
        self._exit: asyncio.Future[int] = self._loop.create_future()

    @property
    def is_ended(self) -> bool:
        return self._exit.done()

    async def open(self, unit_id: UnitId) -> None:
        self._stream = await self._connection.use(_open, unit_id, self._on_event)

    async def output(self) -> AsyncGenerator[tuple[Channel, bytes], None]:
        while (data := await self._parts.get()) is not None:
            self._waiting_bytes -= len(data)
            if self._is_paused and self._waiting_bytes < _PAUSE_AT // 2:
                self._is_paused = False
                await self._watch(write=False)
            yield Channel.STDOUT, data
        self._parts.put_nowait(None)

    async def write(self, data: bytes) -> None:
        """Send bytes to the console; waits while the guest does not read them.

        If the session ends or is not writable, the bytes are dropped.
        """
        while data and self._writable and not self.is_ended and self._stream is not None:
            self._can_write.clear()
            try:
                sent = await self._connection.call(_send, self._stream, data)
            except KubeletxError:
                self._finish(_ENDED_EXIT_CODE)
                return
            data = data[sent:]
            if data:
                await self._watch(write=True)
                await self._can_write.wait()

    async def close_stdin(self) -> None:
        """Do nothing: a serial line has no end of file. Output continues."""

    async def resize(self, width: int, height: int) -> None:
        """Do nothing: a serial line has no size. In the guest, ``stty rows R cols C`` sets one."""

    async def wait(self) -> int:
        """Wait for the session's end and return its exit code.

        It is 0 if the machine ended or another attach took over, 137 if `close` was called.
        """
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        self._finish(_ABANDONED_EXIT_CODE)
        await self._release()

    async def end(self, last_words: bytes) -> None:
        """End the session; `last_words` is the last output that its client gets."""
        if not self.is_ended:
            self._parts.put_nowait(last_words)
            self._waiting_bytes += len(last_words)
        self._finish(_ENDED_EXIT_CODE)
        await self._release()

    # --- on the loop ---

    def _take(self, data: bytes) -> None:
        if not self.is_ended:
            self._waiting_bytes += len(data)
            self._parts.put_nowait(data)

    def _finish(self, exit_code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(exit_code)
            self._parts.put_nowait(None)
            self._can_write.set()

    async def _watch(self, *, write: bool) -> None:
        if self._stream is not None:
            with contextlib.suppress(KubeletxError):  # it has ended meanwhile; an event reports that
                await self._connection.call(_watch, self._stream, self._is_paused, write)

    async def _release(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await self._host.blocking(_abort, stream)

    # --- on libvirt's event thread ---

    def _on_event(self, stream: libvirt.virStream, events: int, _opaque: Any) -> None:
        """Handle a stream event of libvirt. Never raises, since libvirt drops exceptions of callbacks."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: no waiter is left
            try:
                ended = self._read(stream, events)
            except libvirt.libvirtError:
                ended = True
            if ended:
                with contextlib.suppress(libvirt.libvirtError):
                    stream.eventUpdateCallback(0)
                self._loop.call_soon_threadsafe(self._finish, _ENDED_EXIT_CODE)

    def _read(self, stream: libvirt.virStream, events: int) -> bool:
        """Read the available output; returns True when the far end is closed and everything is read."""
        if events & libvirt.VIR_STREAM_EVENT_WRITABLE:
            stream.eventUpdateCallback(0 if self._is_paused else _events(write=False))
            self._loop.call_soon_threadsafe(self._can_write.set)
        while events & (libvirt.VIR_STREAM_EVENT_READABLE | _ENDS):
            if self._waiting_bytes >= _PAUSE_AT and not events & _ENDS:
                self._is_paused = True
                stream.eventUpdateCallback(_ENDS)
                return False
            data = stream.recv(_CHUNK)
            if not isinstance(data, bytes):  # -2: nothing more for now
                break
            if not data:
                return True
            self._loop.call_soon_threadsafe(self._take, data)
            if not events & _ENDS:
                break
        return bool(events & _ENDS)


def _events(*, write: bool) -> int:
    events: int = libvirt.VIR_STREAM_EVENT_READABLE | _ENDS
    if write:
        events |= libvirt.VIR_STREAM_EVENT_WRITABLE
    return events


# --- on the host's threads ---


def _open(handle: libvirt.virConnect, uuid: str, on_event: Any) -> libvirt.virStream:
    domain = handle.lookupByUUIDString(uuid)
    stream = handle.newStream(libvirt.VIR_STREAM_NONBLOCK)
    domain.openConsole(None, stream, libvirt.VIR_DOMAIN_CONSOLE_FORCE)
    stream.eventAddCallback(_events(write=False), on_event, None)
    return stream


def _send(stream: libvirt.virStream, data: bytes) -> int:
    """Send data without waiting; returns the number of bytes that libvirt accepted."""
    sent = 0
    while sent < len(data):
        count: int = stream.send(data[sent : sent + _CHUNK])
        if count < 0:
            break
        sent += count
    return sent


def _watch(stream: libvirt.virStream, is_paused: bool, write: bool) -> None:
    reading = _ENDS if is_paused else _events(write=False)
    stream.eventUpdateCallback(reading | (libvirt.VIR_STREAM_EVENT_WRITABLE if write else 0))


def _abort(stream: libvirt.virStream) -> None:
    with contextlib.suppress(libvirt.libvirtError):  # it ended with the machine or the connection
        stream.eventRemoveCallback()
    with contextlib.suppress(libvirt.libvirtError):
        stream.abort()
