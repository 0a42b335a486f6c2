"""How long pods took to start, as the startup latency SLI counts it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from kubeletx.api import PodUid
from kubeletx.kube.types.core import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodStatus,
)
from kubeletx.pods.start_times import StartTimes, covered_seconds
from tests.unit.pods.manager_model import Node, a_pod

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def a_new_pod(uid: str = "u", *, host_network: bool = False) -> Pod:
    pod = a_pod(uid=uid, host_network=host_network)
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=BEGIN))


def one(state: ContainerState) -> ContainerStatus:
    return ContainerStatus(name="c", ready=True, restart_count=0, image="i", image_id="", state=state)


def status(*, runs: bool, init: tuple[float, float] | None = None, phase: str = "Running") -> PodStatus:
    running = ContainerStateRunning(started_at=at(1)) if runs else None
    ended = (
        ()
        if init is None
        else (
            one(
                ContainerState(
                    terminated=ContainerStateTerminated(
                        exit_code=0, started_at=at(init[0]), finished_at=at(init[1])
                    )
                )
            ),
        )
    )
    return PodStatus(
        phase=phase,
        init_container_statuses=ended,
        container_statuses=(one(ContainerState(running=running)),),
    )


def test_spans_that_overlap_count_once() -> None:
    assert covered_seconds([]) == 0
    assert covered_seconds([(at(5), at(9)), (at(0), at(2)), (at(6), at(7)), (at(8), at(10))]) == 7


def test_pulls_and_init_containers_are_in_the_total_and_not_in_the_sli() -> None:
    times, uid = StartTimes(), PodUid("u")
    times.first_seen(a_new_pod(), at(0.5))
    times.pulled(uid, at(1), at(4))
    times.pulled(uid, at(2), at(6))
    times.published(uid, status(runs=False, init=(5, 8)), at(9))
    assert not list(times.total.items())
    times.published(uid, status(runs=True, init=(5, 8)), at(10))
    times.published(uid, status(runs=True), at(99))
    assert [(labels, h.sum_seconds) for labels, h in times.total.items()] == [(("true",), 10)]
    assert [(labels, h.sum_seconds) for labels, h in times.sli.items()] == [(("true",), 3)]


def test_only_the_first_pod_with_a_network_of_its_own_carries_the_label() -> None:
    times = StartTimes()
    for name, host_network in (("a", True), ("b", False), ("c", False)):
        times.first_seen(a_new_pod(name, host_network=host_network), at(0))
        times.published(PodUid(name), status(runs=True), at(1))
    assert {labels: sum(h.counts) for labels, h in times.sli.items()} == {("false",): 2, ("true",): 1}


def test_a_pod_that_ended_or_went_before_it_ran_is_not_measured() -> None:
    times = StartTimes()
    times.first_seen(a_new_pod("a"), at(0))
    times.first_seen(a_new_pod("b"), at(0))
    times.published(PodUid("a"), status(runs=True, phase="Failed"), at(1))
    times.gone(PodUid("b"))
    for name in ("a", "b"):
        times.published(PodUid(name), status(runs=True), at(2))
    assert not list(times.total.items())


async def test_a_life_of_a_pod_is_counted_by_what_its_worker_does(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    async with node.running() as manager:
        counters = node.services.counters
        pod = a_pod()
        await node.start(pod)
        assert sum(counters.starts.total.counts) == 1
        manager.update("file", replace(pod, metadata=replace(pod.metadata, labels={"a": "b"})))
        await node.until(lambda: "update" in {labels[0] for labels, _ in counters.pod_worker.items()})
        manager.remove("file", pod.uid)
        await node.until(lambda: not manager.workers)
        turns = {labels[0]: sum(h.counts) for labels, h in counters.pod_worker.items()}
        assert turns["create"] == 1
        assert set(turns) == {"create", "update", "sync", "kill"}
        sandboxes = {labels: sum(h.counts) for labels, h in counters.run_podsandbox.items()}
        assert sandboxes == {("",): 1}
    async with node.running():
        assert not sum(node.services.counters.starts.total.counts)
