"""Errors of calls to a runtime: the result and the log level that they mean for a step."""

from __future__ import annotations

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from kubeletx.api import KubeletxError, TimedOut, Unavailable

from .model.facts import Now
from .model.results import Result, Together, Unsettled


def after_error(error: KubeletxError, now: Now, result: Result) -> Result:
    """`result`; after a timeout also a look that begins when the call can no longer take effect."""
    if isinstance(error, TimedOut):
        return Together((result, Unsettled(now.mono)))
    return result


def is_silence(error: KubeletxError) -> bool:
    """Return True if the error is a missing answer, not a refusal: an outage records no event for each failed call."""
    return isinstance(error, Unavailable)


def level_of(error: KubeletxError, log: FilteringBoundLogger) -> Callable[..., object]:
    """The log level of a failed call: an outage of the runtime has its own log line."""
    return log.debug if is_silence(error) else log.warning
