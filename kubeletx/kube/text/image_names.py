"""Image names in messages. Pure."""

from __future__ import annotations

import re
from typing import Final

_DIGEST: Final = re.compile(r"[a-z0-9]+:[0-9a-f]+")


def without_credentials(image: str) -> str:
    """The name without user name, password and query of a URL, which may hold a secret; for events and logs."""
    base, mark, rest = image.partition("?")
    fragment = rest.partition("#")[2] if mark else ""
    head, at, tail = base.rpartition("@")
    if at and not _DIGEST.fullmatch(tail):
        scheme, colon, _ = head.partition("://")
        base = f"{scheme}://...@{tail}" if colon else f"...@{tail}"
    query = "?..." if mark else ""
    return f"{base}{query}#{fragment}" if fragment else f"{base}{query}"
