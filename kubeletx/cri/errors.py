"""Translates gRPC statuses to errors of `kubeletx.api`, in one place.

Every translated error has the original as its cause; `status_of` reads code and details from there. The raw
pass-through does not translate: it raises `CriStatusError` with the server's answer.
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
"""gRPC code → error class. Other codes (UNKNOWN, INTERNAL, INVALID_ARGUMENT, ...) become Internal."""

BY_DETAILS: tuple[tuple[grpc.StatusCode, str, type[KubeletxError]], ...] = (
    # The connection broke in the middle of a call: the server died or was stopped.
    (Code.INTERNAL, "RST_STREAM", Unavailable),
    # Go servers that do not translate the errors of their own context.
    (Code.UNKNOWN, "context deadline exceeded", TimedOut),
    (Code.UNKNOWN, "context canceled", Unavailable),
    # containerd: the state of the container forbids the call.
    (Code.UNKNOWN, "container is in CONTAINER_", Conflict),
    (Code.UNKNOWN, "container is not running", Conflict),
    # A message over the size limit is no passing shortage.
    (Code.RESOURCE_EXHAUSTED, "larger than max", Internal),
)


class CriStatusError(KubeletxError):
    """Status with which a CRI server refused a forwarded call, unchanged. `code`: name of the gRPC code."""

    def __init__(self, code: str, details: str, trailers: tuple[tuple[str, str | bytes], ...] = ()) -> None:
        """`trailers`: the trailing metadata, such as ``grpc-status-details-bin``."""
        super().__init__(f"{code}: {details}")
        self.code, self.details, self.trailers = code, details, trailers


def translate(error: grpc.aio.AioRpcError, *, method: str, endpoint: str) -> KubeletxError:
    """Return the error for a failed call. Raise it ``from`` the original one, so that `status_of` finds that."""
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
    """Return the error class for a gRPC status. Some servers distinguish errors only in `details`."""
    for row_code, part, kind in BY_DETAILS:
        if code is row_code and part in details:
            return kind
    return BY_CODE.get(code, Internal)


def raw(error: grpc.aio.AioRpcError) -> CriStatusError:
    """Return the server's status as an error, unchanged, for callers that forward it."""
    metadata = cast(Iterable[tuple[str, str | bytes]], error.trailing_metadata() or ())
    trailers = tuple((key, value) for key, value in metadata)
    return CriStatusError(error.code().name, error.details() or "", trailers)


def is_name_taken(error: KubeletxError) -> bool:
    """Return True if a create failed because an earlier or concurrent create has reserved the same name.

    containerd and CRI-O report that only in the message (``name "x" is reserved for "ID"``).
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
    """Return code and details of the gRPC error from which `error` was translated; None if it has none."""
    cause = error.__cause__
    if isinstance(cause, grpc.aio.AioRpcError):
        return cause.code(), cause.details() or ""
    return None


_LEFT_TASK = re.compile(r"cannot delete running task ([A-Za-z0-9][A-Za-z0-9_.-]*)")
"""Matches containerd's refusal to delete a running task (client/container.go, Delete)."""


def left_task(error: KubeletxError) -> str | None:
    """Return the id of the containerd task that prevented a removal; None if the removal failed for another reason."""
    status = status_of(error)
    found = _LEFT_TASK.search(status[1]) if status is not None else None
    return found[1].rstrip(".") if found is not None else None


def what_to_do(task_id: str, namespace: str) -> str:
    """Return advice for an operator on how to end a task that the agent could not end."""
    return (
        f"the runtime has a task of container {task_id} that it does not know to be its own, left by a start that "
        f"was cut off; end it with 'ctr -n {namespace} tasks delete --force {task_id}', or restart the runtime"
    )
