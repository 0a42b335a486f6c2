"""Errors of calls to a runtime: the result and the log level that they mean for a step."""

from __future__ import annotations

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from kubeletx.api import KubeletxError, TimedOut, Unavailable

from .model.facts import Now
from .model.results import Result, Together, Unsettled


def after_error(error: KubeletxError, now: Now, result: Result) -> Result:
    """Return `result` or, after a timeout, `result` with `Unsettled`.

    Nothing is changed then before a look that begins later.
    """
    if isinstance(error, TimedOut):
        return Together((result, Unsettled(now.mono)))
    return result


def is_silence(error: KubeletxError) -> bool:
    """Return True if the runtime did not answer: an outage records no event for each call that fails."""
    return isinstance(error, Unavailable)


def level_of(error: KubeletxError, log: FilteringBoundLogger) -> Callable[..., object]:
    """Log method for a failed call: debug if the runtime did not answer, else warning.

    An outage of the runtime has a log line of its own.
    """
    return log.debug if is_silence(error) else log.warning
