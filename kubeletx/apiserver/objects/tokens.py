"""Tokens of pods' service accounts: requested, cached in memory, renewed before they expire.

A token is bound to its pod and ends with it. It is renewed after 80 % of its life or a day, whichever comes first,
minus a few random seconds; then the pod is notified and its volumes are written again. While renewal fails the old
token is used until it expires. Tokens are never logged or shown. Source: kubelet, pkg/kubelet/token.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import structlog

from kubeletx.api import (
    Clock,
    KubeletxError,
    ObjectUser,
    PermissionDenied,
    PodUid,
    TokenParameters,
    Unavailable,
)
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import SERVICE_ACCOUNTS
from kubeletx.kube.types.objects import BoundObjectReference, TokenRequest, TokenRequestSpec

log = structlog.get_logger(__name__)

RENEW_AT = 0.8
LONGEST_SECONDS = 24 * 3600.0
JITTER_SECONDS = 10.0
RETRY_SECONDS = 30.0
BEHIND_SECONDS = (0.05, 0.1, 0.2, 0.4)
"""Delays of retries while the API server's authorizer or admission has not seen yet that the pod is on this node."""
_BEHIND = ("scheduled on a different node", "no relationship found")
"""Parts of the error messages of NodeRestriction and the Node authorizer in that case."""


class _Token(msgspec.Struct, kw_only=True):
    """A service account token and its times.

    Renewal is due at `renew_at` (monotonic time) or `renew_by` (wall clock), whichever comes first. The token expires
    at `ends_at` (wall clock). The times are counted from the request, since the API server's clock may differ.
    """

    value: bytes
    renew_at: float
    renew_by: datetime
    ends_at: datetime

    def __repr__(self) -> str:
        return f"_Token(ends_at={self.ends_at})"


class PodTokens:
    """Requests, caches and renews the service account tokens of all pods on this node."""

    def __init__(
        self,
        client: KubeClient,
        tell: Callable[[PodUid], None],
        *,
        clock: Clock,
        draw: random.Random | None = None,
    ) -> None:
        """`tell`: called with the UID of a pod whose token is due for renewal."""
        self._client = client
        self._tell = tell
        self._clock = clock
        self._random = draw or random.Random()
        self._tokens: dict[tuple[PodUid, str, TokenParameters], _Token] = {}
        self._timers: dict[tuple[PodUid, str, TokenParameters], Callable[[], None]] = {}
        self._locks: dict[PodUid, asyncio.Lock] = {}

    async def token(self, user: ObjectUser, wanted: TokenParameters) -> bytes:
        """Return the pod's token with the parameters `wanted`; request it first if it is missing or due for renewal.

        If the renewal fails, the old token is returned until it expires. Raises Unavailable if no valid token is
        available.
        """
        key = (user.uid, user.service_account, wanted)
        async with self._locks.setdefault(user.uid, asyncio.Lock()):
            known = self._tokens.get(key)
            if known is not None and not self._is_due(known):
                return known.value
            try:
                fresh = await (
                    self._ask(user, wanted) if known is not None else self._ask_first(user, wanted)
                )
            except KubeletxError as error:
                if known is None or self._clock.now() >= known.ends_at:
                    self._schedule(key, self._clock.monotonic() + RETRY_SECONDS)
                    raise Unavailable(f"failed to fetch token: {error}") from error
                log.warning("Failed to renew a token", pod=f"{user.namespace}/{user.name}", err=str(error))
                known.renew_at = self._clock.monotonic() + RETRY_SECONDS * (1 + self._random.random())
                known.renew_by = self._clock.now() + timedelta(seconds=RETRY_SECONDS)
                fresh = known
            if user.uid in self._locks:  # else the pod is gone meanwhile
                self._tokens[key] = fresh
            self._schedule(key, fresh.renew_at)
            return fresh.value

    def leave(self, uid: PodUid) -> None:
        """Drop the tokens of a pod that is gone."""
        self._locks.pop(uid, None)
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]
        for key in [key for key in self._timers if key[0] == uid]:
            self._timers.pop(key)()

    def _is_due(self, token: _Token) -> bool:
        """Return True if the token is due for renewal by either clock.

        The monotonic clock stops while a machine sleeps, and the wall clock may be changed.
        """
        return self._clock.monotonic() >= token.renew_at or self._clock.now() >= token.renew_by

    def _schedule(self, key: tuple[PodUid, str, TokenParameters], when: float) -> None:
        if (cancel := self._timers.pop(key, None)) is not None:
            cancel()
        if key[0] not in self._locks:  # the pod is gone meanwhile
            return
        self._timers[key] = self._clock.call_at(when, lambda: self._tell(key[0]))

    async def _ask_first(self, user: ObjectUser, wanted: TokenParameters) -> _Token:
        for seconds in BEHIND_SECONDS:
            try:
                return await self._ask(user, wanted)
            except PermissionDenied as error:
                if not any(words in str(error) for words in _BEHIND):
                    raise
                await self._clock.sleep(seconds)
        return await self._ask(user, wanted)

    async def _ask(self, user: ObjectUser, wanted: TokenParameters) -> _Token:
        spec = TokenRequestSpec(
            audiences=(wanted.audience,) if wanted.audience else (),
            expiration_seconds=wanted.expiration_seconds,
            bound_object_ref=BoundObjectReference(name=user.name, uid=str(user.uid)),
        )
        began, now = self._clock.monotonic(), self._clock.now()
        answer = await self._client.create(
            SERVICE_ACCOUNTS.path(user.namespace, user.service_account, "token"),
            TokenRequest(spec=spec),
            TokenRequest,
        )
        if not answer.status.token:
            account = f"{user.namespace}/{user.service_account}"
            raise Unavailable(f"service account {account}: the API server's answer holds no token")
        life = float(answer.spec.expiration_seconds)
        early = self._random.uniform(0, min(JITTER_SECONDS, life * (1 - RENEW_AT)))
        after = min(life * RENEW_AT, LONGEST_SECONDS) - early
        return _Token(
            value=answer.status.token.encode(),
            renew_at=began + after,
            renew_by=now + timedelta(seconds=after),
            ends_at=now + timedelta(seconds=life),
        )
