from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import Device, InvalidPod, Mount, MountPropagation, PermissionDenied, SourceKind
from kubeletx.volumes import ContainerMounts, PreparedVolume, PreparedVolumes
from tests.unit.volumes.volume_doubles import FakeMounter, make_pod, make_preparer

VOLUMES = [
    {"name": "e", "emptyDir": {}},
    {"name": "i", "image": {"reference": "registry/data:1"}},
    {"name": "d", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
]


async def mounts_of(
    root: Path, container: dict[str, Any], *, volumes: Any = None, mounter: Any = None, **options: Any
) -> ContainerMounts:
    pod = make_pod({"volumes": volumes or VOLUMES, "containers": [{"name": "c", **container}]})
    preparer = make_preparer(root, mounter=mounter or FakeMounter())
    prepared = await preparer.prepare(pod)
    return await preparer.mounts_for(pod, pod.spec.containers[0], prepared, **{"attempt": 0, **options})


async def first_mount(root: Path, mount: dict[str, Any], **options: Any) -> Mount:
    found = await mounts_of(root, {"volumeMounts": [{"name": "e", "mountPath": "/e", **mount}]}, **options)
    return found.mounts[0]


async def test_a_volume_is_mounted_where_the_container_needs_it(tmp_path):
    mount = await first_mount(tmp_path, {"readOnly": True})
    source = str(tmp_path / "pods/u1/volumes/kubernetes.io~empty-dir/e")
    assert mount == Mount(source=source, target="/e", name="e", read_only=True, selinux_relabel=True)


async def test_a_relative_target_begins_at_the_root(tmp_path):
    assert (await first_mount(tmp_path, {"mountPath": "x/y"})).target == "/x/y"


async def test_content_from_the_cluster_or_the_pod_is_always_read_only(tmp_path):
    assert (await first_mount(tmp_path, {"name": "d"})).read_only


async def test_an_image_volume_names_the_image_and_its_sub_path(tmp_path):
    mount = await first_mount(tmp_path, {"name": "i", "subPath": "models"})
    assert (mount.image, mount.image_sub_path, mount.source) == ("registry/data:1", "models", "")
    assert mount.read_only


async def test_an_unknown_volume_is_refused(tmp_path):
    with pytest.raises(InvalidPod, match=r"'ghost' is not among spec\.volumes"):
        await first_mount(tmp_path, {"name": "ghost"})


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (None, MountPropagation.PRIVATE),
        ("None", MountPropagation.PRIVATE),
        ("HostToContainer", MountPropagation.HOST_TO_CONTAINER),
    ],
)
async def test_propagation_is_passed_on(tmp_path, word, expected):
    assert (await first_mount(tmp_path, {"mountPropagation": word})).propagation is expected


async def test_only_a_privileged_container_may_mount_into_the_node(tmp_path):
    wanted = [{"name": "e", "mountPath": "/e", "mountPropagation": "Bidirectional"}]
    with pytest.raises(InvalidPod, match="privileged"):
        await mounts_of(tmp_path, {"volumeMounts": wanted})
    found = await mounts_of(tmp_path, {"volumeMounts": wanted, "securityContext": {"privileged": True}})
    assert found.mounts[0].propagation is MountPropagation.BIDIRECTIONAL


@pytest.mark.parametrize(
    ("mode", "able", "expected"),
    [("IfPossible", True, True), ("IfPossible", False, False), ("Enabled", True, True)],
)
async def test_recursive_read_only_follows_the_runtime(tmp_path, mode, able, expected):
    mount = {"readOnly": True, "recursiveReadOnly": mode}
    assert (await first_mount(tmp_path, mount, recursive_read_only=able)).recursive_read_only is expected


@pytest.mark.parametrize(
    "mount", [{"readOnly": True, "recursiveReadOnly": "Enabled"}, {"recursiveReadOnly": "IfPossible"}]
)
async def test_recursive_read_only_that_cannot_be_is_refused(tmp_path, mount):
    with pytest.raises(InvalidPod, match="recursive"):
        await first_mount(tmp_path, mount)


async def test_a_missing_sub_path_is_made_like_its_volume_and_bound(tmp_path):
    mounter = FakeMounter()
    mount = await first_mount(tmp_path, {"subPath": "a/b"}, mounter=mounter)
    made = tmp_path / "pods/u1/volumes/kubernetes.io~empty-dir/e/a/b"
    assert stat.S_IMODE(made.stat().st_mode) == 0o777
    assert mount.source == str(tmp_path / "pods/u1/volume-subpaths/e/c/0")
    assert mounter.calls == ["mount 4096 0"]


async def test_a_sub_path_may_be_written_with_variables(tmp_path):
    await first_mount(tmp_path, {"subPathExpr": "logs/$(POD)"}, environment={"POD": "web"})
    assert (tmp_path / "pods/u1/volumes/kubernetes.io~empty-dir/e/logs/web").is_dir()


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ({"subPathExpr": "$(NONE)"}, "missing value for 'NONE'"),
        ({"subPath": "/etc"}, "absolute"),
        ({"subPath": "a/../../b"}, r"contains '\.\.'"),
        ({"subPathExpr": "$(UP)"}, r"contains '\.\.'"),
    ],
)
async def test_a_sub_path_that_cannot_be_is_refused(tmp_path, mount, message):
    with pytest.raises(InvalidPod, match=message) as caught:
        await first_mount(tmp_path, mount, environment={"UP": ".."})
    assert caught.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize("target", ["/etc", "../../../..", "/proc/self/root"])
