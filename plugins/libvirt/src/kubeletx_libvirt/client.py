"""Connection to libvirt: blocking calls on the host's threads, and events for subscribers.

libvirt's own event loop runs in one daemon thread of the process (libvirt has only one for all connections); its
callbacks only pass a small value to the asyncio loop. An embedded driver (``qemu:///embed``) needs the thread even
without subscribers. When a connection breaks, every subscriber is notified once, and every later call raises
Unavailable until `open` succeeds again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from urllib.parse import parse_qs, urlsplit

import libvirt

from kubeletx.api import Host, InvalidConfig, Unavailable
from kubeletx_libvirt.errors import translate
from kubeletx_libvirt.mount_visibility import find_daemon, socket_of

P = ParamSpec("P")
R = TypeVar("R")

_CONCURRENT_CALLS = 3
"""One fewer than the host's threads, so that one is free for health calls; further callers wait."""
_SAME_REBOOT_SECONDS = 2.0
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

    `event`, `detail`, `text`: libvirt's arguments of the event; 0 or empty where it has none.
    """

    uuid: str
    kind: str
    event: int = 0
    detail: int = 0
    text: str = ""


class _Attempt:
    """One try to connect, shared by the thread that connects and the caller that waits for it.

    A libvirt that hangs may answer long after the caller has given up; the thread then closes the connection
    itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_over = False
        self._made: tuple[libvirt.virConnect, list[int]] | None = None

    def succeed(self, handle: libvirt.virConnect, callbacks: list[int]) -> bool:
        """Hand the connection to the caller; False if the caller has given up: then the connection must be closed."""
        with self._lock:
            if not self._is_over:
                self._made = (handle, callbacks)
            return not self._is_over

    def end(self) -> tuple[libvirt.virConnect, list[int]] | None:
        """Stop waiting; returns the connection and the ids of its callbacks, or None if it was not made in time."""
        with self._lock:
            self._is_over = True
            return self._made


class Connection:
    """Connection to one libvirt URL; `open` makes a new one after it broke. Runs calls and delivers events."""

    def __init__(self, url: str, host: Host) -> None:
        """`url`: the endpoint's URL, as libvirt expects it."""
        self.url = url
        self._host = host
        self._handle: libvirt.virConnect | None = None
        self._callbacks: list[int] = []
        self._subscribers: set[asyncio.Queue[DomainEvent | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(_CONCURRENT_CALLS)
        self._lost = ""
        self._daemon: int | None = None
        self._was_prepared = False
        self._rebooted: dict[str, float] = {}

    @property
    def is_embedded(self) -> bool:
        """True if libvirt's driver runs in this process."""
        return urlsplit(self.url).path == "/embed"

    async def open(self) -> None:
        """Connect, unless the connection exists and is alive. Raises Unavailable."""
        if self._handle is not None and not self._lost:
            # libvirt's word that a connection broke may be late, or came before the connection was ours.
            if await self._host.blocking(_is_alive, self._handle):
                return
            self._lost = "it is broken"
        await self.close()
        self._loop = asyncio.get_running_loop()
        start_event_thread()
        attempt = _Attempt()
        try:
            await self._host.blocking(self._connect, attempt)
        finally:
            # Also when the caller gave up: what was made just then is the connection, not a second one beside it.
            if (made := attempt.end()) is not None:
                self._handle, self._callbacks = made
                self._lost = ""
                self._daemon = None

    async def close(self) -> None:
        """Disconnect; every subscriber gets None."""
        handle, self._handle = self._handle, None
        self._end_subscriptions()
        if handle is not None:
            callbacks, self._callbacks = self._callbacks, []
            await self._host.blocking(_disconnect, handle, callbacks)

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `function`, which blocks, on one of the host's threads and return its result.

        Translates libvirt's errors.
        """
        async with self._slots:
            return await self._host.blocking(_translated, functools.partial(function, *args, **kwargs))

    async def use(
        self, function: Callable[Concatenate[libvirt.virConnect, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run `function` like `call`, with the connection as its first argument.

        Raises Unavailable without a connection.
        """
        return await self.call(function, self.get_handle(), *args, **kwargs)

    def get_handle(self) -> libvirt.virConnect:
        """The connection. Raises Unavailable if it is lost or not open."""
        if self._handle is None or self._lost:
            raise Unavailable(f"no connection to libvirt at {self.url}: {self._lost or 'not open'}")
        return self._handle

    async def find_daemon(self) -> int | None:
        """Process id of the daemon that starts emulators for this connection; None if unknown.

        Raises Unavailable if the daemon does not answer on its socket.
        """
        if self._daemon is None and (path := socket_of(self.url)) is not None:
            self._daemon = await self._host.blocking(find_daemon, path)
        return self._daemon

    async def domain_events(self) -> AsyncIterator[DomainEvent]:
        """Yield events from now on. Raises Unavailable when the connection is lost or closed."""
        queue = self.subscribe()
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self.unsubscribe(queue)
        raise Unavailable(f"lost the connection to libvirt at {self.url}: {self._lost or 'closed'}")

    def subscribe(self) -> asyncio.Queue[DomainEvent | None]:
        """A queue that gets every event from now on, and None at the end of the connection."""
        queue: asyncio.Queue[DomainEvent | None] = asyncio.Queue()
        self._subscribers.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[DomainEvent | None]) -> None:
        """Add no more events to the queue."""
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
            (libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, self._on_reboot),
            (libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG, self._on_watchdog),
            (libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE, self._on_agent),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, self._on_device_removed),
            (libvirt.VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE, self._on_memory),
            (libvirt.VIR_DOMAIN_EVENT_ID_BALLOON_CHANGE, self._on_balloon),
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

    def _on_reboot(self, _c: Any, domain: libvirt.virDomain, _o: Any) -> None:
        # A reboot by the power button is told twice: by libvirt that makes it, and by QEMU that resets.
        uuid, now = domain.UUIDString(), time.monotonic()
        last, self._rebooted[uuid] = self._rebooted.get(uuid), now
        if last is None or now - last > _SAME_REBOOT_SECONDS:
            self._tell(DomainEvent(uuid, "reboot"))

    def _on_watchdog(self, _c: Any, domain: libvirt.virDomain, action: int, _o: Any) -> None:
        self._tell(DomainEvent(domain.UUIDString(), "watchdog", action))

    def _on_agent(self, _c: Any, domain: libvirt.virDomain, state: int, reason: int, _o: Any) -> None:
        self._tell(DomainEvent(domain.UUIDString(), "agent", state, reason))

    def _on_device_removed(self, _c: Any, domain: libvirt.virDomain, alias: str, _o: Any) -> None:
        self._tell(DomainEvent(domain.UUIDString(), "device-removed", text=alias))

    def _on_memory(self, _c: Any, domain: libvirt.virDomain, alias: str, size: int, _o: Any) -> None:
        self._tell(DomainEvent(domain.UUIDString(), "memory", size, text=alias))

    def _on_balloon(self, _c: Any, domain: libvirt.virDomain, size: int, _o: Any) -> None:
        self._tell(DomainEvent(domain.UUIDString(), "memory", size))


