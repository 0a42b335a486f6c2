"""Pods of the API server, as the pod manager hears of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeletx.api import InvalidPod, PodUid
from kubeletx.apiserver.pods import ApiPods, prepared
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodCondition, PodSpec, PodStatus

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Manager:
    """Writes down what a source says; `here`: what runs."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []
        self.here: set[str] = set()

    def update(self, source: str, pod: Pod) -> None:
        self.said.append(("update", pod.name))
        self.here.add(pod.uid)

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        self.said.append(("remove", uid, grace_seconds))

    def synced(self, source: str) -> None:
        self.said.append(("synced",))

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        raise AssertionError(error)

    def valid(self, source: str, origin: str) -> None:
        raise AssertionError(origin)


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def pods(manager: Manager) -> ApiPods:
    return ApiPods(manager, is_here=lambda uid: uid in manager.here)


def pod(name: str, *, phase: str = "Pending", grace: int | None = None, **meta: object) -> Pod:
    deleted = {"deletion_timestamp": NOW, "deletion_grace_period_seconds": grace} if grace is not None else {}
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"u-{name}", **deleted, **meta),  # type: ignore[arg-type]
        spec=PodSpec(containers=(Container(name="c", image="i"),)),
        status=PodStatus(phase=phase),
    )


def test_the_first_list_is_handed_over_before_it_is_called_complete(pods: ApiPods, manager: Manager) -> None:
    pods.replace([pod("a"), pod("b")], [])
    assert manager.said == [("update", "a"), ("update", "b"), ("synced",)]


def test_what_a_later_list_misses_is_removed_unless_it_is_there_unreadable(
    pods: ApiPods, manager: Manager
) -> None:
    pods.replace([pod("a"), pod("b"), pod("c")], [])
    manager.said.clear()
    pods.replace([pod("a")], [ObjectMeta(name="b", uid="u-b")])
    assert manager.said == [("remove", "u-c", None), ("update", "a"), ("synced",)]


def test_a_pod_that_ran_before_and_cannot_be_read_is_not_taken_for_a_removed_one(
    pods: ApiPods, manager: Manager
) -> None:
    manager.here = {"u-a", "u-b"}
    unread = [ObjectMeta(name=name, uid=f"u-{name}") for name in ("a", "b", "elsewhere")]
    pods.replace([pod("c")], unread)
    assert manager.said == [("update", "c")]
    pods.put(pod("a"))
    assert ("synced",) not in manager.said
    pods.drop(pod("b"))
    assert manager.said == [("update", "c"), ("update", "a"), ("remove", "u-b", None), ("synced",)]


def test_a_later_list_without_it_is_complete(pods: ApiPods, manager: Manager) -> None:
    manager.here = {"u-a"}
    pods.replace([], [ObjectMeta(name="a", uid="u-a")])
    assert manager.said == []
    pods.replace([], [])
    assert manager.said == [("synced",)]


def test_a_deleted_pod_is_stopped_with_the_grace_period_of_its_deletion(
    pods: ApiPods, manager: Manager
) -> None:
    pods.put(pod("a"))
    pods.put(pod("a", grace=7))
    assert manager.said[-1] == ("remove", "u-a", 7)


@pytest.mark.parametrize("gone", [pod("a", phase="Succeeded"), pod("a", phase="Failed"), pod("a", grace=30)])
def test_what_has_ended_or_is_deleted_is_not_begun(pods: ApiPods, manager: Manager, gone: Pod) -> None:
    pods.put(gone)
    assert manager.said == []
    assert gone.uid in pods.pods, "its reporter still has to end it"


def test_a_mirror_is_kept_apart_and_never_runs(pods: ApiPods, manager: Manager) -> None:
    mirror = pod("etcd-n", annotations={"kubernetes.io/config.mirror": "hash"})
    pods.put(mirror)
    assert manager.said == []
    assert pods.mirrors == {("default", "etcd-n"): mirror}
    pods.replace([], [])
    assert pods.mirrors == {}
    assert manager.said == [("synced",)]


def test_after_a_whole_list_an_older_mirror_is_the_present_one(pods: ApiPods) -> None:
    def mirror(version: str, phase: str) -> Pod:
        notes = {"kubernetes.io/config.mirror": "hash"}
        return pod("etcd-n", phase=phase, annotations=notes, resource_version=version)

    pods.put(mirror("900", "Running"))
    pods.put(mirror("300", "Pending"))  # the watch is late
    assert pods.mirrors["default", "etcd-n"].status.phase == "Running"
    pods.replace([mirror("300", "Pending")], [])  # the server was set back
    assert pods.mirrors["default", "etcd-n"].status.phase == "Pending"


def test_our_own_reports_change_nothing_and_what_others_say_does() -> None:
    ready = PodCondition(type="Ready", status="True")
    gate = PodCondition(type="example.com/gate", status="True")
    first = prepared(pod("a"))
    reported = prepared(
        Pod(
            metadata=ObjectMeta(name="a", namespace="default", uid="u-a", resource_version="9"),
            spec=pod("a").spec,
            status=PodStatus(phase="Running", conditions=(ready,)),
        )
    )
    assert reported == first
    gated = prepared(
        Pod(metadata=first.metadata, spec=first.spec, status=PodStatus(conditions=(ready, gate)))
    )
    assert gated.status.conditions == (gate,)
