"""Messages to the service manager, such as READY=1. Without ``NOTIFY_SOCKET`` nothing is sent. Source: sd_notify(3)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import structlog

log = structlog.get_logger(__name__)


def notify(text: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send lines such as ``READY=1`` to the service manager; errors are ignored."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_UNIX, flags) as one:
        try:
            one.sendto(text.encode(), address)
        except OSError as error:
            log.debug("Failed to notify the service manager", err=str(error))
