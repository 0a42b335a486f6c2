"""The Status object: the answer of an API where there is no object to send, and the end of a remote command.

Source: meta/v1 Status.
"""

from __future__ import annotations

from .meta import ApiStruct

SUCCESS, FAILURE = "Success", "Failure"


class StatusCause(ApiStruct, frozen=True, kw_only=True):
    """One detail of a failure. `reason`: a code for programs; `field`: path in the refused object."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiStruct, frozen=True, kw_only=True):
    """The object that a failed request was about, and the causes of the failure."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int | None = None


class Status(ApiStruct, frozen=True, kw_only=True):
    """meta/v1 Status: the result of a request that has no object to return. `code`: the HTTP status code.

    Any field may be missing in an answer of another server, such as a proxy.
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
        """Causes of the failure; empty if the Status has no details."""
        return self.details.causes if self.details is not None else ()


def failure(message: str, *, reason: str, code: int, details: StatusDetails | None = None) -> Status:
    """Make the Status of a failed HTTP request."""
    return Status(
        kind="Status",
        api_version="v1",
        status=FAILURE,
        message=message,
        reason=reason,
        details=details,
        code=code,
    )
