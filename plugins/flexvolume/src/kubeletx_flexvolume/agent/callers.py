"""`MountCallers`: the callers of one volume's mounts, with what is kept for them. No I/O, and no clock of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Final

from kubeletx.api import KubeletxError

from ..values import HolderKey, MountRequest

ABANDONED_SECONDS: Final = 150.0
"""Time for which an unfinished mount waits for a repeated call. A kubelet repeats one after at most 122 seconds."""


class MountCallers:
    """Callers by the use that they wait for.

    Requests, which may contain secrets, are dropped with their last caller.
    """

    def __init__(self) -> None:
        self._waiting: Counter[HolderKey] = Counter()
        self._abandoned: dict[HolderKey, float] = {}
        self._requests: dict[HolderKey, MountRequest] = {}
        self._failures: dict[HolderKey, KubeletxError] = {}

    @property
    def awaited(self) -> Set[HolderKey]:
        """Uses that a caller waits for."""
        return {key for key, number in self._waiting.items() if number > 0}

    @property
    def next_due(self) -> float | None:
        """Monotonic time at which the next use counts as abandoned; None: none does."""
        return min(self._abandoned.values(), default=None)

    def begin(self, key: HolderKey) -> None:
        """Note that a caller waits for the use."""
        self._waiting[key] += 1
        self._abandoned.pop(key, None)

    def end(self, key: HolderKey, now: float) -> None:
        """Note that a caller does not wait any more. `now`: monotonic time."""
        self._waiting[key] -= 1
        if self._waiting[key] <= 0:
            del self._waiting[key]
            self._abandoned[key] = now + ABANDONED_SECONDS

    def want(self, key: HolderKey, request: MountRequest) -> None:
        """Keep the request of a use for its steps."""
        self._failures.pop(key, None)
        self._requests[key] = request

    def request(self, key: HolderKey | None) -> MountRequest | None:
        return None if key is None else self._requests.get(key)

    def fail(self, key: HolderKey, error: KubeletxError) -> None:
        """Keep the error with which the mount of a use has failed."""
        self._requests.pop(key, None)
        self._failures[key] = error

    def failure(self, key: HolderKey) -> KubeletxError | None:
        """Return the error of a use; None if it has not failed."""
        return self._failures.get(key)

    def without_caller(self) -> list[HolderKey]:
        """Return the uses whose last caller has gone and that have not been settled since (`settle`)."""
        return list(self._abandoned)

    def is_due(self, key: HolderKey, now: float) -> bool:
        """Return True if the use has been without a caller for too long."""
        return self._abandoned.get(key, now + 1) <= now

    def settle(self, key: HolderKey) -> None:
        """Forget a use without callers: its mount is completed, or it is being removed."""
        self._abandoned.pop(key, None)
        self._requests.pop(key, None)
        self._failures.pop(key, None)
