"""Imports libraries without what they load for features that the agent does not use at its start.

Both functions must run before anything else imports the library; if it is imported already, they change nothing.
"""

from __future__ import annotations

import ssl
import sys
from typing import Any


def import_structlog() -> None:
    """Hide rich, if it is installed: structlog imports it for tracebacks that the agent never prints, 5 MiB and 40 ms."""
    is_hidden = "rich" not in sys.modules
    if is_hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        if is_hidden:
            del sys.modules["rich"]


def import_aiohttp() -> None:
    """Let aiohttp's two default contexts read the system's certificates late: 2 MiB, and 45 ms of CPU at its import.

    Only a client that connects by https without a context of its own needs them.
    """
    original = ssl.SSLContext.__dict__["__new__"]

    def late(_: type[ssl.SSLContext], *args: Any, **kwargs: Any) -> ssl.SSLContext:
        made: ssl.SSLContext = original.__func__(LateCertificates, *args, **kwargs)
        return made

    ssl.SSLContext.__new__ = late  # type: ignore[method-assign,assignment]
    try:
        import aiohttp  # noqa: F401
    finally:
        ssl.SSLContext.__new__ = original  # type: ignore[method-assign]


class LateCertificates(ssl.SSLContext):
    """A context that reads the system's certificates at its first connection instead of when it is made."""

    _is_unread = False

    def set_default_verify_paths(self) -> None:
        """Postpone the read of the default certificates to the first connection. `load_default_certs` calls this, too."""
        self._is_unread = True

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Begin a connection of an event loop."""
        self._read()
        return super().wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """Begin a connection on a blocking socket."""
        self._read()
        return super().wrap_socket(*args, **kwargs)

    def _read(self) -> None:
        if self._is_unread:
            self._is_unread = False
            super().set_default_verify_paths()
