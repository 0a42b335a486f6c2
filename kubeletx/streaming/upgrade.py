"""Client side of the HTTP/1.1 upgrade to SPDY/3.1.

The streaming server answers 101 with the subprotocol that it has chosen, or an error whose body has the reason. Of an
error's body at most 4 KiB are read. Errors become errors of `kubeletx.api`: 404 NotFound, 401 and 403 PermissionDenied,
429 and 5xx Unavailable, all others Internal.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from kubeletx.api import Internal, KubeletxError, NotFound, PermissionDenied, Unavailable

from .status import refusal_of

MAX_HEAD_BYTES = 1 << 16
MAX_ERROR_BYTES = 4096
PROTOCOL_HEADER = "X-Stream-Protocol-Version"


async def connect_spdy(
    url: str,
    protocols: Sequence[str],
    *,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """Connect to an http or https URL and upgrade to SPDY/3.1; return reader, writer and the chosen subprotocol.

    `protocols`: subprotocols that the client offers. `headers`: more request headers. `tls`: for https URLs;
    None: the certificate is checked against the system's CAs. The returned subprotocol is empty if the server
    named none. The caller sets the deadline. Raises Unavailable if the server cannot be reached; for its errors
    see the module.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Internal(f"streaming URL {url!r} is not http:// or https:// with a host")
    secure = parts.scheme == "https"
    context = (tls or ssl.create_default_context()) if secure else None
    try:
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port or (443 if secure else 80), ssl=context, limit=MAX_HEAD_BYTES
        )
    except OSError as error:
        raise Unavailable(f"cannot connect to {parts.netloc}: {error}") from error
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"POST {target} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            "Connection: Upgrade",
            "Upgrade: SPDY/3.1",
            "Content-Length: 0",
            *(f"{PROTOCOL_HEADER}: {protocol}" for protocol in protocols),
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
        ]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        server = f"streaming server {parts.netloc.rpartition('@')[2]}"
        status, reply = await _read_head(server, reader)
        if status != 101:
            raise await _refusal(server, status, reply, reader)
        return reader, writer, reply.get(PROTOCOL_HEADER.lower(), "")
    except BaseException:
        writer.transport.abort()  # no peer waits for a close message
        raise


async def _read_head(server: str, reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise Internal(
            f"{server}: the headers of its answer are larger than {MAX_HEAD_BYTES} bytes"
        ) from error
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise Unavailable(
            f"{server} closed the connection without an answer; see the runtime's log"
        ) from error
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise Internal(f"{server}: the first line is not an HTTP answer: {first[:100]!r}")
    pairs = (line.partition(":") for line in rest if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _refusal(
    server: str, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader
) -> KubeletxError:
    body = b""
    try:
        async with asyncio.timeout(10):
            length = min(int(headers.get("content-length", MAX_ERROR_BYTES)), MAX_ERROR_BYTES)
            while len(body) < length and (data := await reader.read(length - len(body))):
                body += data
    except (TimeoutError, ConnectionError, ValueError):
        pass
    text = refusal_of(body) or "no reason given"
    message = f"{server} answered {status}: {text}"
    match status:
        case 404:
            return NotFound(message)
        case 401 | 403:
            return PermissionDenied(message)
        case 429:
            return Unavailable(message)
        case _ if status >= 500:
            return Unavailable(message)
    return Internal(message)
