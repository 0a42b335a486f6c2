"""Translation of the API server's error answers into exceptions.

Source: meta/v1 Status and its reasons; apimachinery, pkg/api/errors.

    400, 422          Internal          the server cannot accept what the client sent
    401, 403          PermissionDenied
    404               NotFound
    409 AlreadyExists AlreadyExists
    409               Conflict          the object has another version or uid (also 422 with cause metadata.uid)
    410               Expired           the server does not keep a resource version that old
    429 with a cause  BudgetExceeded    a PodDisruptionBudget forbids an eviction now (cause DisruptionBudget)
    429               TooManyRequests   has the time to wait; a 5xx with Retry-After becomes this, too
    5xx and the rest  Unavailable
"""

from __future__ import annotations

import msgspec

from kubeletx.api import (
    AlreadyExists,
    Conflict,
    Internal,
    KubeletxError,
    NotFound,
    PermissionDenied,
    Unavailable,
)

from ..types.api_status import Status, StatusDetails

_TOO_LARGE = "ResourceVersionTooLarge"
_BUDGET = "DisruptionBudget"
_MAX_TEXT = 500
LONGEST_RETRY_SECONDS = 300.0
"""Upper bound for Retry-After."""


class Expired(Conflict):
    """The server no longer has this resource version, or does not have it yet: list again."""


class ConnectionLost(Unavailable):
    """The connection broke while the client read the server's answer."""


class TooManyRequests(Unavailable):
    """The server is overloaded and asks the client to wait before it tries again."""

    def __init__(
        self, message: str, *, retry_after_seconds: float = 1.0, reason: str = "TooManyRequests"
    ) -> None:
        """`retry_after_seconds`: how long the server asks the client to wait."""
        super().__init__(message, reason=reason)
        self.retry_after_seconds = retry_after_seconds


class BudgetExceeded(Unavailable):
    """A PodDisruptionBudget forbids the eviction now. The server itself is reachable.

    Source: policy/v1, DisruptionBudgetCause. The error is recognised by this cause and not by Retry-After:
    the API server sends that header only while the budget's status is outdated.
    """

    def __init__(self, message: str, *, retry_after_seconds: float = 0.0) -> None:
        """`retry_after_seconds`: how long the server asks the client to wait; 0: the caller chooses."""
        super().__init__(message, reason=_BUDGET)
        self.retry_after_seconds = retry_after_seconds


def least_seconds(error: Exception) -> float:
    """Return the seconds that the server asked to wait before a retry, for `Backoff.next`; 0 if it did not ask."""
    return error.retry_after_seconds if isinstance(error, TooManyRequests | BudgetExceeded) else 0.0


def parse_status(body: bytes) -> Status:
    """Decode a Status. Any other body, such as a proxy's page, becomes the message of an otherwise empty Status."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = Status()
    if status.message or status.reason or status.code:
        return status
    return Status(message=body[:_MAX_TEXT].decode(errors="replace").strip())


def error_of(code: int, status: Status, what: str, *, retry_after: str = "") -> KubeletxError:
    """Return the error for an HTTP status code and its decoded body.

    `what`: method and path, for the message. `retry_after`: value of the header Retry-After; empty: none.
    """
    text = f"{what}: {status.message or status.reason or 'no reason given'} ({code})"
    details = status.details or StatusDetails()
    if any(cause.reason == _TOO_LARGE for cause in details.causes):
        return Expired(text, reason=_TOO_LARGE)
    if any(cause.field == "metadata.uid" for cause in details.causes):
        return Conflict(
            text, reason=status.reason or None
        )  # a patch for an object that is no longer this one
    match code:
        case 400 | 422:
            return Internal(text, reason=status.reason or None)
        case 401 | 403:
            return PermissionDenied(text, reason=status.reason or None)
        case 404:
            return NotFound(text, reason=status.reason or None)
        case 409:
            known = AlreadyExists if status.reason == "AlreadyExists" else Conflict
            return known(text, reason=status.reason or None)
        case 410:
            return Expired(text, reason=status.reason or None)
        case 429 if any(cause.reason == _BUDGET for cause in details.causes):
            return BudgetExceeded(
                "; ".join((text, *(cause.message for cause in details.causes if cause.reason == _BUDGET))),
                retry_after_seconds=_seconds(retry_after, details) if details.retry_after_seconds else 0.0,
            )
        case 429:
            return TooManyRequests(text, retry_after_seconds=_seconds(retry_after, details))
    if code >= 500 and _is_number(retry_after):
        wait = _seconds(retry_after, details)
        return TooManyRequests(text, retry_after_seconds=wait, reason=status.reason or "ServiceUnavailable")
    return Unavailable(text, reason=status.reason or None)


def _is_number(header: str) -> bool:
    return header.isascii() and header.isdigit()


def _seconds(header: str, details: StatusDetails) -> float:
    wanted = float(header) if _is_number(header) else float(details.retry_after_seconds or 1)
    return min(wanted, LONGEST_RETRY_SECONDS)
