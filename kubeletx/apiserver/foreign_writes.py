"""`ForeignWrites`: delays this node's corrections of foreign writes to what it reports.

The first correction is immediate. While the other writer continues, each later one waits twice as long as the previous
one: 10 s, 20 s, up to the cap. All corrections together are limited too. The node's own changes never wait.

Two writers that correct each other immediately would write some hundred times a second to the API server. A kubelet
compares every ten seconds with the API server's state (pkg/kubelet, nodeStatusUpdateFrequency; pkg/kubelet/status,
syncBatch).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import msgspec

from kubeletx.api import Clock

FIRST_SECONDS = 10.0
CAP_SECONDS = 160.0
FORGET_SECONDS = 300.0
"""Time without a foreign write after which the next one is corrected at once again."""
BURST, PER_SECOND = 20.0, 2.0
"""Limit of corrections for all objects together: a burst, and a rate per second."""
_MANY = 1000


class _Contest(msgspec.Struct):
    """Foreign writes to one object, and their corrections.

    `due_at`: time at which the present one may be corrected; None: there is none now.
    """

    delay: float = 0.0
    due_at: float | None = None
    settled_at: float = 0.0
    cancel: Callable[[], None] | None = None

    def stop_timer(self) -> None:
        """Cancel the call that is scheduled for the time of the correction."""
        if self.cancel is not None:
            self.cancel()
            self.cancel = None


class ForeignWrites:
    """Decides when this node may correct foreign writes to its objects.

    The caller chooses a key for each object.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._contests: dict[Hashable, _Contest] = {}
        self._answers_left = BURST
        self._counted_at = clock.monotonic()

    def may_answer(self, key: Hashable, again: Callable[[], object]) -> bool:
        """Return True if the present foreign write may be corrected; if not, `again` is called once it may.

        More calls for the same foreign write do not lengthen the wait; after `settle`, the next one is a new
        foreign write.
        """
        now = self._clock.monotonic()
        contest = self._contest(key, now)
        assert contest.due_at is not None
        at = max(contest.due_at, self._free_at(now))
        if at <= now:
            return True
        if contest.cancel is None:

            def due() -> None:
                contest.cancel = None
                again()

            contest.cancel = self._clock.call_at(at, due)
        return False

    def settle(self, key: Hashable, *, is_answer: bool = True) -> None:
        """Record that the API server's state equals this node's again.

        `is_answer`: the foreign write was corrected, which counts for the common limit; False: nothing had to
        be written.
        """
        contest = self._contests.get(key)
        if contest is None or contest.due_at is None:
            return
        contest.stop_timer()
        contest.due_at, contest.settled_at = None, self._clock.monotonic()
        self._answers_left -= is_answer

    def next_wait(self, key: Hashable) -> float:
        """Seconds for which the correction of the next foreign write to this object will wait."""
        contest = self._contests.get(key)
        return min(CAP_SECONDS, contest.delay * 2 or FIRST_SECONDS) if contest is not None else 0.0

    def forget(self, key: Hashable) -> None:
        """Drop the record of an object that is gone, and its timer."""
        if (contest := self._contests.pop(key, None)) is not None:
            contest.stop_timer()

    def _contest(self, key: Hashable, now: float) -> _Contest:
        contest = self._contests.get(key)
        if contest is not None and contest.due_at is None and now - contest.settled_at > FORGET_SECONDS:
            contest = None
        if contest is None:
            if len(self._contests) >= _MANY:
                self._drop_old(now)
            contest = self._contests[key] = _Contest(due_at=now)
        elif contest.due_at is None:
            contest.delay = min(CAP_SECONDS, contest.delay * 2 or FIRST_SECONDS)
            contest.due_at = now + contest.delay
        return contest

    def _drop_old(self, now: float) -> None:
        for key, one in list(self._contests.items()):
            if one.due_at is None and now - one.settled_at > FORGET_SECONDS:
                del self._contests[key]

    def _free_at(self, now: float) -> float:
        """Monotonic time at which the common limit allows another correction."""
        self._answers_left = min(BURST, self._answers_left + (now - self._counted_at) * PER_SECOND)
        self._counted_at = now
        return now + max(0.0, (1.0 - self._answers_left) / PER_SECOND)