@functools.cache
def start_event_thread() -> threading.Thread:
    """Start libvirt's event loop in a thread, once per process, before the first connection."""
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
            # What fails once, such as a descriptor that went away just now, must not end the events of all
            # connections; what goes on failing must not take a processor.
            time.sleep(_FAILED_EVENTS_SECONDS)


def _quiet(_context: Any, _error: Any) -> None:
    """Discard libvirt's error print-outs: errors come as exceptions."""


def _translated(function: Callable[[], R]) -> R:
    try:
        return function()
    except libvirt.libvirtError as error:
        raise translate(error) from error


def _is_alive(handle: libvirt.virConnect) -> bool:
    """Return True while the connection's socket is open, without a call to libvirt."""
    try:
        return bool(handle.isAlive())
    except libvirt.libvirtError:
        return False


def _disconnect(handle: libvirt.virConnect, callbacks: list[int]) -> None:
    with contextlib.suppress(libvirt.libvirtError):  # a broken connection: the callbacks went with it
        for number in callbacks:
            handle.domainEventDeregisterAny(number)
    with contextlib.suppress(libvirt.libvirtError):
        handle.unregisterCloseCallback()
    with contextlib.suppress(libvirt.libvirtError):
        handle.close()


def _prepare_embedded(url: str) -> None:
    """Write qemu.conf of the embedded driver if it is missing, and remove states that a crash left (`forget_unborn`).

    Emulators run as root and write their logs themselves. Raises InvalidConfig for a missing or too long directory.
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
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(_QEMU_CONF, encoding="utf-8")
        temporary.replace(path)


def forget_unborn(directory: Path) -> None:
    """Remove libvirt's state files of machines whose start ended in a crash of libvirt before the emulator existed.

    libvirt 9 first writes the state of a starting machine with process id 0, and then the real id. At its next
    start it shows a machine with id 0 as running for ever, although it has no process, and each change of it times
    out. Without the file the machine is off; the file holds nothing else. The driver that wrote it ran in an
    earlier process of this plugin, which has ended.
    """
    for path in directory.glob("*.xml"):
        with contextlib.suppress(FileNotFoundError):
            if _UNBORN.search(path.read_bytes()):
                path.unlink()
