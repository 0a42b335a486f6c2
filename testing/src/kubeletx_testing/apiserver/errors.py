"""Refusals of an API server as `Status` objects, with the words that a real one uses.

Source: kubernetes, staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .resources import Resource

Json = dict[str, Any]


class StatusError(Exception):
    """An answer that is a Status with status Failure. `headers` go with it."""

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
        """The Status object."""
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
    """Error for an object that does not exist."""
    message = f'{resource.full_name} "{name}" not found'
    return StatusError(404, "NotFound", message, _about(resource, name))


def no_path() -> StatusError:
    """Error for a path that does not exist."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> StatusError:
    """Error for an existing object of this name."""
    message = f'{resource.full_name} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _about(resource, name))


def conflict(resource: Resource, name: str, problem: str = "") -> StatusError:
    """Error for a lost race or a failed precondition."""
    problem = problem or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {resource.full_name} "{name}": {problem}'
    return StatusError(409, "Conflict", message, _about(resource, name))


def forbidden(resource: Resource, name: str, problem: str) -> StatusError:
    """Error for a request without permission."""
    subject = f'{resource.full_name} "{name}"' if name else resource.full_name
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {problem}", _about(resource, name))


def invalid(resource: Resource, name: str, causes: Sequence[tuple[str, str, str]]) -> StatusError:
    """Error for an object that breaks rules; `causes`: (field, reason, message).

    Reasons of fields are spelled as in `field.ErrorType`; they are sent as ``FieldValueForbidden`` and so on.
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
    """Error for an invalid request."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """Error for an unknown user."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    """Error for a verb that the path does not support."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_media(content_type: str) -> StatusError:
    """Error for a body in an unsupported format."""
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {content_type}"
    )
    return StatusError(415, "UnsupportedMediaType", message)


def expired(requested: int, oldest: int) -> StatusError:
    """Error for a version that is older than the history. Source: storage/etcd3, cacher."""
    return StatusError(410, "Expired", f"too old resource version: {requested} ({oldest})")


def continue_expired() -> StatusError:
    """Error for a list that can no longer be continued."""
    return StatusError(
        410,
        "Expired",
        "The provided continue parameter is too old to display a consistent list result. You can start a new "
        "list without the continue parameter.",
    )


def too_large_version(requested: int, current: int) -> StatusError:
    """Error for a version newer than the server's. Source: storage/errors.go NewTooLargeResourceVersionError."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return StatusError(504, "Timeout", message, details, headers={"Retry-After": "1"})


def too_many_requests(message: str, retry_after_seconds: int) -> StatusError:
    """Error that asks the client to retry later."""
    return StatusError(
        429,
        "TooManyRequests",
        message,
        {"retryAfterSeconds": retry_after_seconds},
        headers={"Retry-After": str(retry_after_seconds)},
    )


def internal(message: str) -> StatusError:
    """Error for a fault of the server."""
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )
