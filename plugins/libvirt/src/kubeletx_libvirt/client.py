"""Connection to libvirt: blocking calls on threads of the connection, and events for subscribers.

libvirt's own event loop runs in one daemon thread of the process (libvirt has only one for all connections).
Its callbacks only pass a small value to the asyncio loop. An embedded driver (``qemu:///embed``) needs the
thread even without subscribers. When a connection breaks, every subscriber is notified once, and every later
call raises Unavailable until `Connection.open` succeeds again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from urllib.parse import parse_qs, urlsplit

import libvirt

from kubeletx.api import BoundedThreadPool, Host, InvalidConfig, Unavailable
from kubeletx.linux.files import replace_unflushed
from kubeletx_libvirt.errors import translate
from kubeletx_libvirt.mount_visibility import find_daemon, socket_of

P = ParamSpec("P")
R = TypeVar("R")

_CONCURRENT_CALLS = 8
"""Number of calls that run at the same time; further callers wait.

It equals the number of changes that the agent makes at the same time: libvirt returns from the start of a machine only
when the emulator runs, so each start occupies a thread for hundreds of milliseconds.
"""
GUEST_CALLS = 4
"""Number of threads for calls to guest agents. libvirtd runs five calls of one client at the same time."""
_FAILED_EVENTS_SECONDS = 0.1
_KEEPALIVE_SECONDS = 5
_KEEPALIVE_COUNT = 3
_LONGEST_ROOT = 107 - len("/lib/qemu/channel/target/domain-1000000-kx-01234567/org.qemu.guest_agent.0")
_UNBORN = re.compile(rb"<domstatus\b[^>]*\bpid='0'")
_QEMU_CONF = """\
# Written by kubeletx for its embedded driver; edit as you like, it is only written when it is missing.
user = "root"
group = "root"
remember_owner = 0
stdio_handler = "file"
security_driver = "none"
namespaces = []
"""


class DomainEvent(NamedTuple):
    """One event of a domain. `kind`: lifecycle, reboot, watchdog, agent, device-removed or memory.

    `uuid`: the domain. `event`, `detail`: libvirt's arguments of kinds lifecycle and agent; else 0.
    """

    uuid: str
    kind: str
    event: int = 0
    detail: int = 0


class _Attempt:
    """One attempt to connect, shared by the thread that connects and the caller that waits for it.

    A libvirt that hangs may answer long after the caller has given up. The thread then closes the new
    connection itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._made: tuple[libvirt.virConnect, list[int]] | None = None

    def succeed(self, handle: libvirt.virConnect, callbacks: list[int]) -> bool:
        """Pass the new connection to the waiting caller.

        Returns False if the caller has given up; the thread must then close the connection.
        """
        with self._lock:
            if not self._is_over:
                self._made = (handle, callbacks)
            return not self._is_over

    def end(self) -> tuple[libvirt.virConnect, list[int]] | None:
        """End the wait: return the connection and the ids of its callbacks, or None if there is no connection yet.

        After None, the thread closes a connection that it makes later; see `succeed`.
        """
        with self._lock:
            self._is_over = True
            return self._made


def _threads() -> BoundedThreadPool:
    return BoundedThreadPool("libvirt", threads=_CONCURRENT_CALLS + 1)


def _guest_threads() -> BoundedThreadPool:
    return BoundedThreadPool("libvirt-guests", threads=GUEST_CALLS)


