"""`Http`: an HTTP client that follows redirects only to http(s), and whose errors name the cause.

Redirects are followed here and not by aiohttp, so that each target is checked: only http(s), only servers that
the pull may contact, and from https to http only if a checksum verifies the content. Credentials are sent only
to the first server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

import aiohttp

from kubeletx.api import InvalidPod, KubeletxError, NotFound, PermissionDenied, TimedOut, Unavailable

from .problems import Refused
from .reach import Reach, guarded_socket

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 10
_CONNECT_SECONDS = 30.0
_SHOWN_ERROR_CHARACTERS = 200
_MAX_DOCUMENT_BYTES = 4 << 20


class TransferBroken(Exception):
    """Raised if a connection breaks or stalls; received bytes are kept.

    `error`: the error for the user, if no retry succeeds. `stalled`: True if the server sent nothing for too
    long.
    """

    def __init__(self, error: KubeletxError, *, stalled: bool = False) -> None:
        super().__init__(error.message)
        self.error, self.stalled = error, stalled


class Http:
    """HTTP client that checks redirects and translates errors.

    `stall_seconds`: longest time without data, until an answer begins, and for a whole document (`deadline`).
    """

    def __init__(self, *, stall_seconds: float) -> None:
        self.stall_seconds = stall_seconds
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    @contextlib.asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str], *, shown: str, reach: Reach, may_downgrade: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer after all redirects, whatever its status.

        `shown`: the URL in messages. `may_downgrade`: follow redirects from https to http. Raises TransferBroken if
        the connection breaks, also while the body is read, or if no answer begins; Unavailable if no connection
        can be made; Refused for a server outside `reach`, or a redirect that must not be followed.
        """
        sent = {"Accept-Encoding": "identity", **headers}
        with self._in_words(shown):
            try:
                # For all redirects together: each byte of a header would extend the limit of the socket.
                async with asyncio.timeout(self.stall_seconds):
                    response = await self._follow(url, sent, reach, may_downgrade)
            except TimeoutError as error:
                late = TimedOut(f"{shown}: the server did not answer within {self.stall_seconds:g} s")
                raise TransferBroken(late, stalled=True) from error
            async with response:
                yield response

    async def post_form(self, url: str, form: Mapping[str, str], *, shown: str, reach: Reach) -> bytes:
        """Post a form, without following redirects, and return the answer's body."""
        with self._in_words(shown):
            async with await self._request("POST", url, reach, data=form) as response:
                check_status(response, shown)
                return await read_document(response, shown)

    @contextlib.asynccontextmanager
    async def deadline(self, shown: str) -> AsyncIterator[None]:
        """Context manager: limits requests for small documents to `stall_seconds` in total.

        Raises TimedOut after that time, and the error of a TransferBroken instead of it.
        """
        try:
            async with asyncio.timeout(self.stall_seconds):
                yield
        except TimeoutError as error:
            raise TimedOut(
                f"{shown}: the server did not send the manifest within {self.stall_seconds:g} s"
            ) from error
        except TransferBroken as broken:
            raise broken.error from broken

    @contextlib.contextmanager
    def _in_words(self, shown: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise TransferBroken(
                TimedOut(f"{shown}: the server sent nothing for {self.stall_seconds:g} s"), stalled=True
            ) from error
        except aiohttp.InvalidURL as error:
            raise Refused(
                f"leads to {str(error)[:_SHOWN_ERROR_CHARACTERS]!r}, which is not a URL",
                "correct the server's redirection",
            ) from error
        except aiohttp.ClientSSLError as error:
            raise Unavailable(
                f"{shown}: the TLS connection failed: {_words(error)}; check the server's certificate"
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise Unavailable(
                f"{shown}: cannot connect to {error.host}:{error.port}: {_words(error)}"
            ) from error
        except aiohttp.ClientError as error:
            raise TransferBroken(Unavailable(f"{shown}: the connection broke: {_words(error)}")) from error
        except ssl.SSLError as error:
            raise Unavailable(
                f"{shown}: the TLS connection failed: {error.reason}; check the server's certificate"
            ) from error

    async def _follow(
        self, url: str, sent: dict[str, str], reach: Reach, may_downgrade: bool
    ) -> aiohttp.ClientResponse:
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self._request("GET", url, reach, headers=sent)
            if response.status not in _REDIRECTS:
                return response
            async with response:
                target = _redirect(url, response.headers.get("Location", ""), may_downgrade)
            if _origin(target) != _origin(url):
                sent.pop("Authorization", None)
            url = target
        raise Refused(f"is redirected more than {_MAX_REDIRECTS} times", "correct the URL")

    async def _request(
        self,
        method: str,
        url: str,
        reach: Reach,
        *,
        headers: Mapping[str, str] | None = None,
        data: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        target = reach.check(url)
        proxy = proxy_of(url)
        # The operator's proxy may be on this node.
        session = self._need_session(is_guarded=reach.is_guarded and proxy is None)
        return await session.request(
            method, target, headers=headers, data=data, allow_redirects=False, proxy=proxy
        )

    def _need_session(self, *, is_guarded: bool) -> aiohttp.ClientSession:
        if is_guarded not in self._sessions:
            self._sessions[is_guarded] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(socket_factory=guarded_socket if is_guarded else None),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "kubeletx"},
                timeout=aiohttp.ClientTimeout(
                    total=None,
                    sock_connect=min(_CONNECT_SECONDS, self.stall_seconds),
                    sock_read=self.stall_seconds,
                ),
            )
        return self._sessions[is_guarded]


async def read_document(response: aiohttp.ClientResponse, shown: str) -> bytes:
    """Return the body of a small document. Raises InvalidPod if it has more than 4 MiB."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MAX_DOCUMENT_BYTES:
            raise InvalidPod(
                field="image", problem=f"{shown} has a manifest of more than {_MAX_DOCUMENT_BYTES} bytes"
            )
    return bytes(body)


def check_status(response: aiohttp.ClientResponse, shown: str) -> None:
    """Raise an error unless the status of the answer is 200 or 206.

    The error is PermissionDenied (401, 403, 407), NotFound (404, 410), Unavailable (a retry may help: 408,
    425, 429, 5xx, and codes below 400) or InvalidPod (all others). `shown`: the URL in messages.
    """
    status = response.status
    if status < HTTPStatus.BAD_REQUEST:
        if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise Unavailable(f"{shown}: the server answered {_status(status)}")
        return
    text = f"{shown}: the server answered {_status(status)}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED):
        raise PermissionDenied(f"{text}; check the pull secret for {response.url.host}")
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        raise NotFound(text)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in (
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
    ):
        raise Unavailable(text)
    raise InvalidPod(field="image", problem=text, fix="correct the URL", reason="ImageRefused")


def proxy_of(url: str) -> str | None:
    """Return the proxy for a URL from the environment (https_proxy, http_proxy, no_proxy); None for no proxy.

    No .netrc file is read.
    """
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _redirect(url: str, location: str, may_downgrade: bool) -> str:
    target = urljoin(url, location)
    scheme = urlsplit(target).scheme.lower()
    if not location or scheme not in ("http", "https"):
        raise Refused(
            f"is redirected to {scheme or 'nowhere'!r}; only http and https are followed", "correct the URL"
        )
    if urlsplit(url).scheme == "https" and scheme == "http" and not may_downgrade:
        raise Refused(
            "is redirected from https to http, which does not protect the content",
            "pin it with #sha256=HEX, or name a server that keeps to https",
        )
    return target


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _words(error: Exception) -> str:
    inner = getattr(error, "os_error", None) or error
    return (str(inner) or type(inner).__name__)[:_SHOWN_ERROR_CHARACTERS]
