"""One HTTP or HTTPS request, and what it shows about the server. Blocks.

Only the first line of the answer is read: http.client costs 1.5 MB of memory. Imports cost memory, too, so they come late.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..model import Reach

if TYPE_CHECKING:
    import socket

_STATUS: Final = re.compile(r"HTTP/1\.[01] (\d{3})(?: (.*))?")
_LINE_BYTES: Final = 1000
_TROUBLE: Final = 503
"""Status of a server that is upgraded or overloaded."""


def validate_url(url: str, ca: str) -> None:
    """Raises ValueError if no request can be made of it. `ca`: file of certificates that are trusted; empty: the system's."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"url {url[:80]!r} is not http://HOST/ or https://HOST/")
    parts.port  # noqa: B018 - raises ValueError if it is no port
    if ca and parts.scheme == "http":
        raise ValueError(f"ca is set, but {url[:80]!r} is not https")


def get(url: str, seconds: float, ca: str = "") -> tuple[Reach, str]:
    """Return the reach of the server and a line about it.

    A 2xx answer is SUCCESS, 503 TEMPORARY_FAIL, anything else FAIL: redirects, which captive portals send, and
    certificates that are not trusted too.
    """
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.rpartition("@")[2]
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kubeletx-health\r\nConnection: close\r\n\r\n"
    )
    try:
        address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        connection = socket.create_connection(address, seconds)
        if parts.scheme == "https":
            connection = _secured(connection, parts.hostname, ca)
        with connection:
            connection.sendall(request.encode())
            with connection.makefile("rb") as answer:
                line = answer.readline(_LINE_BYTES).decode(errors="replace").strip()
    except (OSError, ValueError) as error:
        return Reach.FAIL, f"{url}: {error or type(error).__name__}"
    match = _STATUS.fullmatch(line)
    if match is None:
        return Reach.FAIL, f"{url}: {line[:80]!r} is not an answer of HTTP"
    status, text = int(match[1]), f"{url}: {match[1]} {match[2] or ''}".rstrip()
    if status == _TROUBLE:
        return Reach.TEMPORARY_FAIL, text
    return (Reach.SUCCESS if 200 <= status < 300 else Reach.FAIL), text


def _secured(connection: socket.socket, host: str | None, ca: str) -> socket.socket:
    import ssl

    try:
        return ssl.create_default_context(cafile=ca or None).wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise
