"""Errors of an API server as `Status` objects, with the messages that a real server sends.

Source: kubernetes, staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .resources import Resource

Json = dict[str, Any]


class StatusError(Exception):
    """Raised to answer a request with a Status object whose status is Failure.

    `headers`: added to the HTTP answer.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    @property
    def status(self) -> Json:
        """The Status object for the body of the answer."""
        made: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            made["reason"] = self.reason
        if self.details is not None:
            made["details"] = self.details
        return {**made, "code": self.code}


def _about(resource: Resource, name: str) -> Json:
    group = {"group": resource.group} if resource.group else {}
    return ({"name": name} if name else {}) | group | {"kind": resource.plural}


def not_found(resource: Resource, name: str) -> StatusError:
    """Return the error 404 for an object that does not exist."""
    message = f'{resource.full_name} "{name}" not found'
    return StatusError(404, "NotFound", message, _about(resource, name))


def no_path() -> StatusError:
    """Return the error 404 for a path that does not exist."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> StatusError:
    """Return the error 409 for a new object whose name is taken."""
    message = f'{resource.full_name} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _about(resource, name))


def conflict(resource: Resource, name: str, problem: str = "") -> StatusError:
    """Return the error 409 for an outdated resourceVersion or a failed precondition.

    `problem`: end of the message; empty: the message for an outdated resourceVersion.
    """
    problem = problem or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {resource.full_name} "{name}": {problem}'
    return StatusError(409, "Conflict", message, _about(resource, name))


def forbidden(resource: Resource, name: str, problem: str) -> StatusError:
    """Return the error 403 for a request that is not permitted. `problem`: the end of the message."""
    subject = f'{resource.full_name} "{name}"' if name else resource.full_name
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {problem}", _about(resource, name))


def invalid(resource: Resource, name: str, causes: Sequence[tuple[str, str, str]]) -> StatusError:
    """Return the error 422 for an object that breaks validation rules.

    `causes`: one (field, reason, message) for each broken rule. Reasons are those that a real server sends,
    such as ``FieldValueForbidden``.
    """
    texts = [f"{where}: {message}" for where, _, message in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {"name": name} if name else {}
    details |= {"group": resource.group} if resource.group else {}
    full = {
        **details,
        "kind": resource.kind,
        "causes": [
            {"reason": reason, "message": message, "field": where} for where, reason, message in causes
        ],
    }
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {joined}', full)


def bad_request(message: str) -> StatusError:
    """Return the error 400 for an invalid request."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """Return the error 401 for an unknown user or wrong credentials."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    """Return the error 405 for a verb that the path does not support."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_media(content_type: str) -> StatusError:
    """Return the error 415 for a body in an unsupported format.

    `content_type`: the media types that are supported.
    """
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {content_type}"
    )
    return StatusError(415, "UnsupportedMediaType", message)


def expired(requested: int, oldest: int) -> StatusError:
    """Return the error 410 for a resourceVersion that is older than the server's history.

    `requested`: the client's version. `oldest`: the oldest version in the history. Source: storage/etcd3,
    cacher.
    """
    return StatusError(410, "Expired", f"too old resource version: {requested} ({oldest})")


def continue_expired() -> StatusError:
    """Return the error 410 for a list whose continue token is too old."""
    return StatusError(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new "
        "list without the continue parameter.",
    )


def too_large_version(requested: int, current: int) -> StatusError:
    """Return the error 504 for a resourceVersion that is newer than the server's current one.

    Source: storage/errors.go NewTooLargeResourceVersionError.
    """
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return StatusError(504, "Timeout", message, details, headers={"Retry-After": "1"})


def too_many_requests(message: str, retry_after_seconds: int) -> StatusError:
    """Return the error 429, which asks the client to retry later."""
    return StatusError(
        429,
        "TooManyRequests",
        message,
        {"retryAfterSeconds": retry_after_seconds},
        headers={"Retry-After": str(retry_after_seconds)},
    )


def internal(message: str) -> StatusError:
    """Return the error 500 for a fault of the server."""
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )
