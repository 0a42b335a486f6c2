"""Exception classes of kubeletx and its plugins.

Classes say what the caller may do next, not where the error came from:

    KubeletxError
    ├── NotFound          the object does not exist; for stop and remove this counts as success
    ├── AlreadyExists     another object has the same name or key
    ├── InvalidConfig     the operator must change a flag, a file or a setting (start is refused)
    ├── InvalidPod        the pod's author must change the manifest (the pod is refused)
    ├── Unsupported       this runtime cannot do it, ever; do not retry
    ├── Unavailable       no answer for now; retry with back-off, keep what was known
    ├── TimedOut          the deadline expired: it may still happen; read the state before acting again
    ├── PermissionDenied  credentials or rights are missing
    ├── Conflict          the object changed meanwhile, or its state forbids the call
    └── Internal          a bug, or an answer that breaks the protocol

Other errors (gRPC, libvirt, OSError) are translated to these in the package or plugin that calls the other program,
with ``raise ... from``. `TABLE` has the gRPC code and the event reason of each class, and whether a retry may help.
"""

from __future__ import annotations

from typing import NamedTuple

from .text import printable


class KubeletxError(Exception):
    """Base of all errors whose message is one line for users. Any other exception is a bug."""

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        """`message`: one line for users. `reason`: CamelCase word for events and status.

        `reason` None: the code that reports the error chooses the word.
        """
        self.message = printable(message)
        super().__init__(self.message)
        self.reason = reason

    def __str__(self) -> str:
        return self.message


class NotFound(KubeletxError):
    """The object does not exist."""


class AlreadyExists(KubeletxError):
    """Another object has the name or key."""


class FieldError(KubeletxError):
    """Base of errors in one field of an object or file, such as a pod's manifest or a configuration file.

    The message names the object, the field, what was found there and what to do.
    """

    def __init__(
        self, *, field: str, problem: str, fix: str = "", obj: str = "", reason: str | None = None
    ) -> None:
        """`obj`: object or file that has the field; empty if unknown.

        `field`: path such as ``spec.containers[0].image``. `problem`: what was found. `fix`: what to do. `reason`:
        as in `KubeletxError`.
        """
        self.obj, self.field = printable(obj), printable(field)
        self.problem, self.fix = printable(problem), printable(fix)
        where = f"{obj}: {field}" if obj and field else (obj or field)
        text = f"{where}: {problem}" if where else problem
        super().__init__(f"{text}; {fix}" if fix else text, reason=reason)


class InvalidConfig(FieldError):
    """The operator must correct a flag, a configuration file or a plugin's setting."""


class InvalidPod(FieldError):
    """The pod's author must correct the manifest."""


class Unsupported(KubeletxError):
    """The runtime cannot do this; a retry will not help."""


class Unavailable(KubeletxError):
    """The called program or server does not answer now: keep the last known state, and retry with back-off."""


class TimedOut(KubeletxError):
    """The deadline expired. The action may still happen: read the present state before you retry."""


class PermissionDenied(KubeletxError):
    """The called server refused the caller's credentials or rights."""


class Conflict(KubeletxError):
    """The object's present state or version forbids this call."""


class Internal(KubeletxError):
    """A bug in this program or in the called one, or an answer that breaks the protocol."""


class ErrorRow(NamedTuple):
    """Row of `TABLE`: the gRPC code and event reason of an error class, and whether a retry may help."""

    grpc_code: str
    event_reason: str
    retry: bool


TABLE: dict[type[KubeletxError], ErrorRow] = {
    NotFound: ErrorRow("NOT_FOUND", "NotFound", False),
    AlreadyExists: ErrorRow("ALREADY_EXISTS", "AlreadyExists", False),
    InvalidConfig: ErrorRow("INVALID_ARGUMENT", "InvalidConfig", False),
    InvalidPod: ErrorRow("INVALID_ARGUMENT", "FailedValidation", False),
    Unsupported: ErrorRow("UNIMPLEMENTED", "Unsupported", False),
    Unavailable: ErrorRow("UNAVAILABLE", "RuntimeUnavailable", True),
    TimedOut: ErrorRow("DEADLINE_EXCEEDED", "RuntimeTimedOut", True),
    PermissionDenied: ErrorRow("PERMISSION_DENIED", "PermissionDenied", False),
    Conflict: ErrorRow("FAILED_PRECONDITION", "Conflict", True),
    Internal: ErrorRow("INTERNAL", "InternalError", True),
}


def row_of(error: KubeletxError) -> ErrorRow:
    """Return the row of `TABLE` for the error's class or its nearest base class; if there is none, Internal's row."""
    for cls in type(error).__mro__:
        if cls in TABLE:
            return TABLE[cls]
    return TABLE[Internal]
