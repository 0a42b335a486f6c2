"""Access to the page on 127.0.0.1: a link with a one-time token gives a session, which is a cookie of this page only.

A browser sends requests for other pages, too. So the name of the host must be a loopback name (a foreign name that
resolves to 127.0.0.1 is refused), requests that another origin began are refused, and no other page may frame this one.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from kubeletx.api import Clock

from .http import Request

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


class LocalAccess:
    """Sessions of one administrator in a browser on this machine."""

    def __init__(self, clock: Clock) -> None:
        """Make the one-time token; it expires after `TOKEN_SECONDS`."""
        self._clock = clock
        self.token = secrets.token_urlsafe(32)
        self._token_ends = clock.monotonic() + TOKEN_SECONDS
        self._secret = ""
        """The session's secret; empty before the session begins."""
        self._session_ends = 0.0

    async def check(self, request: Request) -> str:
        """Let the request pass, or raise Refused. Returns the cookie of the session that the request began; empty: none."""
        host, headers = request.headers.get("host", ""), request.headers
        name, _, port = host.rpartition(":") if host.rpartition(":")[2].isdecimal() else (host, "", "80")
        if name.strip("[]") not in ("127.0.0.1", "localhost", "::1"):
            raise Refused(421, "this page answers only as 127.0.0.1 or localhost")
        token = request.query.get("token")
        # A click on the link in another page, such as a web terminal, is allowed: the token is the proof.
        is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if (is_foreign and token is None) or headers.get("origin", f"http://{host}") != f"http://{host}":
            raise Refused(403, "another page asked for this; open the address yourself")
        # A browser sends cookies to all ports of a host.
        cookie = f"kubeletx-ui-{port}"
        if not is_foreign and self._has_session(headers.get("cookie", ""), cookie):
            return ""
        if token is None:
            raise Refused(
                401, "this page needs a link; run 'kubeletx ui' on the node, and open the link that it prints"
            )
        self._spend(token)
        return f"{cookie}={self._secret}; Max-Age={SESSION_SECONDS:.0f}; Path=/; HttpOnly; SameSite=Strict"

    def _has_session(self, cookies: str, cookie: str) -> bool:
        given = dict(pair.strip().partition("=")[::2] for pair in cookies.split(";")).get(cookie, "")
        is_right = hmac.compare_digest(given.encode(), self._secret.encode())
        return bool(self._secret) and is_right and self._clock.monotonic() < self._session_ends

    def _spend(self, token: str) -> None:
        now = self._clock.monotonic()
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            problem = "is not valid; run 'kubeletx ui' again, and open the link that it prints"
        elif now > self._token_ends:
            problem = "has expired; run 'kubeletx ui' again, and open the link within 5 minutes"
        elif self._secret:
            problem = "was used before; run 'kubeletx ui' again for another one"
        else:
            self._secret, self._session_ends = secrets.token_urlsafe(32), now + SESSION_SECONDS
            return
        raise Refused(401, f"this link {problem}")
