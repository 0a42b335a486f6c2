"""Authentication of requests to the kubelet's API: `Authenticator.user_of`.

The user comes from the first of these that the request has:

1. A client certificate, which TLS has verified against the client CA: CN is the user, each O is a group.
2. A bearer token, which the API server reviews. The answer is cached under a keyed hash of the token; the token
   itself is not stored.
3. Neither: the user is anonymous if the configuration allows it.

Source: kubelet, cmd/kubelet/app/auth.go; apiserver, pkg/authentication/request/x509.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import msgspec
import structlog
from aiohttp import web

from kubeletx.api import Clock, KubeletxError
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import TOKEN_REVIEWS
from kubeletx.kube.types.meta import ApiStruct

V = TypeVar("V")

MAX_ANSWERS = 4096


class TtlCache(Generic[V]):
    """Cache of bounded size whose entries expire.

    Times are monotonic seconds that the caller gives. When `limit` entries are cached, the next one replaces the
    oldest.
    """

    def __init__(self, limit: int = MAX_ANSWERS) -> None:
        self._limit = limit
        self._answers: dict[Hashable, tuple[float, V]] = {}

    def find(self, key: Hashable, now: float) -> V | None:
        """Return the answer cached under `key`; None if there is none or it has expired at the time `now`."""
        until, answer = self._answers.get(key, (now, None))
        if until > now:
            return answer
        self._answers.pop(key, None)
        return None

    def put(self, key: Hashable, answer: V, until: float) -> None:
        """Cache the answer until the time `until`."""
        self._answers.pop(key, None)
        while len(self._answers) >= self._limit:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (until, answer)


log = structlog.get_logger(__name__)

_AUTHENTICATED = "system:authenticated"


class ReviewLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of TokenReviews, or of SubjectAccessReviews.

    `parallel`: maximum concurrent reviews; further requests wait, so that unknown clients cannot flood the API server.
    `seconds`: deadline of one review, including the wait.
    """

    parallel: int = 16
    seconds: float = 10.0


REVIEW_LIMITS = ReviewLimits()


class User(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated user. Source: authentication.k8s.io/v1 UserInfo."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = User(name="system:anonymous", groups=("system:unauthenticated",))


class _UserInfo(ApiStruct, frozen=True, kw_only=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _ReviewStatus(ApiStruct, frozen=True, kw_only=True):
    authenticated: bool = False
    user: _UserInfo = _UserInfo()
    error: str = ""


class _TokenReview(ApiStruct, frozen=True, kw_only=True):
    status: _ReviewStatus = _ReviewStatus()


class TokenReviews:
    """Finds the user of a bearer token: asks the API server with a TokenReview, and caches the answer."""

    def __init__(
        self, client: KubeClient, *, clock: Clock, keep_seconds: float, limits: ReviewLimits = REVIEW_LIMITS
    ) -> None:
        """`keep_seconds`: time for which an answer is cached, whether the token is valid or not."""
        self._client = client
        self._clock = clock
        self._keep_seconds = keep_seconds
        self._answers: TtlCache[tuple[User | None]] = TtlCache()
        self._salt = os.urandom(32)
        self._slots = asyncio.Semaphore(limits.parallel)
        self._review_seconds = limits.seconds

    async def user_of(self, token: str) -> User | None:
        """Return the token's user; None if the token is invalid or the API server does not answer."""
        key = hashlib.blake2b(token.encode(), key=self._salt).digest()
        known = self._answers.find(key, self._clock.monotonic())
        if known is not None:
            return known[0]
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        try:
            async with asyncio.timeout(self._review_seconds), self._slots:
                answer = await self._client.create(TOKEN_REVIEWS.path(), review, _TokenReview)
        except (KubeletxError, TimeoutError) as error:
            log.warning("Failed to review a token", err=str(error) or "no answer in time")
            return None
        user = _user(answer.status)
        self._answers.put(key, (user,), self._clock.monotonic() + self._keep_seconds)
        return user


class Authenticator:
    """Finds the user of a request by client certificate or bearer token.

    `tokens` None: bearer tokens are refused. `anonymous`: a request without credentials gets the user `ANONYMOUS`;
    False: it is refused.
    """

    def __init__(self, *, tokens: TokenReviews | None, anonymous: bool) -> None:
        self._tokens = tokens
        self._anonymous = anonymous

    async def user_of(self, request: web.BaseRequest) -> User | None:
        """Return the user of a request; None if it must be answered with 401."""
        return await self.find_user(_certificate(request), request.headers.get("Authorization"))

    async def find_user(self, certificate: dict[str, Any] | None, header: str | None) -> User | None:
        """Return the user of a client certificate, see `user_of_certificate`, or of an Authorization header."""
        user = user_of_certificate(certificate)
        if user is not None:
            return user
        if header is not None:
            return await self._user_of_header(header)
        return ANONYMOUS if self._anonymous else None

    async def _user_of_header(self, header: str) -> User | None:
        """Return the user of an Authorization header; None if its credentials are invalid.

        A request with invalid credentials is never treated as anonymous.
        """
        scheme, _, token = header.partition(" ")
        if self._tokens is None or scheme.lower() != "bearer" or not token.strip():
            return None
        return await self._tokens.user_of(token.strip())


def user_of_certificate(certificate: dict[str, Any] | None) -> User | None:
    """Return the user that a client certificate names; None if there is no certificate or it has no common name.

    `certificate`: as `ssl.SSLObject.getpeercert` returns it, so already verified by TLS.
    """
    pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    if not names or not names[0]:
        return None
    groups = [value for key, value in pairs if key == "organizationName"]
    return _authenticated(User(name=names[0], groups=tuple(groups)))


def _certificate(request: web.BaseRequest) -> dict[str, Any] | None:
    transport = request.transport
    return transport.get_extra_info("peercert") if transport is not None else None


def _user(status: _ReviewStatus) -> User | None:
    if not status.authenticated or not status.user.username:
        return None
    info = status.user
    return _authenticated(
        User(
            name=info.username,
            uid=info.uid,
            groups=info.groups,
            extra=tuple(sorted(info.extra.items())),
        )
    )


def _authenticated(user: User) -> User:
    if _AUTHENTICATED in user.groups:
        return user
    return msgspec.structs.replace(user, groups=(*user.groups, _AUTHENTICATED))
