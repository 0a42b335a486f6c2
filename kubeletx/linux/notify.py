"""Messages to the service manager. Source: sd_notify(3), sd_watchdog_enabled(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


def notify(text: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send lines such as ``READY=1``; without ``NOTIFY_SOCKET`` in `environment` nothing is sent. Never raises."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    # It may be gone, or its queue full. No log: programs without structlog call this, too.
    with socket.socket(socket.AF_UNIX, flags) as sender, suppress(OSError):
        sender.sendto(text.encode(), address)


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the service manager's time-out for messages ``WATCHDOG=1``; None if it expects none from this process."""
    text, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not (environment.get("NOTIFY_SOCKET") and text.isascii() and text.isdigit() and int(text)):
        return None
    # A child inherits the variables of its parent.
    return int(text) / 1_000_000 if pid in {"", str(os.getpid())} else None
