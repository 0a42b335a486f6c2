"""Tokens of service accounts, and answers to TokenReviews and SubjectAccessReviews.

Tokens are random and kept in memory. They have the three parts of a JWT, so that clients can read their
expiry, but their signature is invalid. Source: kubernetes, pkg/registry/core/serviceaccount/storage/token.go;
pkg/registry/authentication/tokenreview; pkg/registry/authorization/subjectaccessreview.
"""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from .authorization import Authorizer
from .errors import Json, StatusError, bad_request, conflict, not_found
from .registry import Target
from .resources import resource
from .settings import Settings, timestamp
from .store import Store
from .users import AUTHENTICATED, User

MIN_SECONDS: Final = 600
DEFAULT_SECONDS: Final = 3600
AUDIENCE: Final = "https://kubernetes.default.svc"
_BOUND: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """An issued token: its user and its audiences.

    `expires_at`: None means that it does not expire. `bound`: (resource, namespace, name, UID) of the object
    that the token is bound to; the token is invalid once this object is gone. None: bound to no object.
    """

    user: User
    audiences: tuple[str, ...]
    expires_at: datetime | None = None
    bound: tuple[str, str, str, str] | None = None


class Tokens:
    """All valid bearer tokens of the cluster: those added by a test, and those issued for TokenRequests."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._issued: dict[str, Issued] = {}

    def add(self, user: User, token: str = "") -> str:
        """Add a token for a user and return it. The token does not expire.

        `token`: text of the token; empty: a random text.
        """
        token = token or secrets.token_urlsafe(24)
        self._issued[token] = Issued(user=user, audiences=(AUDIENCE,))
        return token

    def find(self, token: str) -> Issued | None:
        """Return what is known about a token; None if it is invalid.

        A token is invalid if it is unknown or expired, or if the object that it is bound to is gone.
        """
        issued = self._issued.get(token)
        if issued is None:
            return None
        if issued.expires_at is not None and issued.expires_at <= self._settings.now():
            return None
        if issued.bound is not None:
            plural, namespace, name, uid = issued.bound
            stored = self._store.find(resource(plural), (namespace, name))
            if stored is None or stored.value["metadata"]["uid"] != uid:
                return None
        return issued

    def find_user(self, token: str) -> User | None:
        """Return the token's user; None if the token is invalid or not for the API server's audience."""
        issued = self.find(token)
        return issued.user if issued is not None and AUDIENCE in issued.audiences else None

    def request(self, target: Target, body: Json) -> Json:
        """Answer a TokenRequest for a service account: issue a new token.

        `target`: the service account. `body`: the TokenRequest. Raises StatusError 400, 404, 409 or 422.
        """
        account = self._store.find(target.resource, target.key)
        if account is None:
            raise not_found(target.resource, target.name)
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or DEFAULT_SECONDS
        if seconds < MIN_SECONDS:
            cause = {
                "reason": "FieldValueInvalid",
                "message": f"Invalid value: {seconds}: may not specify a duration less than 10 minutes",
                "field": "spec.expirationSeconds",
            }
            message = (
                f'TokenRequest.authentication.k8s.io "" is invalid: {cause["field"]}: {cause["message"]}'
            )
            details = {"group": "authentication.k8s.io", "kind": "TokenRequest", "causes": [cause]}
            raise StatusError(422, "Invalid", message, details)
        bound = self._bound(target, spec.get("boundObjectRef"))
        audiences = tuple(spec.get("audiences") or (AUDIENCE,))
        expires_at = self._settings.now() + timedelta(seconds=seconds)
        user = _account_user(target.namespace, target.name, account.value["metadata"]["uid"], bound)
        token = _token(user, audiences, self._settings.now(), expires_at)
        self._issued[token] = Issued(user=user, audiences=audiences, expires_at=expires_at, bound=bound)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": target.name,
                "namespace": target.namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": timestamp(self._settings.now()),
            },
            "spec": {**spec, "audiences": list(audiences), "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": timestamp(expires_at)},
        }

    def review(self, body: Json) -> Json:
        """Answer a TokenReview: the token's user, or an error.

        Raises StatusError 400 if the review contains no token.
        """
        spec = body.get("spec") or {}
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        issued = self.find(spec.get("token") or "")
        wanted = spec.get("audiences") or [AUDIENCE]
        if issued is None:
            status: Json = {"user": {}, "error": "[invalid bearer token]"}
        elif not (shared := [audience for audience in issued.audiences if audience in wanted]):
            status = {
                "user": {},
                "error": f"[invalid bearer token, token audiences {list(issued.audiences)!r} is invalid]",
            }
        else:
            user = issued.user
            known: Json = {"username": user.name, "groups": list(user.groups)}
            known |= {"uid": user.uid} if user.uid else {}
            known |= {"extra": user.extra} if user.extra else {}
            status = {"authenticated": True, "user": known, "audiences": shared}
        return {**body, "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "status": status}

    def _bound(self, target: Target, reference: Json | None) -> tuple[str, str, str, str] | None:
        if not reference:
            return None
        plural = _BOUND.get(reference.get("kind") or "")
        if plural is None:
            raise StatusError(
                400, "BadRequest", f"cannot bind token to object of type {reference.get('kind')}"
            )
        of, name = resource(plural), reference.get("name") or ""
        namespace = target.namespace if of.namespaced else ""
        stored = self._store.find(of, (namespace, name))
        if stored is None:
            raise not_found(of, name)
        uid = stored.value["metadata"]["uid"]
        if reference.get("uid") and reference["uid"] != uid:
            problem = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. The "
                "object might have been deleted and then recreated"
            )
            refused = conflict(of, name, problem)
            refused.message = refused.message.replace(f'{of.full_name} "', f'{of.kind} "')
            raise refused
        return plural, namespace, name, uid


def _account_user(namespace: str, name: str, uid: str, bound: tuple[str, str, str, str] | None) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    extra = {}
    if bound is not None and bound[0] == "pods":
        extra = {
            "authentication.kubernetes.io/pod-name": [bound[2]],
            "authentication.kubernetes.io/pod-uid": [bound[3]],
        }
    return User(name=f"system:serviceaccount:{namespace}:{name}", groups=groups, uid=uid, extra=extra)


def _token(user: User, audiences: tuple[str, ...], issued_at: datetime, expires_at: datetime) -> str:
    claims = {
        "aud": list(audiences),
        "iss": AUDIENCE,
        "sub": user.name,
        "iat": int(issued_at.timestamp()),
        "nbf": int(issued_at.timestamp()),
        "exp": int(expires_at.timestamp()),
    }
    parts = [json.dumps({"alg": "none"}).encode(), json.dumps(claims).encode(), secrets.token_bytes(24)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def review_access(body: Json, authorizer: Authorizer, user: User | None = None) -> Json:
    """Answer a SubjectAccessReview.

    `user`: for a SelfSubjectAccessReview, the user who asks; None: the user named in the spec.
    """
    spec = body.get("spec") or {}
    about = user or User(
        name=spec.get("user") or "",
        groups=tuple(spec.get("groups") or ()),
        uid=spec.get("uid") or "",
    )
    attributes = spec.get("resourceAttributes")
    if attributes is None:
        path = spec.get("nonResourceAttributes") or {}
        allowed, reason = _may_use_path(authorizer, about, path), ""
    else:
        allowed, reason = authorizer.review(about, attributes)
    status: Json = {"allowed": allowed} | ({"reason": reason} if reason else {})
    return {**body, "apiVersion": "authorization.k8s.io/v1", "status": status}


def _may_use_path(authorizer: Authorizer, user: User, attributes: Json) -> bool:
    check: Callable[[User, str, str], None] = authorizer.check_path
    try:
        check(user, attributes.get("verb") or "get", attributes.get("path") or "/")
    except StatusError:
        return False
    return True
