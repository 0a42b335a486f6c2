"""The Status object: body of API answers that have no other object, such as errors, and result of a remote command.

Source: meta/v1 Status.
"""

from __future__ import annotations

from .meta import ApiStruct

SUCCESS, FAILURE = "Success", "Failure"


class StatusCause(ApiStruct, frozen=True, kw_only=True):
    """One cause of a failure. `reason`: a code for programs; `field`: path of the field in the refused object."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiStruct, frozen=True, kw_only=True):
    """The object that a failed request was about, and the causes of the failure.

    `retry_after_seconds`: how long the client is to wait before a retry; None: not given.
    """

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int | None = None


class Status(ApiStruct, frozen=True, kw_only=True):
    """Result of a request, sent instead of an object, mostly for errors (meta/v1 Status).

    `status`: Success or Failure. `reason`: a code for programs, such as NotFound. `code`: the HTTP status code.
    Any field may be empty if the answer is from another server, such as a proxy.
    """

    kind: str = ""
    api_version: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """Causes of the failure, from `details`; empty if `details` is None."""
        return self.details.causes if self.details is not None else ()


def failure(message: str, *, reason: str, code: int, details: StatusDetails | None = None) -> Status:
    """Make the Status of a failed HTTP request. `reason`: a code for programs; `code`: the HTTP status code."""
    return Status(
        kind="Status",
        api_version="v1",
        status=FAILURE,
        message=message,
        reason=reason,
        details=details,
        code=code,
    )
