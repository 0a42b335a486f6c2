"""`Removals`: delays the effect of removed manifest files.

If the whole directory is deleted, its files are removed first. The delay gives time to detect this, so that the pods
are kept.
"""

from __future__ import annotations

from typing import Final

from kubeletx.api import Clock

QUIET_SECONDS: Final = 0.2
"""Seconds without another removal after which the removals take effect."""
LONGEST_SECONDS: Final = 2.0
"""Seconds since the first removal after which the removals take effect in any case."""


class Removals:
    """Collects removed files until their removals take effect, all at the same time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paths: dict[str, None] = {}
        self._first_at = self._last_at = 0.0

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def add(self, path: str) -> None:
        """Add a removed file. This delays the effect of all pending removals again, up to `LONGEST_SECONDS`."""
        if path in self._paths:
            return
        self._last_at = self._clock.monotonic()
        if not self._paths:
            self._first_at = self._last_at
        self._paths[path] = None

    def discard(self, path: str) -> None:
        """Cancel the removal of a file that exists again."""
        self._paths.pop(path, None)

    def clear(self) -> None:
        """Cancel all pending removals."""
        self._paths.clear()

    def seconds_left(self) -> float | None:
        """Return the seconds until the pending removals take effect; 0.0 if they may take effect now.

        Returns None if there are no pending removals.
        """
        if not self._paths:
            return None
        believed_at = min(self._last_at + QUIET_SECONDS, self._first_at + LONGEST_SECONDS)
        return max(0.0, believed_at - self._clock.monotonic())

    def take(self) -> list[str]:
        """Return the files whose removal takes effect now, sorted, and forget them; empty if it is too early."""
        if self.seconds_left() != 0.0:
            return []
        paths = sorted(self._paths)
        self._paths.clear()
        return paths
