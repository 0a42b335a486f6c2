"""What is counted of pods since the agent started: plain numbers, read when somebody scrapes the metrics.

Counting costs well under a microsecond: an addition, for durations also a bisection. Names are those of the
kubelet's metrics without their prefix; `kubeletx.agent.backend.about` gives them their full ones.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from kubeletx.api import PodUid

QUICK: tuple[float, ...] = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
START: tuple[float, ...] = (
    *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120),
    *(180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600),
)
PULL: tuple[float, ...] = (1, 5, 10, 20, 30, 60, 180, 300, 600, 900, 1200, 1800, 2700, 3600)


class Durations:
    """A histogram. `counts[i]`: values up to `bounds[i]` (not cumulative); the last is above all bounds."""

    __slots__ = ("bounds", "counts", "sum_seconds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """`bounds`: upper bounds in seconds, rising; the kubelet's of the same metric."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_seconds += seconds


@dataclass(slots=True)
class Counters:
    """All of them. Pods that an earlier agent started are in none."""

    started_pods: int = 0
    """Sandboxes that were asked for."""
    started_pods_errors: int = 0
    started_containers: int = 0
    """Units that were asked for."""
    started_containers_errors: int = 0
    restarted_pods: int = 0
    """Pods that took the place of one of the same name, because their source changed it."""
    orphaned_runtime_pods: int = 0
    """Pods found on a runtime without a binding."""
    admission_rejections: int = 0
    pod_start: Durations = field(default_factory=lambda: Durations(START))
    pod_worker: Durations = field(default_factory=lambda: Durations(QUICK))
    pod_worker_start: Durations = field(default_factory=lambda: Durations(QUICK))
    image_pull: Durations = field(default_factory=lambda: Durations(PULL))
    _seen: dict[PodUid, float] = field(default_factory=dict)
    _waiting: set[PodUid] = field(default_factory=set)

    def first_seen(self, uid: PodUid, now: float) -> None:
        """A pod that was never here. `now`: on the monotonic clock, here and below."""
        self._seen.setdefault(uid, now)
        self._waiting.add(uid)

    def worker_turned(self, uid: PodUid, seconds: float, now: float) -> None:
        """Its worker made one round that took `seconds`."""
        self.pod_worker.add(seconds)
        if uid in self._waiting:
            self._waiting.discard(uid)
            self.pod_worker_start.add(max(now - self._seen.get(uid, now), 0.0))

    def phase_changed(self, uid: PodUid, phase: str, now: float) -> None:
        """Its status was published with this phase."""
        if phase == "Running" and (seen := self._seen.pop(uid, None)) is not None:
            self.pod_start.add(now - seen)

    def gone(self, uid: PodUid) -> None:
        """It needs no count any more."""
        self._seen.pop(uid, None)
        self._waiting.discard(uid)
