"""Access to the page on 127.0.0.1: a link with a one-time token gives a session, which is a cookie of this page only.

A browser sends requests for other pages, too. So the name of the host must be a loopback name (a foreign name that
resolves to 127.0.0.1 is refused), requests that another origin began are refused, and no other page may frame this one.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from aiohttp import web

from kubeletx.api import Clock

TOKEN_SECONDS: Final = 300.0
SESSION_SECONDS: Final = 12 * 3600.0
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""Headers of every answer."""


class Refused(Exception):
    """A request is refused. The message is for the reader of the page."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def cookie(request: web.Request) -> str:
    """Return the name of the session's cookie. A browser sends cookies to all ports of a host, so it contains the port."""
    return f"kubeletx-ui-{request.url.port}"


class LocalAccess:
    """Sessions of one administrator in a browser on this machine."""

    def __init__(self, clock: Clock) -> None:
        """Make the one-time token; it expires after `TOKEN_SECONDS`."""
        self._clock = clock
        self._token = secrets.token_urlsafe(32)
        self._token_ends = clock.monotonic() + TOKEN_SECONDS
        self._sessions: dict[str, float] = {}
        """End of each session (monotonic), by its secret."""

    @property
    def token(self) -> str:
        return self._token

    async def check(self, request: web.Request) -> str | None:
        """Let the request pass, or raise Refused. Returns the secret of a new session if the request used the token."""
        self._check_host(request)
        token = request.query.get("token")
        # A click on the link in another page, such as a web terminal, is allowed: the token is the proof.
        is_foreign = request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        origin = request.headers.get("Origin")
        if (is_foreign and token is None) or (origin and origin != f"{request.scheme}://{request.host}"):
            raise Refused(403, "another page asked for this; open the address yourself")
        if token is not None and not self._has_session(request):
            return self._spend(token)
        if not self._has_session(request):
            raise Refused(
                401, "this page needs a link; run 'kubeletx ui' on the node, and open the link that it prints"
            )
        return None

    def _check_host(self, request: web.Request) -> None:
        name = request.headers.get("Host", "").rsplit(":", 1)[0].strip("[]")
        if name not in ("127.0.0.1", "localhost", "::1"):
            raise Refused(421, "this page answers only as 127.0.0.1 or localhost")

    def _has_session(self, request: web.Request) -> bool:
        ends_at = self._sessions.get(request.cookies.get(cookie(request), ""), 0.0)
        return ends_at > self._clock.monotonic()

    def _spend(self, token: str) -> str:
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise Refused(
                401, "this link is not valid; run 'kubeletx ui' again, and open the link that it prints"
            )
        if self._clock.monotonic() > self._token_ends:
            raise Refused(
                401, "this link has expired; run 'kubeletx ui' again, and open the link within 5 minutes"
            )
        if self._sessions:
            raise Refused(401, "this link was used before; run 'kubeletx ui' again for another one")
        secret = secrets.token_urlsafe(32)
        self._sessions[secret] = self._clock.monotonic() + SESSION_SECONDS
        return secret
