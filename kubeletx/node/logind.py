"""systemd-logind over D-Bus: delays a shutdown of the host, and waits for the signal that one begins.

    open()      connect to the bus and take a delay lock
    next()      wait for a signal: True when the host begins to shut down, False when that was cancelled
    release()   release the lock, so that the shutdown continues

logind limits the delay of a lock (InhibitDelayMaxSec). If the limit is less than the agent needs, the agent writes a
drop-in file and makes logind reload its configuration. Calls to the bus block, so they run on threads; the event loop
waits for signals. Source: the man page org.freedesktop.login1(5); kubelet, pkg/kubelet/nodeshutdown/systemd.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from pathlib import Path
from typing import Any, Final

import structlog

from kubeletx.api import Blocking, Unavailable

log = structlog.get_logger(__name__)

CONF_DIR: Final = Path("/etc/systemd/logind.conf.d")
CONF_NAME: Final = "99-kubeletx.conf"
CALL_SECONDS: Final = 10.0
_NAME, _PATH, _MANAGER = "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"
_SYSTEMD, _SYSTEMD_PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_SIGHUP = 1


class Logind:
    """Client of systemd-logind that takes a delay lock and receives shutdown signals.

    It has at most one connection to the bus.
    """

    def __init__(self, blocking: Blocking, *, conf_dir: Path = CONF_DIR) -> None:
        """`blocking`: runs blocking calls on threads. `conf_dir`: directory of logind's drop-in files."""
        self._blocking = blocking
        self._conf_dir = conf_dir
        self._connection: Any = None
        self._lock: int | None = None
        self._signals: deque[Any] = deque()

    async def open(self, delay_seconds: int) -> bool:
        """Connect to the bus and take a delay lock of `delay_seconds`.

        Returns True if the host is shutting down already. If logind allows only a shorter delay, a warning is logged.
        Raises Unavailable without a system bus, logind, or the D-Bus library.
        """
        self.close()
        await self._ask(self._connect)
        has = await self._ask(self._allow, delay_seconds)
        if has < delay_seconds:
            log.warning(
                "The host waits for pods for less time than configured; raise InhibitDelayMaxSec of systemd-logind",
                wanted_seconds=delay_seconds,
                seconds=has,
            )
        await self.hold()
        log.info(
            "Delaying a shutdown of the host until pods have ended", at_most_seconds=min(has, delay_seconds)
        )
        return bool(await self._ask(self._get, "PreparingForShutdown"))

    async def hold(self) -> None:
        """Take the delay lock, which delays a shutdown of the host; does nothing if it is taken already."""
        if self._lock is None:
            self._lock = await self._ask(self._inhibit)

    def release(self) -> None:
        """Release the delay lock, so that the host's shutdown continues; does nothing without a lock."""
        lock, self._lock = self._lock, None
        if lock is not None:
            # logind waits as long as any copy of this descriptor is open; closing it is the release.
            os.close(lock)

    async def next(self) -> bool:
        """Wait for the next PrepareForShutdown signal.

        Returns True if a shutdown begins, False if it was cancelled. Raises Unavailable if the connection to
        the bus is lost.
        """
        while not self._signals:
            # Waits on the event loop: a blocking receive would hold a thread until the host shuts down.
            await _readable(self._connection.sock)
            try:
                while True:
                    self._connection.recv_messages(timeout=0)
            except TimeoutError:  # all received messages are handled
                continue
            except (OSError, RuntimeError) as error:
                raise Unavailable(f"lost the system bus: {error}") from error
        return bool(self._signals.popleft().body[0])

    def close(self) -> None:
        """Release the lock and disconnect from the bus; idempotent."""
        self.release()
        connection, self._connection = self._connection, None
        self._signals.clear()
        if connection is not None:
            connection.close()

    # --- blocking ---

    async def _ask(self, function: Any, *args: Any) -> Any:
        try:
            return await self._blocking(function, *args)
        except ImportError as error:
            raise Unavailable(f"cannot watch for a shutdown of the host: {error}") from error
        except (OSError, RuntimeError) as error:
            raise Unavailable(f"systemd-logind: {error or type(error).__name__}") from error

    def _connect(self) -> None:
        from jeepney import MatchRule, message_bus
        from jeepney.io.blocking import open_dbus_connection

        self._connection = open_dbus_connection(bus="SYSTEM", enable_fds=True, auth_timeout=CALL_SECONDS)
        rule = MatchRule(type="signal", interface=_MANAGER, member="PrepareForShutdown", path=_PATH)
        # Before AddMatch: a signal that arrives with its answer would be lost.
        self._connection.filter(rule, queue=self._signals)
        self._send(message_bus.AddMatch(rule))

    def _allow(self, seconds: int) -> int:
        """Raise logind's maximum delay to `seconds` if it is less; returns the maximum delay afterwards."""
        has = self._delay_seconds()
        if has >= seconds:
            return has
        try:
            self._conf_dir.mkdir(parents=True, exist_ok=True)
            (self._conf_dir / CONF_NAME).write_text(
                f"# Written by kubeletx for shutdownGracePeriod\n[Login]\nInhibitDelayMaxSec={seconds}\n"
            )
            self._reload()
        except (OSError, RuntimeError) as error:
            log.warning("Failed to raise InhibitDelayMaxSec", err=str(error))
            return has
        return self._delay_seconds()

    def _delay_seconds(self) -> int:
        return int(self._get("InhibitDelayMaxUSec")) // 1_000_000

    def _reload(self) -> None:
        from jeepney import DBusAddress, new_method_call

        systemd = DBusAddress(_SYSTEMD_PATH, bus_name=_SYSTEMD, interface=f"{_SYSTEMD}.Manager")
        # logind reads its drop-in files again at SIGHUP; a restart of the service is not needed.
        call = ("systemd-logind.service", "all", _SIGHUP)
        self._send(new_method_call(systemd, "KillUnit", "ssi", call))

    def _inhibit(self) -> int:
        from jeepney import DBusAddress, new_method_call

        manager = DBusAddress(_PATH, bus_name=_NAME, interface=_MANAGER)
        why = ("shutdown", "kubeletx", "Pods need time to end before the node goes down", "delay")
        answer = self._send(new_method_call(manager, "Inhibit", "ssss", why))
        lock = int(answer[0].to_raw_fd())
        os.set_inheritable(lock, False)  # a child process that inherits it would delay the shutdown too
        return lock

    def _get(self, name: str) -> Any:
        from jeepney import DBusAddress, Properties

        manager = DBusAddress(_PATH, bus_name=_NAME, interface=_MANAGER)
        return self._send(Properties(manager).get(name))[0][1]

    def _send(self, message: Any) -> Any:
        from jeepney import DBusErrorResponse
        from jeepney.wrappers import unwrap_msg

        try:
            return unwrap_msg(self._connection.send_and_get_reply(message, timeout=CALL_SECONDS))
        except DBusErrorResponse as error:
            raise RuntimeError(f"{error.name}: {' '.join(map(str, error.data))}") from error


async def _readable(sock: Any) -> None:
    """Wait until the socket is readable."""
    ready = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        with contextlib.suppress(ValueError):  # closed meanwhile
            loop.remove_reader(sock)
