"""Counters: what a pod's life adds to them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import PodUid, Unavailable
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    EphemeralContainer,
    Pod,
    PodStatus,
)
from kubeletx.pods.counters import PULL, QUICK, START, Counters, Durations, container_type, static_label
from kubeletx.pods.model.sources import BUILT_IN
from tests.unit.pods.manager_model import Node, a_pod


@given(st.lists(st.floats(0, 10_000)))
def test_each_value_is_counted_once_below_its_bound(values: list[float]) -> None:
    durations = Durations(QUICK)
    for value in values:
        durations.add(value)
    assert sum(durations.counts) == len(values)
    for index, bound in enumerate(QUICK):
        assert sum(durations.counts[: index + 1]) == sum(value <= bound for value in values)
    assert durations.sum_seconds == pytest.approx(sum(values))


@pytest.mark.parametrize("bounds", [QUICK, START, PULL])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_a_pod_s_start_is_measured_once_from_its_first_sight() -> None:
    counters, uid = Counters(), PodUid("u")
    counters.first_seen(uid, 10.0)
    counters.worker_turned(uid, 0.001, 10.2)
    counters.worker_turned(uid, 0.001, 10.4)
    counters.phase_changed(uid, "Pending", 10.5)
    counters.phase_changed(uid, "Running", 12.5)
    counters.phase_changed(uid, "Running", 99.0)
    assert counters.pod_start.sum_seconds == 2.5
    assert sum(counters.pod_start.counts) == 1
    assert counters.pod_worker_start.sum_seconds == pytest.approx(0.2)
    assert sum(counters.pod_worker.counts) == 2


def test_a_pod_found_again_after_a_restart_has_no_start_duration() -> None:
    counters = Counters()
    counters.worker_turned(PodUid("u"), 0.001, 5.0)
    counters.phase_changed(PodUid("u"), "Running", 5.0)
    assert not sum(counters.pod_start.counts)
    assert not sum(counters.pod_worker_start.counts)


def test_a_pod_that_never_ran_leaves_nothing_behind() -> None:
    counters, uid = Counters(), PodUid("u")
    counters.first_seen(uid, 1.0)
    counters.gone(uid)
    counters.phase_changed(uid, "Running", 9.0)
    assert not sum(counters.pod_start.counts)


async def test_a_life_of_pods_is_counted_where_it_happens(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    async with node.running(max_pods=1) as manager:
        counters = node.services.counters
        node.runtimes["one"].script("create_sandbox", error=Unavailable("not now"), times=1)
        node.runtimes["one"].script("start_unit", error=Unavailable("not now"), times=1)
        await node.start(a_pod(containers=2))
        assert (counters.started_pods, counters.started_pods_errors) == (2, 1)
        assert counters.started_containers == {"container": 3}
        assert counters.started_containers_errors == {("container", "RunContainerError"): 1}
        assert sum(counters.pod_start.counts) == 1
        assert sum(counters.pod_worker_start.counts) == 1
        assert sum(counters.pod_worker.counts) > 3
        manager.update("applied", a_pod("more"))
        await node.until(lambda: counters.admission_rejections == {"OutOfpods": 1})
        manager.update("file", a_pod(uid="uid-changed"))
        manager.remove("file", PodUid("uid-web"))
        await node.until(lambda: node.phase("uid-changed") is not None)
        assert counters.restarted_pods == {"true": 1, "": 0}
        assert sum(node.registry.get("one").relists.counts) >= 1
    async with node.running():
        assert sum(node.services.counters.pod_start.counts) == 0


def test_containers_are_counted_by_the_kubelet_s_types() -> None:
    pod = a_pod()
    spec = replace(
        pod.spec,
        init_containers=(Container(name="first", image="i"),),
        ephemeral_containers=(EphemeralContainer(name="debug", image="i"),),
    )
    found = [container_type(replace(pod, spec=spec), name) for name in ("first", "c0", "debug")]
    assert found == ["init_container", "container", "ephemeral_container"]
    assert tuple(static_label(BUILT_IN.of(name)) for name in ("file", "applied", "api")) == (
        "true",
        "true",
        "",
    )


def status_of(*ends: tuple[str, int], runs: str = "") -> PodStatus:
    """One container that ended so (id, exit code), the last of them as its last state if it runs again."""
    last = [
        ContainerState(terminated=ContainerStateTerminated(exit_code=code, reason="Error", container_id=one))
        for one, code in ends[-1:]
    ]
    ended = last[0] if last else ContainerState()
    running = ContainerState(running=ContainerStateRunning())
    return PodStatus(
        container_statuses=(
            ContainerStatus(
                name="main",
                ready=False,
                restart_count=0,
                image="i",
                image_id="",
                state=running if runs else ended,
                last_state=ended if runs else ContainerState(),
            ),
        )
    )


def test_each_end_of_a_container_is_counted_once() -> None:
    counters = Counters()
    life = [
        status_of(runs="one"),
        status_of(("one", 139)),
        status_of(("one", 139)),
        status_of(("one", 139), runs="two"),
        status_of(("one", 139), ("two", 1), runs="three"),
    ]
    counters.ended(None, life[1])  # an earlier agent's
    assert not counters.terminated_containers
    for before, after in pairwise(life):
        counters.ended(before, after)
    assert counters.terminated_containers == {("container", 139, "Error"): 1, ("container", 1, "Error"): 1}


def pod_of(image: str) -> Pod:
    pod = a_pod()
    return replace(pod, spec=replace(pod.spec, containers=(Container(name="main", image=image),)))


async def test_a_pulled_image_and_a_found_pod_are_counted(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    async with node.running():
        await node.start(pod_of("other"))
        assert sum(node.services.counters.image_pull.counts) == 1
    (tmp_path / "db").unlink()
    async with node.running(keeps_orphans=True):
        await node.until(lambda: node.services.counters.orphaned_runtime_pods == 1)
