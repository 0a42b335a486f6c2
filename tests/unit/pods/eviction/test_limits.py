"""Limits that pods have of their own: emptyDir, container, pod."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from kubeletx.kube.types.volumes import EmptyDirVolumeSource, Volume
from kubeletx.pods.eviction.limits import exceeded, has_limits
from kubeletx.pods.eviction.use import ContainerUse, PodUse
from kubeletx.pods.model.sources import BUILT_IN, CLUSTER
from kubeletx.volumes.disk_usage import DiskUse

MI = 1 << 20


def a_use(
    *, size_limit: str | None = None, medium: str = "", limits: dict[str, str] | None = None, **fields: Any
) -> PodUse:
    containers = tuple(
        Container(
            name=name,
            image="i",
            resources=ResourceRequirements(limits={"ephemeral-storage": text} if text else {}),
        )
        for name, text in (limits or {"main": ""}).items()
    )
    volume = Volume(name="data", empty_dir=EmptyDirVolumeSource(size_limit=size_limit, medium=medium))
    pod = Pod(
        metadata=ObjectMeta(name="web", namespace="default", uid=PodUid("u")),
        spec=PodSpec(containers=containers, volumes=(volume,)),
    )
    return PodUse(uid=PodUid("u"), pod=pod, source=CLUSTER, **fields)


def writing(name: str, rootfs: int, logs: int = 0) -> ContainerUse:
    return ContainerUse(name=name, rootfs=DiskUse(bytes=rootfs), logs=DiskUse(bytes=logs))


def test_an_empty_dir_may_not_grow_beyond_its_size_limit() -> None:
    over = a_use(size_limit="10Mi", volumes={"data": DiskUse(bytes=10 * MI + 1)})
    assert exceeded(over) == (
        "emptydirfs.limit",
        'Usage of EmptyDir volume "data" exceeds the limit "10Mi". ',
    )
    assert exceeded(replace(over, volumes={"data": DiskUse(bytes=10 * MI)})) is None
    assert exceeded(replace(over, volumes={})) is None
    assert exceeded(replace(over, source=BUILT_IN.of("file"))) is None


def test_a_volume_in_memory_and_one_without_a_limit_are_not_held_against_anything() -> None:
    for pod in (a_use(size_limit="1Mi", medium="Memory"), a_use(), a_use(size_limit="0")):
        assert not has_limits(pod.pod)
        assert exceeded(replace(pod, volumes={"data": DiskUse(bytes=99 * MI)})) is None


def test_a_container_may_not_write_more_than_its_limit() -> None:
    over = a_use(limits={"main": "2Mi", "other": "90Mi"}, containers=(writing("main", MI, MI + 1),))
    assert exceeded(over) == (
        "ephemeralcontainerfs.limit",
        'Container main exceeded its local ephemeral storage limit "2Mi". ',
    )
    assert exceeded(replace(over, has_own_disk=True)) is None


def test_a_pod_may_not_take_more_than_its_containers_may_together() -> None:
    taken = (writing("main", 2 * MI), writing("other", 2 * MI))
    over = a_use(limits={"main": "2Mi", "other": "2Mi"}, containers=taken, volumes={"data": DiskUse(bytes=1)})
    assert exceeded(over) == (
        "ephemeralpodfs.limit",
        "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
    )
    assert exceeded(replace(over, volumes={})) is None


@pytest.mark.parametrize("limits", [{"main": "1Mi"}, {"main": "1Mi", "other": ""}])
def test_what_was_not_measured_is_over_no_limit(limits: dict[str, str]) -> None:
    assert exceeded(a_use(limits=limits)) is None
