"""Removed manifest files, until it is certain that not the whole directory was removed."""

from __future__ import annotations

from typing import Final

from kubeletx.api import Clock

QUIET_SECONDS: Final = 0.2
"""Time without another removal after which a removal takes effect."""
LONGEST_SECONDS: Final = 2.0
"""Time after which a removal takes effect in any case."""


class Removals:
    """Removed files whose removal has not taken effect yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paths: dict[str, None] = {}
        self._first_at = self._last_at = 0.0

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def add(self, path: str) -> None:
        """Add a file that was removed."""
        if path in self._paths:
            return
        self._last_at = self._clock.monotonic()
        if not self._paths:
            self._first_at = self._last_at
        self._paths[path] = None

    def discard(self, path: str) -> None:
        """Drop a file that exists again."""
        self._paths.pop(path, None)

    def clear(self) -> None:
        """Drop all pending removals: the files are back."""
        self._paths.clear()

    def seconds_left(self) -> float | None:
        """Seconds until the removals take effect; None without any."""
        if not self._paths:
            return None
        believed_at = min(self._last_at + QUIET_SECONDS, self._first_at + LONGEST_SECONDS)
        return max(0.0, believed_at - self._clock.monotonic())

    def take(self) -> list[str]:
        """The files whose removal takes effect now, sorted; empty if it is too early."""
        if self.seconds_left() != 0.0:
            return []
        paths = sorted(self._paths)
        self._paths.clear()
        return paths
