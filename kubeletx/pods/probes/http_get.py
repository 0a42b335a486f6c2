"""`get`: a small HTTP/1.1 client on asyncio streams for probes and hooks (P5, T3 in docs/kubelet-parity.md).

Every request opens a new connection, uses no proxy and does not verify certificates. Up to ten redirects on the same
host are followed; a redirect to another host ends the request with its 3xx answer. At most 10 KiB of the body are read,
at most 64 KiB of status lines, headers and chunk sizes, and at most five 1xx answers, so that no server can make an
answer expensive. A client library would cost memory and connection pools that nothing here can use.

The caller sets the deadline (`asyncio.timeout`).
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from functools import lru_cache
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from kubeletx.api import Unavailable

BODY_LIMIT_BYTES = 10 * 1024
HEAD_LIMIT_BYTES = 64 * 1024
MAX_REDIRECTS = 10
MAX_INTERIM_ANSWERS = 5
MAX_MESSAGE_CHARS = 1024
USER_AGENT = "kube-probe/1.36"
"""The version of the Kubernetes API that this agent follows."""

_DIGITS = {10: re.compile(rb"[0-9]{1,18}"), 16: re.compile(rb"[0-9a-fA-F]{1,16}")}
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: .*)?")
_FOLLOWED = (301, 302, 303, 307, 308)
_PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's error reasons for a server that does not speak TLS."""


class HttpGet(msgspec.Struct, frozen=True, kw_only=True):
    """One GET request. `path` may have a query.

    `headers`: pairs of name and value; they replace default headers (Host, User-Agent, Accept) of the same name. An
    empty value removes the default header.
    """

    host: str
    port: int
    path: str = "/"
    scheme: str = "http"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        path = self.path if self.path.startswith("/") else f"/{self.path}"
        return f"{self.scheme}://{authority(self.host, self.port)}{path}"


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a GET. `body`: at most its first 10 KiB. `location`: header Location; empty if there is none."""

    status: int
    body: bytes = b""
    location: str = ""


class GetFailed(Unavailable):
    """Raised if a request got no complete answer. `is_plain_http`: the server answered an HTTPS request in HTTP."""

    def __init__(self, message: str, *, is_plain_http: bool = False) -> None:
        super().__init__(_cut(message))
        self.is_plain_http = is_plain_http


def _cut(message: str) -> str:
    """Shorten a message, which may contain a very long redirect URL that a server has chosen."""
    return message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:MAX_MESSAGE_CHARS]}..."


def authority(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dial_text(host: str, port: int, error: OSError) -> str:
    """Return the kubelet's message for a failed connection, since users search events for that text.

    asyncio's own text repeats the address instead of naming the cause.
    """
    if error.errno is not None and error.errno > 0:
        why = f"connect: {os.strerror(error.errno).lower()}"
    else:
        why = error.strerror or str(error)
    return f"dial tcp {authority(host, port)}: {why}"


async def get(request: HttpGet) -> HttpAnswer:
    """Send the request and follow redirects on the same host. Raises GetFailed."""
    for _ in range(MAX_REDIRECTS + 1):
        answer = await _get_once(request)
        onward = _onward(request, answer)
        if onward is None:
            return answer
        request = onward
    raise GetFailed(f'Get "{request.url}": stopped after {MAX_REDIRECTS} redirects')


def _onward(request: HttpGet, answer: HttpAnswer) -> HttpGet | None:
    """Return the next request if the answer is a redirect on the same host; None otherwise."""
    if answer.status not in _FOLLOWED or not answer.location:
        return None
    try:
        target = urlsplit(urljoin(request.url, answer.location))
        host, port = target.hostname or "", target.port
    except ValueError as error:
        raise GetFailed(f"cannot follow redirect to {answer.location!r}: {error}") from error
    # As in the kubelet: a container must not direct the node's requests to another host.
    if host != request.host.lower() or target.scheme not in ("http", "https"):
        return None
    path = target.path or "/"
    return HttpGet(
        host=request.host,
        port=port or (443 if target.scheme == "https" else 80),
        path=f"{path}?{target.query}" if target.query else path,
        scheme=target.scheme,
        headers=request.headers,
    )


async def _get_once(request: HttpGet) -> HttpAnswer:
    head = _head(request)
    try:
        reader, writer = await asyncio.open_connection(
            request.host,
            request.port,
            limit=HEAD_LIMIT_BYTES,
            ssl=_unverified() if request.scheme == "https" else None,
        )
    except ssl.SSLError as error:
        is_plain = error.reason in _PLAIN_HTTP
        raise GetFailed(f'Get "{request.url}": {error}', is_plain_http=is_plain) from error
    except OSError as error:
        why = dial_text(request.host, request.port, error)
        raise GetFailed(f'Get "{request.url}": {why}') from error
    try:
        writer.write(head)
        return await _read(_Lines(reader))
    except (OSError, EOFError, ValueError) as error:
        raise GetFailed(f'Get "{request.url}": {_text(error)}') from error
    finally:
        # Not close(): a server that does not read could delay the end of a TLS connection for half a minute.
        writer.transport.abort()


def _head(request: HttpGet) -> bytes:
    target = quote(urlsplit(request.url)._replace(scheme="", netloc="", fragment="").geturl(), safe=_KEPT)
    headers = {
        "host": ("Host", authority(request.host, request.port)),
        "user-agent": ("User-Agent", USER_AGENT),
        "accept": ("Accept", "*/*"),
    }
    more = []
    for name, value in request.headers:
        if name.lower() in headers:
            headers[name.lower()] = (name, value)
        else:
            more.append((name, value))
    lines = [f"GET {target or '/'} HTTP/1.1"]
    lines += [
        f"{name}: {value}" for name, value in (*headers.values(), *more) if value or (name, value) in more
    ]
    text = "\r\n".join((*lines, "Connection: close", "", ""))
    # A line break in a value would add headers of the pod author's choice to the request.
    if text.count("\n") != len(lines) + 2:
        raise GetFailed(f'Get "{request.url}": a header holds a line break')
    return text.encode("utf-8", "surrogateescape")


_KEPT = "!#$%&'()*+,/:;=?@[]~"


_TOO_LARGE = "the response's headers are too large"


class _Lines:
    """Reads the lines of one answer (status, headers, chunk sizes) and limits their total size."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.reader = reader
        self._left = HEAD_LIMIT_BYTES

    async def next(self) -> bytes:
        """Return the next line without its line break. Raises ValueError above the total limit."""
        try:
            line = await self.reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:  # its text is about separators
            raise ValueError(_TOO_LARGE) from error
        self._left -= len(line)
        if self._left < 0:
            raise ValueError(_TOO_LARGE)
        return line.rstrip(b"\r\n")


