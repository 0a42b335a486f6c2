"""gRPC status → our errors."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

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
from kubeletx.cri.errors import is_name_taken, status_of, translate

Code = grpc.StatusCode


def failure(code: grpc.StatusCode, details: str = "words") -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, None)


def translated(code: grpc.StatusCode, details: str = "words") -> KubeletxError:
    try:
        try:
            raise failure(code, details)
        except grpc.aio.AioRpcError as err:
            raise translate(err, method="/s/Method", endpoint="unix:///x.sock") from err
    except KubeletxError as ours:
        return ours


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.NOT_FOUND, NotFound),
        (Code.ALREADY_EXISTS, AlreadyExists),
        (Code.UNIMPLEMENTED, Unsupported),
        (Code.UNAVAILABLE, Unavailable),
        (Code.RESOURCE_EXHAUSTED, Unavailable),
        (Code.CANCELLED, Unavailable),
        (Code.DEADLINE_EXCEEDED, TimedOut),
        (Code.PERMISSION_DENIED, PermissionDenied),
        (Code.UNAUTHENTICATED, PermissionDenied),
        (Code.FAILED_PRECONDITION, Conflict),
        (Code.ABORTED, Conflict),
        (Code.UNKNOWN, Internal),
        (Code.INTERNAL, Internal),
        (Code.INVALID_ARGUMENT, Internal),
        (Code.DATA_LOSS, Internal),
    ],
)
def test_each_code_becomes_the_class_that_says_what_to_do(
    code: grpc.StatusCode, kind: type[KubeletxError]
) -> None:
    error = translated(code)
    assert type(error) is kind
    assert "words" in str(error)
    assert "Method" in str(error)
    assert status_of(error) == (code, "words")


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (Code.INTERNAL, "Received RST_STREAM with error code 2", Unavailable),
        (Code.UNKNOWN, "failed to create: context deadline exceeded", TimedOut),
        (Code.UNKNOWN, "failed to create: context canceled", Unavailable),
        (Code.UNKNOWN, "failed: container is in CONTAINER_EXITED state", Conflict),
        (Code.UNKNOWN, "container is not running", Conflict),
        (Code.RESOURCE_EXHAUSTED, "CLIENT: Received message larger than max (5 vs. 4)", Internal),
    ],
)
def test_words_decide_where_servers_send_no_proper_code(
    code: grpc.StatusCode, details: str, kind: type[KubeletxError]
) -> None:
    assert type(translated(code, details)) is kind


def test_a_server_that_does_not_answer_is_named() -> None:
    assert "unix:///x.sock" in str(translated(Code.UNAVAILABLE))
    assert "unix:///x.sock" in str(translated(Code.DEADLINE_EXCEEDED))


def test_a_taken_name_is_known_by_code_or_by_words() -> None:
    assert is_name_taken(translated(Code.ALREADY_EXISTS))
    assert is_name_taken(translated(Code.UNKNOWN, 'name "a" is reserved for "b"'))
    assert not is_name_taken(translated(Code.UNKNOWN, "no runtime is configured"))
    assert not is_name_taken(translated(Code.UNAVAILABLE, "is reserved"))
    assert not is_name_taken(Internal("no cause"))


def test_an_error_without_a_grpc_cause_has_no_status() -> None:
    assert status_of(Internal("x")) is None
