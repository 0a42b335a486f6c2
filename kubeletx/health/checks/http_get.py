"""One HTTP or HTTPS request, and what it shows about the server. Blocks; its imports cost memory, so they come late."""

from __future__ import annotations

from typing import Final

from ..model import Reach

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
    import http.client
    import ssl
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca or None)
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=seconds, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"User-Agent": "kubeletx-health", "Connection": "close"})
            answer = connection.getresponse()
            status, text = answer.status, f"{url}: {answer.status} {answer.reason}"
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Reach.FAIL, f"{url}: {error or type(error).__name__}"
    if status == _TROUBLE:
        return Reach.TEMPORARY_FAIL, text
    return (Reach.SUCCESS if 200 <= status < 300 else Reach.FAIL), text
