"""Finds the containers that begin to wait between two starts, for which event BackOff (B1) is recorded. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kubeletx.kube.types.core import PodStatus

from .waiting import CRASH_LOOP


def begin_to_wait(before: PodStatus | None, after: PodStatus) -> Iterator[str]:
    """Names of the containers that wait in CrashLoopBackOff in status `after` and did not in `before`."""
    waited = set(_waiting(before)) if before is not None else set()
    for name in _waiting(after):
        if name not in waited:
            yield name


def _waiting(status: PodStatus) -> Iterator[str]:
    for one in (*status.init_container_statuses, *status.container_statuses):
        if one.state.waiting is not None and one.state.waiting.reason == CRASH_LOOP:
            yield one.name
