"""Reasons to doubt the view of the cluster, and reboots that kured has planned."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubeletx.api import NotFound, PermissionDenied, Unavailable
from kubeletx.kube.types.lease import micro_time
from kubeletx.kube.types.node import NodeCondition
from kubeletx.remedy.model import RemedySettings
from kubeletx.remedy.safety.surroundings import Surroundings
from kubeletx.testing import FakeClock
from tests.unit.remedy.trial import START, new_node

WELL = {"n1", "n2"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
KURED = "/apis/apps/v1/namespaces/kube-system/daemonsets/kured"


class LeasesAndKured:
    """An API server with Leases of nodes and kured's DaemonSet. `error`: raised instead of an answer."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.renewals: dict[str, str] = {}
        self.lock: Any = None
        self.error: Exception | None = None

    def renew(self, *names: str, skew: float = 0.0) -> None:
        moment = self.clock.now() + timedelta(seconds=skew)
        self.renewals |= dict.fromkeys(names, micro_time(moment))

    def look(self, **settings: Any) -> Surroundings:
        values = RemedySettings(**settings)
        return Surroundings(self, self.clock, lambda: values)  # type: ignore[arg-type]  # a double

    async def get(self, path: str, type_: Any, *, params: Any = None) -> Any:
        if self.error is not None:
            raise self.error
        if path == LEASES:
            items = [
                {"metadata": {"name": name}, "spec": {"renewTime": text}}
                for name, text in self.renewals.items()
            ]
            return msgspec.convert({"items": items}, type_)
        if path == KURED and self.lock is not None:
            text = msgspec.json.encode(self.lock).decode()
            made = {"metadata": {"annotations": {"weave.works/kured-node-lock": text}}}
            return msgspec.convert(made, type_)
        raise NotFound(path)


def doubts(look: Surroundings) -> tuple[str, ...]:
    return look.doubts


@pytest.fixture
def server() -> LeasesAndKured:
    return LeasesAndKured()


async def test_before_the_first_look_and_after_an_old_one_nothing_may_begin(server: LeasesAndKured) -> None:
    look = server.look()
    assert (len(doubts(look)), look.is_due) == (1, True)
    await look.refresh(WELL, None)
    assert doubts(look) == ()
    server.clock.advance(31)
    assert len(doubts(look)) == 1


async def test_without_renewals_of_well_nodes_the_view_is_doubted(server: LeasesAndKured) -> None:
    look = server.look()
    server.renew("n1", "n2", "n3")
    for _ in range(6):
        await look.refresh(WELL, None)
        assert doubts(look) == ()
        server.clock.advance(10)
    server.renew("n3")  # the sick one does not count
    server.clock.advance(10)
    await look.refresh(WELL, None)
    assert doubts(look) == ("no Lease of 2 well nodes is renewed: the API server's view may be outdated",)
    server.renew("n2", skew=-9999)
    await look.refresh(WELL, None)
    assert doubts(look) == ()


async def test_nodes_whose_clock_is_wrong_count_once_their_lease_changes(server: LeasesAndKured) -> None:
    look = server.look()
    server.renew("n1", skew=-600)
    await look.refresh(WELL, None)
    assert len(doubts(look)) == 1
    server.clock.advance(10)
    server.renew("n1", skew=-600)
    await look.refresh(WELL, None)
    assert doubts(look) == ()


async def test_a_cluster_whose_only_node_is_sick_is_not_doubted(server: LeasesAndKured) -> None:
    look = server.look()
    server.renew("n1", skew=-600)
    await look.refresh(set(), None)
    assert doubts(look) == ()


async def test_storage_that_the_host_cannot_reach_is_a_doubt(server: LeasesAndKured) -> None:
    listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    look = server.look(storage_probe=f"nonsense, 127.0.0.1:{port}")
    await look.refresh(WELL, None)
    assert doubts(look) == ()
    listener.close()
    await listener.wait_closed()
    await look.refresh(WELL, None)
    assert doubts(look) == (f"this host cannot reach the storage at nonsense 127.0.0.1:{port}",)


async def test_the_own_nodes_storage_condition_is_a_doubt(server: LeasesAndKured) -> None:
    own = new_node("own", START)
    lost = NodeCondition(type="StorageLost", status="True")
    own = replace(own, status=replace(own.status, conditions=(*own.status.conditions, lost)))
    look = server.look(storage_condition="StorageLost")
    await look.refresh(WELL, own)
    assert "StorageLost" in look.doubts[0]


@pytest.mark.parametrize(
    ("lock", "planned"),
    [
        ({"nodeID": "n1", "created": "2000-01-01T00:00:00Z", "TTL": 0}, {"n1"}),
        ({"nodeID": "n1", "created": "2000-01-01T00:00:00Z", "TTL": 60_000_000_000}, set()),
        ({"maxOwners": 2, "locks": [{"nodeID": "n1"}, {"nodeID": "n2"}]}, {"n1", "n2"}),
        ({"nodeID": ""}, set()),
        (["nonsense"], set()),
    ],
)
async def test_the_lock_of_kured_names_nodes_that_are_rebooted(
    server: LeasesAndKured, lock: Any, planned: set[str]
) -> None:
    server.lock = lock
    look = server.look()
    await look.refresh(WELL, None)
    assert set(look.planned) == planned


async def test_what_may_not_be_read_is_left_out_and_other_errors_are_doubts(server: LeasesAndKured) -> None:
    look = server.look()
    server.error = PermissionDenied("forbidden")
    await look.refresh(WELL, None)
    assert doubts(look) == ()
    server.error = Unavailable("no answer")
    await look.refresh(WELL, None)
    assert len(doubts(look)) == 2