async def test_no_link_in_a_volume_leads_a_sub_path_out_of_it(tmp_path, target):
    volume = tmp_path / "pods/u1/volumes/kubernetes.io~empty-dir/e"
    volume.mkdir(parents=True)
    (volume / "link").symlink_to(target)
    mounter = FakeMounter()
    with pytest.raises(PermissionDenied, match="leads out of volume 'e'"):
        await first_mount(tmp_path, {"subPath": "link"}, mounter=mounter)
    assert mounter.calls == []


async def test_a_sub_path_below_a_file_is_refused_with_its_field(tmp_path):
    with pytest.raises(
        InvalidPod, match=r"volumeMounts\[0\]\.subPath: 'n/x' is not in volume 'd': Not a directory"
    ) as caught:
        await first_mount(tmp_path, {"name": "d", "subPath": "n/x"})
    assert caught.value.reason == "CreateContainerConfigError"


async def test_a_read_only_volume_is_never_written_for_a_sub_path(tmp_path):
    with pytest.raises(InvalidPod, match="'ghost' is not in volume 'd'"):
        await first_mount(tmp_path, {"name": "d", "subPath": "ghost"})


async def test_a_file_of_a_volume_is_bound_as_a_file(tmp_path):
    mount = await first_mount(tmp_path, {"name": "d", "subPath": "n"})
    assert Path(mount.source).is_file()


async def test_each_attempt_has_its_own_empty_termination_message_file(tmp_path):
    for attempt in (0, 1):
        found = await mounts_of(tmp_path, {}, attempt=attempt)
        mount = found.mounts[-1]
        assert mount.target == "/dev/termination-log"
        assert Path(mount.source) == tmp_path / f"pods/u1/containers/c/{attempt:08d}"
        assert stat.S_IMODE(Path(mount.source).stat().st_mode) == 0o666
        Path(mount.source).write_text("old")
    found = await mounts_of(tmp_path, {"terminationMessagePath": "msg"}, attempt=1)
    assert (found.mounts[-1].target, Path(found.mounts[-1].source).read_text()) == ("/msg", "")


async def test_the_hosts_file_is_written_and_mounted(tmp_path):
    found = await mounts_of(tmp_path, {}, hosts_text="text\n")
    mount = found.mounts[0]
    assert (mount.target, Path(mount.source).read_text()) == ("/etc/hosts", "text\n")
    assert stat.S_IMODE(Path(mount.source).stat().st_mode) == 0o644


async def test_a_hosts_file_that_a_container_blew_up_is_replaced_unread(tmp_path):
    (mount, *_) = (await mounts_of(tmp_path, {}, hosts_text="text\n")).mounts
    os.truncate(mount.source, 1 << 40)  # sparse: it takes no space, reading it would take a terabyte
    await mounts_of(tmp_path, {}, hosts_text="text\n", attempt=1)
    assert Path(mount.source).stat().st_size == len("text\n")


async def test_a_mount_of_the_container_covers_the_hosts_file(tmp_path):
    container = {"volumeMounts": [{"name": "e", "mountPath": "/etc/hosts"}]}
    found = await mounts_of(tmp_path, container, hosts_text="text\n")
    assert [one.name for one in found.mounts if one.target == "/etc/hosts"] == ["e"]


async def test_a_directory_is_not_a_block_volume(tmp_path):
    with pytest.raises(InvalidPod, match="not a block volume"):
        await mounts_of(tmp_path, {"volumeDevices": [{"name": "e", "devicePath": "/dev/xvda"}]})


async def test_a_block_volume_becomes_a_device(tmp_path, monkeypatch):
    from kubeletx.volumes.kinds import host_path

    monkeypatch.setitem(host_path._CHECKS, "BlockDevice", ("a block device", stat.S_ISCHR))
    found = await mounts_of(
        tmp_path,
        {"volumeDevices": [{"name": "b", "devicePath": "/dev/xvda"}]},
        volumes=[{"name": "b", "hostPath": {"path": "/dev/null", "type": "BlockDevice"}}],
    )
    assert found.devices == (Device(container_path="/dev/xvda", host_path="/dev/null"),)


@pytest.mark.parametrize("is_machine", [False, True])
async def test_a_block_volume_that_is_read_only_cannot_be_written_to(tmp_path, is_machine):
    spec = {"name": "c", "volumeDevices": [{"name": "b", "devicePath": "/dev/xvda"}]}
    pod = make_pod({"virtualMachine": spec} if is_machine else {"containers": [spec]})
    volume = PreparedVolume(name="b", kind=SourceKind.BLOCK_DEVICE, source="/dev/sdz", read_only=True)
    unit = pod.spec.virtual_machine or pod.spec.containers[0]
    prepared = PreparedVolumes(uid=pod.uid, volumes={"b": volume})
    found = await make_preparer(tmp_path).mounts_for(pod, unit, prepared, attempt=0)
    if is_machine:
        assert [(one.source, one.read_only) for one in found.mounts] == [("/dev/sdz", True)]
    else:
        assert [(one.host_path, one.permissions) for one in found.devices] == [("/dev/sdz", "r")]