class Connection:
    """Connection to one libvirt URL: runs calls and delivers events. `open` reconnects after a failure."""

    def __init__(self, url: str, host: Host) -> None:
        """`url`: libvirt's connection URI, such as qemu:///system."""
        self.url = url
        self._host = host
        self._handle: libvirt.virConnect | None = None
        self._callbacks: list[int] = []
        self._subscribers: set[asyncio.Queue[DomainEvent | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(_CONCURRENT_CALLS)
        self._threads = _threads()
        self._guest_threads = _guest_threads()
        self._lost = ""
        self._daemon: int | None = None
        self._was_prepared = False

    @property
    def is_embedded(self) -> bool:
        """True if libvirt's driver runs in this process."""
        return urlsplit(self.url).path == "/embed"

    async def open(self) -> None:
        """Connect, unless there is a working connection. Raises Unavailable if libvirt does not answer."""
        if self._handle is not None and not self._lost:
            # libvirt may report a broken connection late, or may have done so before `_handle` was set.
            if await self._host.blocking(_is_alive, self._handle):
                return
            self._lost = "it is broken"
        await self._disconnect()
        if (
            not self._threads.busy
        ):  # threads that hang are kept, so that repeated outages do not add more of them
            self._renew_threads()
        self._loop = asyncio.get_running_loop()
        start_event_thread()
        attempt = _Attempt()
        try:
            await self._host.blocking(self._connect, attempt)
        finally:
            # Also if the caller gave up: a connection that was made just then is used, not leaked.
            if (made := attempt.end()) is not None:
                self._handle, self._callbacks = made
                self._lost = ""
                self._daemon = None

    async def close(self) -> None:
        """Disconnect. The queue of every subscriber gets None. A thread whose call hangs ends with this call."""
        await self._disconnect()
        self._renew_threads()
        self._guest_threads.close()
        self._guest_threads = _guest_threads()

    async def _disconnect(self) -> None:
        handle, self._handle = self._handle, None
        self._end_subscriptions()
        if handle is not None:
            callbacks, self._callbacks = self._callbacks, []
            await self._host.blocking(_disconnect, handle, callbacks)

    def _renew_threads(self) -> None:
        self._threads.close()
        self._threads = _threads()

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `function`, which may block, on one of the connection's threads and return its result.

        Translates libvirt's errors to errors of `kubeletx.api`.
        """
        async with self._slots:
            return await self._threads.run(_translated, functools.partial(function, *args, **kwargs))

    async def probe(self, function: Callable[[libvirt.virConnect], R]) -> R:
        """Run `function` as `use` does, but at once, on a thread that `call` never occupies. One caller at a time."""
        work = functools.partial(function, self.get_handle())
        return await self._threads.run(_translated, work)

    async def use_guest(
        self, function: Callable[Concatenate[libvirt.virConnect, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run `function` as `use` does, on a thread for calls that wait for a guest: guests that hang occupy no other.

        At most `GUEST_CALLS` callers at the same time; a cancelled caller counts until its thread returns.
        """
        work = functools.partial(function, self.get_handle(), *args, **kwargs)
        return await self._guest_threads.run(_translated, work)

    async def use(
        self, function: Callable[Concatenate[libvirt.virConnect, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run `function` as `call` does, with libvirt's connection as its first argument.

        Raises Unavailable if there is no connection.
        """
        return await self.call(function, self.get_handle(), *args, **kwargs)

    def get_handle(self) -> libvirt.virConnect:
        """Return libvirt's connection object. Raises Unavailable if the connection is lost or not open."""
        if self._handle is None or self._lost:
            raise Unavailable(f"no connection to libvirt at {self.url}: {self._lost or 'not open'}")
        return self._handle

    async def find_daemon(self) -> int | None:
        """Return the process id of the daemon that starts emulators for this connection; None if unknown.

        Raises Unavailable if the daemon does not answer on its socket.
        """
        if self._daemon is None and (path := socket_of(self.url)) is not None:
            self._daemon = await self._host.blocking(find_daemon, path)
        return self._daemon

    def subscribe(self) -> asyncio.Queue[DomainEvent | None]:
        """Return a queue that gets every later event, and None when the connection ends."""
        queue: asyncio.Queue[DomainEvent | None] = asyncio.Queue()
        self._subscribers.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[DomainEvent | None]) -> None:
        self._subscribers.discard(queue)

    def _end_subscriptions(self) -> None:
        subscribers, self._subscribers = self._subscribers, set()
        for queue in subscribers:
            queue.put_nowait(None)

    # --- on the host's threads ---

    def _connect(self, attempt: _Attempt) -> None:
        if self.is_embedded and not self._was_prepared:
            _prepare_embedded(self.url)
            self._was_prepared = True
        handle: libvirt.virConnect | None = None
        callbacks: list[int] = []
        try:
            handle = libvirt.open(self.url)
            self._register(handle, callbacks)
        except libvirt.libvirtError as error:
            if handle is not None:
                _disconnect(handle, callbacks)
            raise Unavailable(f"libvirt at {self.url} does not answer: {error}") from error
        if not attempt.succeed(handle, callbacks):
            _disconnect(handle, callbacks)

    def _register(self, handle: libvirt.virConnect, callbacks: list[int]) -> None:
        if not self.is_embedded:
            with contextlib.suppress(libvirt.libvirtError):  # the test driver has neither
                handle.registerCloseCallback(self._on_close, None)
                handle.setKeepAlive(_KEEPALIVE_SECONDS, _KEEPALIVE_COUNT)
        for number, callback in (
            (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle),
            (libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, self._callback("reboot")),
            (libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE, self._on_agent),
            (libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG, self._callback("watchdog")),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, self._callback("device-removed")),
            (libvirt.VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE, self._callback("memory")),
            (libvirt.VIR_DOMAIN_EVENT_ID_BALLOON_CHANGE, self._callback("memory")),
        ):
            callbacks.append(handle.domainEventRegisterAny(None, number, callback, None))

    # --- on libvirt's event thread ---

    def _tell(self, event: DomainEvent) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no waiter is left
                self._loop.call_soon_threadsafe(self._spread, event)

    def _spread(self, event: DomainEvent) -> None:
        for queue in self._subscribers:
            queue.put_nowait(event)

    def _on_close(self, handle: libvirt.virConnect, reason: int, _opaque: Any) -> None:
        words = {
            0: "an error",
            1: "libvirt went away",
            2: "no answer to keep-alive messages",
            3: "closed here",
        }
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no subscriber is left
                self._loop.call_soon_threadsafe(self._on_lost, handle, words.get(reason, f"reason {reason}"))

    def _on_lost(self, handle: libvirt.virConnect, reason: str) -> None:
        if handle is self._handle:
            self._lost = reason
            self._end_subscriptions()

    def _on_lifecycle(self, _c: Any, domain: libvirt.virDomain, event: int, detail: int, _o: Any) -> None:
        self._tell(DomainEvent(domain.UUIDString(), "lifecycle", event, detail))

    def _on_agent(self, _c: Any, domain: libvirt.virDomain, state: int, reason: int, _o: Any) -> None:
        self._tell(DomainEvent(domain.UUIDString(), "agent", state, reason))

    def _callback(self, kind: str) -> Callable[..., None]:
        """Return a callback for events whose further arguments are not used."""
        return lambda _connection, domain, *_: self._tell(DomainEvent(domain.UUIDString(), kind))


@functools.cache
def start_event_thread() -> threading.Thread:
    """Start libvirt's event loop in a thread, once per process. Call it before the first connection."""
    libvirt.registerErrorHandler(_quiet, None)
    libvirt.virEventRegisterDefaultImpl()
    thread = threading.Thread(target=_run_events, name="libvirt-events", daemon=True)
    thread.start()
    return thread


def _run_events() -> None:
    while True:
        try:
            libvirt.virEventRunDefaultImpl()
        except libvirt.libvirtError:
            # A single failure, such as a descriptor that was just closed, must not end the events of all
            # connections; a permanent failure must not use a whole CPU.
            time.sleep(_FAILED_EVENTS_SECONDS)


def _quiet(_context: Any, _error: Any) -> None:
    """Discard the error messages that libvirt would print. Errors are raised as exceptions too."""


def _translated(function: Callable[[], R]) -> R:
    try:
        return function()
    except libvirt.libvirtError as error:
        raise translate(error) from error


def _is_alive(handle: libvirt.virConnect) -> bool:
    """Return True if the connection's socket is open. No message is sent to libvirt."""
    try:
        return bool(handle.isAlive())
    except libvirt.libvirtError:
        return False


def _disconnect(handle: libvirt.virConnect, callbacks: list[int]) -> None:
    with contextlib.suppress(libvirt.libvirtError):  # a broken connection has no callbacks any more
        for number in callbacks:
            handle.domainEventDeregisterAny(number)
    with contextlib.suppress(libvirt.libvirtError):
        handle.unregisterCloseCallback()
    with contextlib.suppress(libvirt.libvirtError):
        handle.close()


def _prepare_embedded(url: str) -> None:
    """Write qemu.conf of the embedded driver if it is missing, and call `forget_unborn`.

    With this file, emulators run as root and write their logs themselves. `url`: contains the driver's root
    directory. Raises InvalidConfig if the directory is missing in the URL or its path is too long for sockets
    below it.
    """
    (root,) = parse_qs(urlsplit(url).query).get("root", ("",))
    if not root:
        raise InvalidConfig(field=url, problem="names no directory", fix="write qemu:///embed?root=DIRECTORY")
    if len(root) > _LONGEST_ROOT:
        raise InvalidConfig(
            field=url,
            problem=f"the directory's path has {len(root)} characters; sockets below it would have too long names",
            fix=f"use one of at most {_LONGEST_ROOT} characters",
        )
    forget_unborn(Path(root) / "run" / "qemu")
    path = Path(root) / "etc" / "qemu.conf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_unflushed(path, _QEMU_CONF.encode(), 0o644)


def forget_unborn(directory: Path) -> None:
    """Remove libvirt's state files of machines whose emulator did not exist yet when libvirt crashed.

    libvirt 9 first writes the state of a starting machine with process id 0, and then with the real id. At
    its next start libvirt shows a machine with id 0 as running for ever, although it has no process, and each
    change of the machine times out. Without the file the machine is off; the file holds nothing else. The
    driver that wrote it ran in an earlier process of this plugin, which has ended.
    """
    for path in directory.glob("*.xml"):
        with contextlib.suppress(FileNotFoundError):
            if _UNBORN.search(path.read_bytes()):
                path.unlink()
