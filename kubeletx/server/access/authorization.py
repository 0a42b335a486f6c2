"""Authorization: each request needs a right on a subresource of this node, such as ``get`` on ``nodes/metrics``.

The verb comes from the HTTP method. The subresources come from the route that will answer, never from the text of the
path, so that a path in another spelling does not get another check. A fine-grained subresource (pods, healthz,
configz) is checked before ``proxy``. Source: kubelet, pkg/kubelet/server/auth.go.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from kubeletx.api import Clock, KubeletxError, Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import ACCESS_REVIEWS
from kubeletx.kube.types.meta import ApiStruct

from .authentication import REVIEW_LIMITS, ReviewLimits, TtlCache, User

log = structlog.get_logger(__name__)

VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
PROXY = "proxy"


class Authorizer(Protocol):
    """Decides whether a user may use a verb on a subresource of this node."""

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        """Return True if `user` may use `verb` (such as get) on `subresource` (such as metrics).

        Raises Unavailable if the API server gives no decision.
        """
        ...


class AlwaysAllow:
    """Authorizer that allows every request of every authenticated user."""

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        return True


class _Status(ApiStruct, frozen=True, kw_only=True):
    allowed: bool = False


class _AccessReview(ApiStruct, frozen=True, kw_only=True):
    status: _Status = _Status()


class AccessReviews:
    """Authorizer that sends a SubjectAccessReview to the API server for each decision, and caches the answers."""

    def __init__(
        self,
        client: KubeClient,
        *,
        node_name: str,
        clock: Clock,
        allow_seconds: float,
        deny_seconds: float,
        limits: ReviewLimits = REVIEW_LIMITS,
    ) -> None:
        """`allow_seconds`, `deny_seconds`: time for which a positive or a negative answer is cached."""
        self._client = client
        self._node_name = node_name
        self._clock = clock
        self._seconds = {True: allow_seconds, False: deny_seconds}
        self._answers: TtlCache[bool] = TtlCache()
        self._slots = asyncio.Semaphore(limits.parallel)
        self._review_seconds = limits.seconds

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        key = (user, verb, subresource)
        known = self._answers.find(key, self._clock.monotonic())
        if known is not None:
            return known
        try:
            async with asyncio.timeout(self._review_seconds), self._slots:
                review = await self._client.create(
                    ACCESS_REVIEWS.path(), self._review(user, verb, subresource), _AccessReview
                )
        except (KubeletxError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            log.warning("Failed to review an access", user=user.name, err=text)
            raise Unavailable(f"the API server gave no decision: {text}") from error
        allowed = review.status.allowed
        self._answers.put(key, allowed, self._clock.monotonic() + self._seconds[allowed])
        return allowed

    def _review(self, user: User, verb: str, subresource: str) -> dict[str, object]:
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "uid": user.uid,
                "groups": user.groups,
                "extra": dict(user.extra),
                "resourceAttributes": {
                    "verb": verb,
                    "version": "v1",
                    "resource": "nodes",
                    "subresource": subresource,
                    "name": self._node_name,
                },
            },
        }


async def refusal_of(
    user: User | None, verb: str, subresources: tuple[str, ...], authorizer: Authorizer
) -> tuple[int, str] | None:
    """Return HTTP status and message of the refusal of a request; None if it is allowed.

    `user` None: its credentials are invalid. `subresources`: the user needs a right on one of these.
    """
    if user is None:
        return 401, "Unauthorized"
    try:
        allowed = await first_allowed(authorizer, user, verb, subresources)
    except Unavailable:
        return 500, f"Authorization error (user={user.name}, verb={verb}, resource=nodes)"
    if allowed:
        return None
    what = " ".join(subresources)
    log.debug("Refused a request", user=user.name, verb=verb, subresource=what)
    return 403, f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{what}])"


async def first_allowed(authorizer: Authorizer, user: User, verb: str, subresources: tuple[str, ...]) -> bool:
    """Return True if `user` may use `verb` on at least one of `subresources`, which are checked in order.

    Raises Unavailable if the API server gives no decision.
    """
    for subresource in subresources:
        if await authorizer.allows(user, verb, subresource):
            return True
    return False
