"""Reach of the controller: one answer from several sources, each with a freshness stamp. Pure.

A source that is silent for longer than ``contact.fresh.limit`` after a success counts as unreachable. Trouble of the
controller itself (TEMPORARY_FAIL) counts as reached.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .model import Reach


class ContactReport(msgspec.Struct, frozen=True):
    """Last report of a source. `at`: when it came, in seconds of ticks. `count`: number of its successes."""

    reach: Reach
    at: int
    count: int = 0


class Contact(msgspec.Struct, frozen=True):
    """Answer of all sources. `last`: second of the last tick at which the controller was reached; None: not yet.

    `successes`: contacts since the boot. `source`: name of the source that decided.
    `last_success`: second of the last success of any source.
    """

    reach: Reach = Reach.UNKNOWN
    last: int | None = None
    successes: int = 0
    source: str = ""
    last_success: int | None = None

    @property
    def is_reached(self) -> bool:
        return self.reach in {Reach.SUCCESS, Reach.TEMPORARY_FAIL}

    def silent_seconds(self, now: int) -> int:
        """Return how long the controller has not been reached; from the start if it never was."""
        return now - (self.last or 0)


_ORDER = (Reach.SUCCESS, Reach.TEMPORARY_FAIL, Reach.FAIL, Reach.READ_SAVED)


def merge(before: Contact, reports: Mapping[str, ContactReport], now: int, fresh_seconds: int) -> Contact:
    """Return the answer at this tick: the best word that is fresh."""
    words: dict[Reach, str] = {}
    for name, report in sorted(reports.items()):
        is_stale = now - report.at > fresh_seconds
        reach = Reach.FAIL if is_stale and report.reach is not Reach.READ_SAVED else report.reach
        words.setdefault(reach, name)
    reach = next((word for word in _ORDER if word in words), Reach.UNKNOWN)
    successes = sum(report.count for report in reports.values())
    last_success = max(
        (report.at for report in reports.values() if report.reach is Reach.SUCCESS), default=None
    )
    last = now if reach in {Reach.SUCCESS, Reach.TEMPORARY_FAIL} else before.last
    return Contact(reach, last, max(successes, before.successes), words.get(reach, ""), last_success)
