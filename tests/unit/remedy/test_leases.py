"""The Lease of a node, which one actor at a time has."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import AlreadyExists, NotFound
from kubeletx.kube.types.lease import Lease, LeaseSpec
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.remedy.safety.leases import HOLDER, NodeLeases
from kubeletx.testing import FakeClock
from tests.unit.remedy.trial import START, new_node

NODE = new_node("n1", START)
PATH = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases"
NHC = LeaseSpec(holder_identity="NodeHealthCheck-workers", lease_duration_seconds=660, renew_time="1")


class OneLease:
    """An API server with the Lease of node n1."""

    def __init__(self, spec: LeaseSpec | None = None) -> None:
        self.lease = Lease(metadata=ObjectMeta(resource_version="1"), spec=spec) if spec is not None else None
        self.writes = 0

    async def get(self, path: str, _type: Any) -> Lease:
        assert path == f"{PATH}/node-n1"
        if self.lease is None:
            raise NotFound(path)
        return self.lease

    async def create(self, path: str, lease: Lease, _type: Any) -> Lease:
        if self.lease is not None:
            raise AlreadyExists(path)
        assert [owner.uid for owner in lease.metadata.owner_references] == [NODE.metadata.uid]
        return await self.replace(path, lease, _type)

    async def replace(self, _path: str, lease: Lease, _type: Any) -> Lease:
        self.lease, self.writes = lease, self.writes + 1
        return lease

    async def delete(self, _path: str, *, resource_version: str) -> None:
        assert self.lease is not None
        assert self.lease.metadata.resource_version == resource_version
        self.lease = None

    @property
    def holder(self) -> str:
        return self.lease.spec.holder_identity or "" if self.lease is not None else ""


def made(server: OneLease, clock: FakeClock) -> NodeLeases:
    return NodeLeases(server, clock, lambda: "medik8s-leases")  # type: ignore[arg-type]  # a double


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_a_lease_is_taken_renewed_in_time_and_deleted_at_the_end(clock: FakeClock) -> None:
    server = OneLease()
    leases = made(server, clock)
    for _ in range(60):
        assert await leases.take(NODE)
        clock.advance(10)
    assert (server.holder, server.writes) == (HOLDER, 4)
    await leases.drop("n1")
    assert server.lease is None


async def test_a_long_method_gets_a_lease_that_outlasts_it(clock: FakeClock) -> None:
    server = OneLease()
    assert await made(server, clock).take(NODE, 3600.0)
    assert server.lease is not None
    assert (server.lease.spec.lease_duration_seconds or 0) > 3600


async def test_the_next_leader_takes_over_the_lease(clock: FakeClock) -> None:
    server = OneLease()
    assert await made(server, clock).take(NODE)
    assert await made(server, clock).take(NODE)


async def test_another_actors_lease_is_respected_until_it_expires(clock: FakeClock) -> None:
    server = OneLease(NHC)
    leases = made(server, clock)
    assert not await leases.take(NODE)
    assert leases.others() == {"n1": "NodeHealthCheck-workers"}
    clock.jump(10_000)  # the wall clock says nothing about it
    clock.advance(659)
    assert leases.others() == {}
    assert not await leases.take(NODE)
    await leases.drop("n1")
    assert server.holder == "NodeHealthCheck-workers"
    clock.advance(2)
    assert not await leases.take(NODE)  # its time is counted from the next look
    clock.advance(600)
    assert server.lease is not None
    server.lease = replace(server.lease, spec=replace(NHC, renew_time="2"))
    assert not await leases.take(NODE)  # renewed meanwhile
    clock.advance(660)
    assert await leases.take(NODE)
    assert server.holder == HOLDER


async def test_a_lease_without_a_holder_is_free(clock: FakeClock) -> None:
    server = OneLease(LeaseSpec(holder_identity=""))
    assert await made(server, clock).take(NODE)
