"""`ForeignWrites`: delays this node's corrections of foreign writes.

A foreign write is a change by another client to something that this node reports. Its first correction is immediate.
While the other client continues, each later correction waits twice as long as the previous one: 10 s, 20 s, up to the
cap. The rate of corrections of all objects together is limited too. The node's own changes never wait.

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
"""Seconds without a foreign write after which the next one is corrected at once again."""
BURST, PER_SECOND = 20.0, 2.0
"""Limit of corrections for all objects together: a burst, and a rate per second."""
_MANY = 1000


class _Contest(msgspec.Struct):
    """Foreign writes (changes by other clients) to one object, and their corrections.

    `delay`: seconds for which the correction waits. `due_at`: monotonic time at which the present foreign write may be
    corrected; None if there is none now. `settled_at`: monotonic time of the last correction. `cancel`: cancels the
    call that is scheduled for the correction.
    """

    delay: float = 0.0
    due_at: float | None = None
    settled_at: float = 0.0
    cancel: Callable[[], None] | None = None

    def stop_timer(self) -> None:
        """Cancel the timer that would start the correction."""
        if self.cancel is not None:
            self.cancel()
            self.cancel = None


class ForeignWrites:
    """Decides when this node may correct foreign writes: changes by other clients to objects that it reports.

    Repeated corrections of one object are delayed. Each object has a key, which the caller chooses.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._contests: dict[Hashable, _Contest] = {}
        self._answers_left = BURST
        self._counted_at = clock.monotonic()

    def may_answer(self, key: Hashable, again: Callable[[], object]) -> bool:
        """Return True if the present foreign write (change by another client) to the object may be corrected now.

        If False, `again` is called once it may be corrected. Further calls for the same foreign write do not lengthen
        the wait. `settle` ends the foreign write; a call after it is about a new one.
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
        """Record that the object in the API server equals this node's state again, which ends a foreign write.

        `is_answer`: True if this node corrected a foreign write, which counts toward the limit for all objects; False
        if it did not.
        """
        contest = self._contests.get(key)
        if contest is None or contest.due_at is None:
            return
        contest.stop_timer()
        contest.due_at, contest.settled_at = None, self._clock.monotonic()
        self._answers_left -= is_answer

    def next_wait(self, key: Hashable) -> float:
        """Return the seconds for which the correction of the next foreign write to this object will wait."""
        contest = self._contests.get(key)
        return min(CAP_SECONDS, contest.delay * 2 or FIRST_SECONDS) if contest is not None else 0.0

    def forget(self, key: Hashable) -> None:
        """Drop the record of an object that is gone, and cancel its timer."""
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
        for key, contest in list(self._contests.items()):
            if contest.due_at is None and now - contest.settled_at > FORGET_SECONDS:
                del self._contests[key]

    def _free_at(self, now: float) -> float:
        """Return the monotonic time at which the limit for all objects allows another correction."""
        self._answers_left = min(BURST, self._answers_left + (now - self._counted_at) * PER_SECOND)
        self._counted_at = now
        return now + max(0.0, (1.0 - self._answers_left) / PER_SECOND)
