"""The ``Status`` object that ends a remote command, on the error channel of v4 and later.

Success, or Failure with reason NonZeroExitCode and the exit code as a cause. Anything else is an error of the
runtime. Source: Kubernetes apimachinery, metav1.Status; remotecommand v4.
"""

from __future__ import annotations

import msgspec

from kubeletx.api import Internal
from kubeletx.kube.types.api_status import FAILURE, SUCCESS, Status, StatusCause, StatusDetails

NON_ZERO_EXIT = "NonZeroExitCode"
EXIT_CODE = "ExitCode"


_EMPTY_METADATA = {"metadata": dict[str, str]()}
"""Metadata that kubelets write; `Status` does not keep it."""


def encode_exit(exit_code: int) -> bytes:
    """Encode the Status of a command that ended with this exit code."""
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
    """Encode the Status of a command that could not run to its end."""
    return _encode(Status(status=FAILURE, message=str(error), reason="InternalError", code=500))


def _encode(status: Status) -> bytes:
    return msgspec.json.encode(_EMPTY_METADATA | msgspec.to_builtins(status))


def refusal_of(body: bytes) -> str:
    """Return the message of an HTTP answer that refused an upgrade: that of its Status, or else its text."""
    text = body.decode(errors="replace").strip()
    try:
        return msgspec.json.decode(body, type=Status).message or text
    except (msgspec.DecodeError, UnicodeDecodeError):
        return text


def exit_code_of(data: bytes) -> int:
    """Return the exit code in a Status. Raises Internal with its message if the command could not be run."""
    try:
        status = msgspec.json.decode(data, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Internal(data.decode(errors="replace").strip() or "empty status") from None
    if status.status in (SUCCESS, ""):
        return 0
    if status.reason == NON_ZERO_EXIT:
        for cause in status.causes:
            if cause.reason == EXIT_CODE and cause.message.lstrip("-").isdigit():
                return int(cause.message)
    raise Internal(status.message or status.reason or "the command failed")
