"""`ServiceManager`: reports to systemd that the agent is ready, alive or stopping.

    start ─► READY=1 ─► WATCHDOG=1, twice within the time that systemd gives ─► STOPPING=1

The watchdog message is sent from the event loop, so systemd restarts an agent whose loop hangs. Pods continue to run.
Without ``NOTIFY_SOCKET`` in the environment nothing is sent. Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping

import structlog

from kubeletx.kube.text.numbers import whole_number

log = structlog.get_logger(__name__)

_SHARE = 0.5


class ServiceManager:
    """Sends the agent's state to systemd. Errors are ignored; without systemd nothing is sent."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._watchdog_seconds = _watchdog_seconds(environment)

    def ready(self, status: str) -> None:
        """Report that the start is complete. `status`: a line for ``systemctl status``."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """Report that the agent is about to end."""
        self._send("STOPPING=1\nSTATUS=stopping; pods keep running")

    async def run(self) -> None:
        """Send watchdog notifications until cancelled; return immediately if systemd expects none."""
        if self._address is None or self._watchdog_seconds is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds * _SHARE)

    def _send(self, text: str) -> None:
        if self._address is None:
            return
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        ) as one:
            try:
                one.sendto(text.encode(), self._address)
            except OSError as error:
                log.debug("Failed to notify the service manager", err=str(error))


def _address(text: str) -> str | None:
    """Convert NOTIFY_SOCKET to a socket address; a leading ``@`` means an abstract socket. None for an empty text."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text or None


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return systemd's time-out of watchdog notifications; None if it expects none from this process."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    meant_for = environment.get("WATCHDOG_PID", "")
    number = whole_number(microseconds)
    if not number:
        return None
    if meant_for and meant_for != str(os.getpid()):
        return None
    return number / 1_000_000
