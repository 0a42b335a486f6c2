"""Files that were removed, until it is certain that only they were, and not the directory around them."""

from __future__ import annotations

from typing import Final

from kubeletx.api import Clock

QUIET_SECONDS: Final = 0.2
"""A removal is believed when no other followed for so long."""
LONGEST_SECONDS: Final = 2.0
"""A removal is believed after so long in any case."""


class Removals:
    """The removed files that were not let go yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paths: dict[str, None] = {}
        self._first_at = self._last_at = 0.0

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def add(self, path: str) -> None:
        """The file is gone."""
        if path in self._paths:
            return
        self._last_at = self._clock.monotonic()
        if not self._paths:
            self._first_at = self._last_at
        self._paths[path] = None

    def discard(self, path: str) -> None:
        """The file is there again."""
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
        """All of them, in sorted order, if they are believed now; else none."""
        if self.seconds_left() != 0.0:
            return []
        paths = sorted(self._paths)
        self._paths.clear()
        return paths
