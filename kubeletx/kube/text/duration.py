"""Durations in Go's notation, as Kubernetes writes them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_SECONDS: Final = 2**63 / 1e9
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration such as ``20s``, ``1m30s`` or ``0``. Raises ValueError, also if negative."""
    if text == "0":
        return 0.0
    total, position = 0.0, 0
    body = text[1:] if text[:1] in "+-" else text
    while position < len(body):
        match = _PART.match(body, position)
        if match is None:
            raise ValueError("is not a duration; write it like 20s, 1m30s or 500ms")
        total += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not body:
        raise ValueError("is not a duration; write it like 20s, 1m30s or 500ms")
    if text.startswith("-"):
        raise ValueError("is negative; durations start at 0")
    if total >= _MAX_SECONDS:
        raise ValueError("is longer than 2562047h, the longest duration")
    return round(total, 9)


def format_duration(seconds: float) -> str:
    """Return seconds in Go's notation: 90.0 is ``1m30s``, 0.5 is ``500ms``."""
    if seconds == 0:
        return "0s"
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = (f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{rest:g}s" if rest else "")
    return "".join(parts)
