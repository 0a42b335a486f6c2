"""Errors of calls to a runtime: which result a step returns and at which level it logs."""

from __future__ import annotations

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from kubeletx.api import KubeletxError, TimedOut, Unavailable

from .model.facts import Now
from .model.results import Result, Together, Unsettled


def after_error(error: KubeletxError, now: Now, result: Result) -> Result:
    """Return `result`; if the call timed out, return it together with `Unsettled`.

    A call that timed out may still take effect. With `Unsettled`, the pod is not changed further until the runtime's
    state was read again by a query that began after `now`.
    """
    if isinstance(error, TimedOut):
        return Together((result, Unsettled(now.mono)))
    return result


def is_silence(error: KubeletxError) -> bool:
    """Return True if the runtime did not answer. Callers then record no event, or an outage would cause many."""
    return isinstance(error, Unavailable)


def level_of(error: KubeletxError, log: FilteringBoundLogger) -> Callable[..., object]:
    """Return the log method for a failed call: debug if the runtime did not answer, otherwise warning.

    The outage itself is logged elsewhere.
    """
    return log.debug if is_silence(error) else log.warning
