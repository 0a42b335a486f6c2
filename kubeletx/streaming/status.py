"""The ``Status`` object that reports the result of exec and attach, on the error channel of protocol v4 and later.

Status Success means exit code 0. Failure with reason NonZeroExitCode has the exit code as a cause. Failure with another
reason means that the command could not be run. Source: Kubernetes apimachinery, metav1.Status; remotecommand v4.
"""

from __future__ import annotations

import msgspec

from kubeletx.api import Internal
from kubeletx.kube.types.api_status import FAILURE, SUCCESS, Status, StatusCause, StatusDetails

NON_ZERO_EXIT = "NonZeroExitCode"
EXIT_CODE = "ExitCode"


_EMPTY_METADATA = {"metadata": dict[str, str]()}
"""Empty metadata, which the kubelet writes too; the class `Status` has no such field."""


def encode_exit(exit_code: int) -> bytes:
    """Encode the Status object of a command that has ended with this exit code, as JSON."""
    if exit_code == 0:
        return _encode(Status(status=SUCCESS))
    return _encode(
        Status(
            status=FAILURE,
            message=f"command terminated with non-zero exit code: exit status {exit_code}",
            reason=NON_ZERO_EXIT,
            details=StatusDetails(causes=(StatusCause(reason=EXIT_CODE, message=str(exit_code)),)),
        )
    )


def encode_error(error: Exception) -> bytes:
    """Encode the Status object of a command that could not be run to its end, as JSON, with the error's message."""
    return _encode(Status(status=FAILURE, message=str(error), reason="InternalError", code=500))


def _encode(status: Status) -> bytes:
    return msgspec.json.encode(_EMPTY_METADATA | msgspec.to_builtins(status))


def refusal_of(body: bytes) -> str:
    """Return the error message in the body of an HTTP answer that refused an upgrade.

    It is the message of the Status object in the body; if the body is no Status, its text.
    """
    text = body.decode(errors="replace").strip()
    try:
        return msgspec.json.decode(body, type=Status).message or text
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def exit_code_of(data: bytes) -> int:
    """Return the exit code in an encoded Status object; 0 for Success.

    Raises Internal with the Status's message if the command could not be run, or if `data` is no Status.
    """
    try:
        status = msgspec.json.decode(data, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Internal(data.decode(errors="replace").strip() or "empty status") from None
    if status.status in (SUCCESS, ""):
        return 0
    if status.reason == NON_ZERO_EXIT:
        for cause in status.causes:
            if cause.reason == EXIT_CODE and cause.message.lstrip("-").isdigit():
                return int(cause.message)
    raise Internal(
        status.message
        or status.reason
        or f"the command failed, and its status has no message: {data[:100]!r}"
    )
