"""Finds the containers that enter CrashLoopBackOff, so that event BackOff can be recorded for them. Pure.

See docs/kubelet-parity.md, row B1.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletx.kube.types.core import PodStatus

from .waiting import CRASH_LOOP


def begin_to_wait(before: PodStatus | None, after: PodStatus) -> Iterator[str]:
    """Yield the names of the containers that wait in CrashLoopBackOff in status `after`, but not in `before`."""
    waited = set(_waiting(before)) if before is not None else set()
    for name in _waiting(after):
        if name not in waited:
            yield name


def _waiting(status: PodStatus) -> Iterator[str]:
    for one in (*status.init_container_statuses, *status.container_statuses):
        if one.state.waiting is not None and one.state.waiting.reason == CRASH_LOOP:
            yield one.name
