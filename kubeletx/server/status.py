"""Converts errors to v1 Status objects with their HTTP code, and back.

`reason` and `code` are Kubernetes' own, so that any client understands them. `details.kind` is the name of the error's
class, so that the command line raises the same error that the agent raised.
"""

from __future__ import annotations

from typing import Final

from kubeletx.api import errors
from kubeletx.api.errors import FieldError, KubeletxError
from kubeletx.kube.types.api_status import Status, StatusCause, StatusDetails, failure

_CODES: Final[dict[type[KubeletxError], tuple[int, str]]] = {
    errors.NotFound: (404, "NotFound"),
    errors.AlreadyExists: (409, "AlreadyExists"),
    errors.InvalidConfig: (400, "BadRequest"),
    errors.InvalidPod: (422, "Invalid"),
    errors.Unsupported: (405, "MethodNotAllowed"),
    errors.Unavailable: (503, "ServiceUnavailable"),
    errors.TimedOut: (504, "Timeout"),
    errors.PermissionDenied: (403, "Forbidden"),
    errors.Conflict: (409, "Conflict"),
    errors.Internal: (500, "InternalError"),
}
_CLASSES: Final = {cls.__name__: cls for cls in _CODES}


def _base(error: KubeletxError) -> type[KubeletxError]:
    """Return the error's class or nearest base class that has an HTTP code; Internal if there is none."""
    return next((cls for cls in type(error).__mro__ if cls in _CODES), errors.Internal)


def to_status(error: KubeletxError) -> Status:
    """Convert an error to a Status; an error class without its own code has its base class's code."""
    cls = _base(error)
    code, reason = _CODES[cls]
    details = StatusDetails(kind=cls.__name__)
    if isinstance(error, FieldError):
        cause = StatusCause(reason="FieldValueInvalid", message=error.problem, field=error.field)
        details = StatusDetails(kind=cls.__name__, name=error.obj, causes=(cause,))
    return failure(error.message, reason=error.reason or reason, code=code, details=details)


def to_error(status: Status) -> KubeletxError:
    """Convert a Status of this agent back to the error that `to_status` converted.

    A Status that another server made is converted to Internal, with the same message.
    """
    details = status.details or StatusDetails()
    cls = _CLASSES.get(details.kind, errors.Internal)
    if not issubclass(cls, FieldError):
        return cls(status.message, reason=status.reason or None)
    cause = details.causes[0] if details.causes else StatusCause(message=status.message)
    made = cls(obj=details.name, field=cause.field, problem=cause.message, reason=status.reason or None)
    made.message = status.message
    made.args = (status.message,)
    return made
