"""Translates gRPC errors of CRI servers to errors of `kubeletx.api`.

A translated error has the original gRPC error as its cause (``__cause__``), from which `status_of` reads code and
details. Calls that are forwarded as bytes are not translated: they raise `CriStatusError` with the server's status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import grpc
import grpc.aio

from kubeletx.api import (
    AlreadyExists,
    Conflict,
    Internal,
    KubeletxError,
    NotFound,
    PermissionDenied,
    TimedOut,
    Unavailable,
    Unsupported,
)

Code = grpc.StatusCode

BY_CODE: dict[grpc.StatusCode, type[KubeletxError]] = {
    Code.NOT_FOUND: NotFound,
    Code.ALREADY_EXISTS: AlreadyExists,
    Code.UNIMPLEMENTED: Unsupported,
    Code.UNAVAILABLE: Unavailable,
    Code.RESOURCE_EXHAUSTED: Unavailable,
    Code.CANCELLED: Unavailable,
    Code.DEADLINE_EXCEEDED: TimedOut,
    Code.PERMISSION_DENIED: PermissionDenied,
    Code.UNAUTHENTICATED: PermissionDenied,
    Code.FAILED_PRECONDITION: Conflict,
    Code.ABORTED: Conflict,
}
"""gRPC code to error class. Codes that are not keys (UNKNOWN, INTERNAL, INVALID_ARGUMENT, ...) become Internal."""

BY_DETAILS: tuple[tuple[grpc.StatusCode, str, type[KubeletxError]], ...] = (
    # The connection broke during a call: the server died or was stopped.
    (Code.INTERNAL, "RST_STREAM", Unavailable),
    # Go servers that return errors of a Go context without translating them.
    (Code.UNKNOWN, "context deadline exceeded", TimedOut),
    (Code.UNKNOWN, "context canceled", Unavailable),
    # containerd: the state of the container forbids the call.
    (Code.UNKNOWN, "container is in CONTAINER_", Conflict),
    (Code.UNKNOWN, "container is not running", Conflict),
    # A message over the size limit: a retry would not help.
    (Code.RESOURCE_EXHAUSTED, "larger than max", Internal),
)


class CriStatusError(KubeletxError):
    """gRPC status with which a CRI server answered a forwarded call, unchanged.

    `code`: name of the gRPC code, such as NOT_FOUND. `details`: the server's message.
    """

    def __init__(self, code: str, details: str, trailers: tuple[tuple[str, str | bytes], ...] = ()) -> None:
        """`trailers`: gRPC trailing metadata, such as ``grpc-status-details-bin``. Others: see the class."""
        super().__init__(f"{code}: {details}")
        self.code, self.details, self.trailers = code, details, trailers


def translate(error: grpc.aio.AioRpcError, *, method: str, endpoint: str) -> KubeletxError:
    """Return the error of `kubeletx.api` for a failed gRPC call.

    Raise it ``from error``: `status_of` needs the cause. `method`: path of the gRPC method. `endpoint`: address
    of the server, for the message.
    """
    code, details = error.code(), error.details() or ""
    kind = class_of(code, details)
    name = method.rsplit("/", 1)[-1]
    if kind is Unavailable:
        return Unavailable(f"{endpoint} does not answer {name}: {details or code.name}")
    if kind is TimedOut:
        return TimedOut(f"{endpoint} did not answer {name} in time: {details}")
    if kind is Unsupported:
        return Unsupported(f"{endpoint} does not know {name}: {details}")
    return kind(f"{name}: {details or code.name}")


def class_of(code: grpc.StatusCode, details: str) -> type[KubeletxError]:
    """Return the error class for a gRPC status, by `BY_DETAILS`, then by `BY_CODE`.

    `details`: the server's message, which some servers need to distinguish errors.
    """
    for row_code, part, kind in BY_DETAILS:
        if code is row_code and part in details:
            return kind
    return BY_CODE.get(code, Internal)


def raw(error: grpc.aio.AioRpcError) -> CriStatusError:
    """Convert a gRPC error to a `CriStatusError` with the same code, details and trailers."""
    metadata = cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())
    trailers = tuple((key, value) for key, value in metadata)
    return CriStatusError(error.code().name, error.details() or "", trailers)


def is_name_taken(error: KubeletxError) -> bool:
    """Return True if RunPodSandbox or CreateContainer may have failed because another call has reserved the same name.

    The other call is an earlier or a concurrent one. Callers search for what it made, since the words may also be about
    another thing that exists, such as a network interface. containerd and CRI-O report that only in the message
    (``name "x" is reserved for "ID"``).
    """
    status = status_of(error)
    if status is None:
        return False
    code, details = status
    return code is Code.ALREADY_EXISTS or (
        code is Code.UNKNOWN and any(words in details for words in NAME_TAKEN)
    )


NAME_TAKEN = ("is reserved", "already exists", "already in use")


def status_of(error: BaseException) -> tuple[grpc.StatusCode, str] | None:
    """Return code and details of the gRPC error that is the cause of `error`; None if the cause is another error."""
    cause = error.__cause__
    if isinstance(cause, grpc.aio.AioRpcError):
        return cause.code(), cause.details() or ""
    return None


_LEFT_TASK = re.compile(r"cannot delete running task ([A-Za-z0-9][A-Za-z0-9_.-]*)")
"""Matches containerd's refusal to delete a running task (client/container.go, Delete)."""


def left_task(error: KubeletxError) -> str | None:
    """Return the id of the containerd task that made the removal of a container or sandbox fail.

    Such a task was left by an interrupted start of a container. None: the removal failed for another reason.
    """
    status = status_of(error)
    match = _LEFT_TASK.search(status[1]) if status is not None else None
    return match[1].rstrip(".") if match is not None else None


def hint(task_id: str, namespace: str) -> str:
    """Return a text for operators: how to end the containerd task that the agent could not end.

    `namespace`: containerd namespace of the task.
    """
    return (
        f"a start of container {task_id} that was interrupted left a task, which the runtime does not "
        f"recognize; end it with 'ctr -n {namespace} tasks delete --force {task_id}', or restart the runtime"
    )
