"""A source changes and removes its own pods only, and knows at once when a pod cannot begin."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from kubeletx.agent.cluster.member import static_pods
from kubeletx.api import PodUid
from kubeletx.pods.model.sources import (
    API,
    APPLIED,
    BUILT_IN,
    FILE,
    FORNAX,
    Accepted,
    Refused,
    SourceTable,
    SourceTraits,
    WaitsFor,
)
from tests.unit.pods.manager_model import Node, a_pod


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_source_removes_only_its_own_pods(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod(uid="first"))
        manager.update("applied", a_pod(uid="second"))
        manager.remove("applied", PodUid("first"))
        manager.remove("file", PodUid("second"))
        await node.clock.run_for(2)
        assert manager.workers[PodUid("first")].desired.deletion is None
        assert [one.uid for one in manager.queued()] == ["second"]
        manager.remove("applied", PodUid("second"))
        assert not list(manager.queued())
        manager.remove("file", PodUid("first"))
        assert manager.workers[PodUid("first")].desired.deletion is not None


async def test_a_source_does_not_change_a_pod_of_another_one(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod(uid="first"))
        before = manager.workers[PodUid("first")].desired
        with structlog.testing.capture_logs() as said:
            for _ in range(2):
                answer = manager.update("applied", a_pod(uid="first", containers=3))
                assert answer == Refused("pod default/web of source 'file' has UID first")
        assert manager.workers[PodUid("first")].desired == before
        assert [line["event"] for line in said] == ["Refused a pod of another source"]


async def test_a_source_knows_which_pod_its_own_waits_for(node: Node) -> None:
    async with node.running() as manager:
        assert manager.update("file", a_pod(uid="first")) == Accepted()
        waits = WaitsFor("default/web", PodUid("first"), "file")
        with structlog.testing.capture_logs() as said:
            assert manager.update("applied", a_pod(uid="second")) == waits
            assert manager.update("applied", a_pod(uid="second")) == waits
        assert [line["event"] for line in said] == ["Pod waits for one of another source"]
        reported = [one for one in node.sink.recorded if one.reason == "NameTaken"]
        assert [one.message for one in reported] == [
            "Pod waits for the end of pod default/web (first) of source 'file'"
        ]


async def test_a_new_life_of_a_sources_own_pod_makes_no_event(node: Node) -> None:
    async with node.running() as manager:
        manager.update("file", a_pod(uid="first"))
        answer = manager.update("file", a_pod(uid="second"))
        assert isinstance(answer, WaitsFor)
        assert not [one for one in node.sink.recorded if one.reason == "NameTaken"]


@pytest.mark.parametrize("reclaims", [True, False])
async def test_after_a_loss_a_source_that_reclaims_has_its_other_pods_stopped(
    node: Node, reclaims: bool
) -> None:
    node.sources = BUILT_IN.with_more([SourceTraits(name="core", reclaims_after_loss=reclaims)])
    async with node.running() as manager:
        manager.update("core", a_pod(uid="first"))
        await node.until(lambda: node.phase("first") == "Running")
    async with node.running(keeps_orphans=True) as manager:
        manager.synced("core")
        await node.clock.run_for(5)
        assert node.alive() == ([] if reclaims else ["web/c0"])


async def test_pods_of_a_core_belong_to_their_source_alone(node: Node) -> None:
    async with node.running() as manager:
        manager.update(FORNAX, a_pod(uid="first"))
        await node.until(lambda: node.phase("first") == "Running")
    async with node.running(keeps_orphans=True) as manager:
        for other in (FILE, APPLIED, API):
            manager.synced(other)
        await node.clock.run_for(5)
        assert node.alive() == ["web/c0"]
        assert static_pods(manager) == ({}, set())
        phases: list[str | None] = []
        node.services.board.subscribe(
            lambda _pod, _facts, status: phases.append(status.phase if status is not None else None)
        )
        manager.synced(FORNAX)
        await node.until(lambda: not manager.workers)
        assert phases[-2:] == ["Failed", None]


def test_an_unknown_source_is_one_of_the_node() -> None:
    traits = SourceTable(()).of("gone")
    assert (traits.is_cluster, traits.mirrored, traits.counts_overhead) == (False, True, True)
