"""Durations of pod starts, from creation to running: the histograms of the pod startup latency SLI.

    creation ──► pulls, init containers ──► every container runs, by the published status
    total:       ├────────────────────────────────────────────────┤
    SLI:         the same without the time in which images were pulled or init containers ran

Only pods that are new to this agent process are measured. The first pod that does not use the host network has a label
value of its own, since it waits for the network to be set up. Source: kubelet, util/pod_startup_latency_tracker.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from kubeletx.api import PodUid
from kubeletx.api.counting import LabelledDurations
from kubeletx.kube.types.core import ContainerStatus, Pod, PodStatus

from .model.phase import FINAL

START: tuple[float, ...] = (
    *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120),
    *(180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600),
)

Span = tuple[datetime, datetime]


class _Start(msgspec.Struct):
    """Start of one pod. `has_network`: the pod does not use the host network. `pulls`: times of its image pulls."""

    created_at: datetime
    has_network: bool
    pulls: list[Span] = []


class StartTimes:
    """Measures the time from each pod's creation until its containers run.

    All times are wall clock times in UTC.
    """

    def __init__(self) -> None:
        self.sli = LabelledDurations(START)
        self.total = LabelledDurations(START)
        """Durations by label `first_with_network` (``true`` or ``false``); `sli` has the same label."""
        self._starting: dict[PodUid, _Start] = {}
        self._has_network_pod = False

    def first_seen(self, pod: Pod, now: datetime) -> None:
        """Begin to measure a new pod. A pod without a creation time counts as created now."""
        self._starting[pod.uid] = _Start(
            created_at=pod.metadata.creation_timestamp or now, has_network=not pod.spec.host_network
        )

    def pulled(self, uid: PodUid, began_at: datetime, ended_at: datetime) -> None:
        """Add the time span of an image pull for the pod."""
        start = self._starting.get(uid)
        if start is not None:
            start.pulls = [*start.pulls, (began_at, ended_at)]

    def published(self, uid: PodUid, status: PodStatus, now: datetime) -> None:
        """Record the pod's durations at the first published status in which all its containers run.

        A pod that ends before is not measured.
        """
        start = self._starting.get(uid)
        if start is None:
            return
        if status.phase in FINAL:
            del self._starting[uid]
        elif status.phase == "Running" and all(
            _runs(container_status) for container_status in status.container_statuses
        ):
            del self._starting[uid]
            self._measure(start, status, now)

    def gone(self, uid: PodUid) -> None:
        """Stop measuring a pod that is gone."""
        self._starting.pop(uid, None)

    def _measure(self, start: _Start, status: PodStatus, now: datetime) -> None:
        label = "true" if start.has_network and not self._has_network_pod else "false"
        self._has_network_pod = self._has_network_pod or start.has_network
        total = max((now - start.created_at).total_seconds(), 0.0)
        left_out = covered_seconds([*start.pulls, *_init_spans(status)])
        self.total.add(total, label)
        self.sli.add(max(total - left_out, 0.0), label)


def covered_seconds(spans: Iterable[Span]) -> float:
    """Return the length of the union of the spans in seconds; overlaps count once."""
    total, end = 0.0, None
    for began_at, ended_at in sorted(spans):
        first = began_at if end is None else max(began_at, end)
        total += max((ended_at - first).total_seconds(), 0.0)
        end = ended_at if end is None else max(end, ended_at)
    return total


def _runs(status: ContainerStatus) -> bool:
    running = status.state.running
    return running is not None and running.started_at is not None


def _init_spans(status: PodStatus) -> list[Span]:
    """Return the time spans in which init containers ran that have ended; sidecars are not included."""
    ends = (container_status.state.terminated for container_status in status.init_container_statuses)
    return [
        (end.started_at, end.finished_at)
        for end in ends
        if end is not None and end.started_at is not None and end.finished_at is not None
    ]
