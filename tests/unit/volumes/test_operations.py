"""Set-ups and tear-downs of volumes are counted by plugin and outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import ClusterVolume, KubeletxError, PodUid
from kubeletx.kube.types.core import ObjectMeta, Pod, PodSpec, Volume
from kubeletx.kube.types.volumes import (
    ConfigMapVolumeSource,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    PersistentVolumeClaimVolumeSource,
)
from kubeletx.linux.mounts import MountPoint
from kubeletx.volumes import VolumePreparer
from kubeletx.volumes.cluster_objects import ObjectSet
from kubeletx.volumes.operations import plugin_name, plugin_of
from kubeletx.volumes.pod_fields import FieldContext


class NoMounts:
    def mount(self, source: str, target: Path, *, fstype: str = "", flags: int = 0, data: str = "") -> None:
        raise AssertionError("nothing is mounted here")

    def unmount(self, target: Path) -> None:
        raise AssertionError("nothing is mounted here")

    def mounts(self, below: Path | None = None) -> tuple[MountPoint, ...]:
        return ()


async def inline(function: Any, /, *args: Any) -> Any:
    return function(*args)


def pod(*volumes: Volume) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="web", namespace="default", uid=PodUid("u1")), spec=PodSpec(volumes=volumes)
    )


def counted(preparer: VolumePreparer) -> dict[tuple[str, ...], int]:
    return {labels: sum(one.counts) for labels, one in preparer.operations.durations.items()}


async def test_each_set_up_and_each_release_is_counted(tmp_path: Path) -> None:
    preparer = VolumePreparer(
        root_dir=tmp_path, blocking=inline, fields=FieldContext(node_name="n"), mounter=NoMounts()
    )
    good = Volume(name="scratch", empty_dir=EmptyDirVolumeSource())
    bad = Volume(name="host", host_path=HostPathVolumeSource(path=str(tmp_path / "none"), type="Directory"))
    with pytest.raises(KubeletxError):
        await preparer.prepare(pod(good, bad))
    assert not list(preparer.ready_volumes())
    await preparer.prepare(pod(good))
    assert [volume.plugin for volume in preparer.ready_volumes()] == ["kubernetes.io/empty-dir"]
    await preparer.release(PodUid("u1"))
    await preparer.release(PodUid("u1"))
    assert counted(preparer) == {
        ("kubernetes.io/empty-dir", "volume_mount", "success"): 2,
        ("kubernetes.io/host-path", "volume_mount", "fail-unknown"): 1,
        ("", "volume_unmount", "success"): 1,
    }


@pytest.mark.parametrize(
    ("volume", "plugin"),
    [
        (Volume(name="v"), "kubernetes.io/empty-dir"),
        (Volume(name="v", config_map=ConfigMapVolumeSource(name="c")), "kubernetes.io/configmap"),
        (
            Volume(name="v", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="disk")),
            "kubernetes.io/local-volume",
        ),
        (
            Volume(name="v", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="unbound")),
            "",
        ),
    ],
)
def test_plugins_have_the_kubelets_names(volume: Volume, plugin: str) -> None:
    objects = ObjectSet(claims={"disk": ClusterVolume(name="pv", kind="local", path="/d")})
    assert plugin_of(pod(volume), volume, objects) == plugin


@pytest.mark.parametrize(
    ("source", "driver", "plugin"),
    [
        ("flexVolume", "example.com/disk", "example.com/disk"),
        ("nfs", "", "kubernetes.io/nfs"),
        ("csi", "disk.example.com", "kubernetes.io/csi"),
        ("scaleIO", "", "kubernetes.io/scale-io"),
    ],
)
def test_volumes_of_drivers_have_the_kubelets_names_too(source: str, driver: str, plugin: str) -> None:
    assert plugin_name(source, driver) == plugin