async def _read(lines: _Lines) -> HttpAnswer:
    for _ in range(MAX_INTERIM_ANSWERS + 1):
        status, headers = await _read_head(lines)
        if not 100 <= status < 200 or status == 101:
            break
    else:
        raise ValueError("too many 1xx informational responses")
    if status in (204, 304):
        body = b""
    elif headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
        body = await _read_chunks(lines)
    elif b"content-length" in headers:
        body = await lines.reader.readexactly(min(_length(headers[b"content-length"], 10), BODY_LIMIT_BYTES))
    else:
        body = await _read_to_end(lines.reader)
    location = headers.get(b"location", b"").decode("utf-8", "replace")
    return HttpAnswer(status=status, body=body, location=location)


async def _read_head(lines: _Lines) -> tuple[int, dict[bytes, bytes]]:
    line = await lines.next()
    match = _STATUS_LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"malformed HTTP response {line[:40]!r}")
    headers: dict[bytes, bytes] = {}
    while line := await lines.next():
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    return int(match[1]), headers


async def _read_chunks(lines: _Lines) -> bytes:
    body = b""
    while len(body) < BODY_LIMIT_BYTES:
        size = _length((await lines.next()).partition(b";")[0].strip(), 16)
        if size == 0:
            break
        wanted = min(size, BODY_LIMIT_BYTES - len(body))
        body += await lines.reader.readexactly(wanted)
        if wanted < size:
            break
        await lines.next()
    return body


def _length(text: bytes, base: int) -> int:
    if _DIGITS[base].fullmatch(text) is None:  # int() also accepts signs and underscores
        raise ValueError(f"malformed length {text[:40]!r} in the response")
    return int(text, base)


async def _read_to_end(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) < BODY_LIMIT_BYTES:
        part = await reader.read(BODY_LIMIT_BYTES - len(body))
        if not part:
            break
        body += part
    return body


def _text(error: Exception) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return "the connection ended before the answer did"
    return str(error) or type(error).__name__


@lru_cache(maxsize=1)
def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
