"""When tokens are renewed, and what happens when they cannot be."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from kubeletx.api import KubeletxError, ObjectUser, PermissionDenied, PodUid, TokenParameters, Unavailable
from kubeletx.apiserver.objects.tokens import PodTokens
from kubeletx.kube.client import KubeClient
from kubeletx.kube.types.objects import TokenRequest, TokenRequestStatus
from kubeletx.testing.clock import FakeClock

UID = PodUid("u")
USER = ObjectUser(uid=UID, name="web", namespace="team", service_account="worker")


class Server:
    """Answers token requests with t1, t2, ...; `refusal`: what it says instead."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, TokenRequest]] = []
        self.refusal: KubeletxError | None = None
        self.is_empty = False
        """Its answers hold no token."""
        self.shortest: int | None = None
        self.ends_at: datetime | None = None
        """By the server's clock."""

    async def create(self, path: str, value: TokenRequest, type_: Any) -> TokenRequest:
        self.asked.append((path, value))
        if self.refusal is not None:
            raise self.refusal
        if self.is_empty:
            return value
        spec = value.spec if self.shortest is None else replace(value.spec, expiration_seconds=self.shortest)
        status = TokenRequestStatus(token=f"t{len(self.asked)}", expiration_timestamp=self.ends_at)
        return replace(value, spec=spec, status=status)


class Shop:
    def __init__(self) -> None:
        self.server, self.clock, self.reported = Server(), FakeClock(), list[PodUid]()
        self.tokens = PodTokens(
            cast(KubeClient, self.server), self.reported.append, clock=self.clock, draw=random.Random(1)
        )

    async def token(self, seconds: int = 1000, audience: str = "") -> bytes:
        return await self.tokens.token(USER, TokenParameters(audience=audience, expiration_seconds=seconds))


async def test_a_token_is_asked_for_with_its_pod_its_audience_and_its_life() -> None:
    shop = Shop()
    assert await shop.token(seconds=7200, audience="vault") == b"t1"
    path, request = shop.server.asked[0]
    assert path == "/api/v1/namespaces/team/serviceaccounts/worker/token"
    assert msgspec.to_builtins(request)["spec"] == {
        "audiences": ("vault",),
        "expirationSeconds": 7200,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u"},
    }


@pytest.mark.parametrize(
    ("refusal", "asked"),
    [
        ("node requested token bound to a pod scheduled on a different node", 5),
        ("no relationship found between node 'n' and this object", 5),
        ("serviceaccounts is forbidden", 1),
    ],
)
async def test_a_server_that_does_not_know_of_the_binding_yet_is_asked_again_for_a_second(
    refusal: str, asked: int
) -> None:
    shop = Shop()
    shop.server.refusal = PermissionDenied(refusal)
    token = asyncio.create_task(shop.token())
    await shop.clock.run_for(1)
    with pytest.raises(Unavailable, match="failed to fetch token"):
        await token
    assert len(shop.server.asked) == asked


async def test_a_token_is_given_as_soon_as_the_server_knows_of_the_binding() -> None:
    shop = Shop()
    shop.server.refusal = PermissionDenied("no relationship found")
    token = asyncio.create_task(shop.token())
    await shop.clock.run_for(0.1)
    shop.server.refusal = None
    await shop.clock.run_for(0.1)
    assert (await token).startswith(b"t")


async def test_after_four_fifths_of_its_life_a_token_is_replaced_and_its_pod_reported() -> None:
    shop = Shop()
    await shop.token()
    await shop.clock.run_for(780)
    assert (shop.reported, await shop.token()) == ([], b"t1")
    await shop.clock.run_for(21)
    assert (shop.reported, await shop.token()) == ([UID], b"t2")


async def test_a_token_of_a_week_is_renewed_after_a_day() -> None:
    shop = Shop()
    await shop.token(seconds=7 * 86_400)
    await shop.clock.run_for(86_400)
    assert (shop.reported, await shop.token(seconds=7 * 86_400)) == ([UID], b"t2")


async def test_the_life_that_the_server_gave_counts_not_the_one_that_was_asked_for() -> None:
    shop = Shop()
    shop.server.shortest = 600
    await shop.token(seconds=86_400)
    await shop.clock.run_for(481)
    assert shop.reported == [UID]


async def test_a_clock_that_is_set_ahead_makes_a_token_due() -> None:
    shop = Shop()
    await shop.token()
    shop.clock.jump(900)
    assert await shop.token() == b"t2"


async def test_while_renewal_fails_the_old_token_is_given_until_it_ends() -> None:
    shop = Shop()
    await shop.token()
    shop.server.refusal = Unavailable("the API server is away")
    await shop.clock.run_for(801)
    assert await shop.token() == b"t1"
    asked = len(shop.server.asked)
    assert await shop.token() == b"t1"
    assert len(shop.server.asked) == asked  # not at every turn
    shop.reported.clear()
    await shop.clock.run_for(61)
    assert shop.reported == [UID]
    await shop.clock.run_for(150)
    with pytest.raises(Unavailable, match="failed to fetch token: the API server is away"):
        await shop.token()
    shop.server.refusal = None
    shop.reported.clear()
    await shop.clock.run_for(31)
    assert shop.reported == [UID]
    assert await shop.token() != b"t1"


@pytest.mark.parametrize("hours", [-30, 30])
async def test_a_token_lives_as_long_whatever_the_cluster_takes_for_the_time(hours: int) -> None:
    shop = Shop()
    shop.server.ends_at = shop.clock.now() + timedelta(hours=hours, seconds=1000)
    await shop.token()
    shop.server.refusal = Unavailable("the API server is away")
    await shop.clock.run_for(900)
    assert await shop.token() == b"t1"
    await shop.clock.run_for(101)
    with pytest.raises(Unavailable):
        await shop.token()


async def test_a_pod_that_left_is_never_told_again() -> None:
    shop = Shop()
    await shop.token()
    shop.tokens.leave(UID)
    await shop.clock.run_for(5000)
    assert shop.reported == []


async def test_an_answer_without_a_token_is_none() -> None:
    shop = Shop()
    shop.server.is_empty = True
    with pytest.raises(Unavailable, match="holds no token"):
        await shop.token()
