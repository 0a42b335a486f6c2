"""Volumes on a real kernel: memory file systems, bind mounts of subPath, attempts to escape, clean removal."""

from __future__ import annotations

import asyncio
import ctypes
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.api import ObjectData, PermissionDenied, PodUid, Unavailable
from kubeletx.kube.types.core import Pod
from kubeletx.linux.mounts import find_mount, mounts_below, read_mounts
from kubeletx.volumes import (
    ContainerMounts,
    FieldContext,
    LinuxMounter,
    PreparedVolumes,
    VolumePreparer,
    ensure_shared,
)
from kubeletx.volumes.disk_usage import measure
from kubeletx.volumes.files.safe_paths import remove_tree
from kubeletx.volumes.mounting import MS_BIND, MS_PRIVATE, MS_REC, mount_tmpfs

UID = PodUid("u1")
MEMORY = {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
PLAIN = {"name": "e", "emptyDir": {}}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A root directory below which nothing stays mounted."""
    yield tmp_path / "root"
    mounter = LinuxMounter()
    for mount in reversed(mounts_below(read_mounts(), tmp_path)):
        mounter.unmount(Path(mount.target))


@pytest.fixture
def preparer(root: Path) -> VolumePreparer:
    fields = FieldContext(node_name="node-1", allocatable={"memory": 64 << 20})
    return VolumePreparer(root_dir=root, blocking=asyncio.to_thread, fields=fields)


def make_pod(volumes: list[dict[str, Any]], mounts: list[dict[str, Any]] | None = None, **spec: Any) -> Pod:
    container = {"name": "c", "volumeMounts": mounts or []}
    meta = {"name": "web", "namespace": "default", "uid": UID}
    return msgspec.convert(
        {"metadata": meta, "spec": {"volumes": volumes, "containers": [container], **spec}}, Pod
    )


async def mounts_of(preparer: VolumePreparer, pod: Pod, prepared: PreparedVolumes) -> ContainerMounts:
    return await preparer.mounts_for(pod, pod.spec.containers[0], prepared, attempt=0)


async def test_memory_is_limited_and_shared_by_all_preparations(preparer):
    pod = make_pod([MEMORY], securityContext={"fsGroup": 4242})
    source = Path((await preparer.prepare(pod)).volumes["m"].source)
    (source / "file").write_bytes(b"x" * 500_000)
    await preparer.prepare(pod)
    assert len(mounts_below(read_mounts(), source)) == 1
    found = source.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o3777, 4242)
    with pytest.raises(OSError, match="No space left"):
        (source / "big").write_bytes(b"x" * 2_000_000)
    assert measure(source).bytes <= 1 << 20
    mount = find_mount(read_mounts(), source)
    assert mount is not None
    assert mount.fs_type == "tmpfs"


async def test_release_leaves_nothing_behind(preparer, root):
    pod = make_pod([MEMORY, PLAIN], [{"name": "m", "mountPath": "/m", "subPath": "a"}])
    prepared = await preparer.prepare(pod)
    await mounts_of(preparer, pod, prepared)
    assert len(mounts_below(read_mounts(), root)) == 2
    await preparer.release(UID)
    await preparer.remove_directory(UID)
    assert mounts_below(read_mounts(), root) == ()
    assert list((root / "pods").iterdir()) == []


async def test_another_process_can_release_what_it_never_prepared(preparer, root):
    pod = make_pod([MEMORY])
    await preparer.prepare(pod)
    other = VolumePreparer(root_dir=root, blocking=asyncio.to_thread, fields=FieldContext(node_name="n"))
    orphans = await other.find_orphans(frozenset())
    assert [(one.uid, len(one.mounts)) for one in orphans] == [(UID, 1)]
    await other.release(UID)
    await other.remove_directory(UID)
    assert await other.find_orphans(frozenset()) == ()


async def test_a_volume_in_use_is_not_removed(preparer):
    pod = make_pod([MEMORY])
    source = Path((await preparer.prepare(pod)).volumes["m"].source)
    fd = os.open(source / "open", os.O_CREAT | os.O_WRONLY)
    try:
        with pytest.raises(Unavailable, match="still in use"):
            await preparer.release(UID)
        with pytest.raises(Unavailable, match="still holds"):
            await preparer.remove_directory(UID)
    finally:
        os.close(fd)
    await preparer.release(UID)


async def test_a_bind_mount_in_a_volume_is_undone_and_never_emptied(preparer, tmp_path):
    host = tmp_path / "host"
    (host / "data").mkdir(parents=True)
    source = Path((await preparer.prepare(make_pod([PLAIN]))).volumes["e"].source)
    (source / "deep" / "host").mkdir(parents=True)
    LinuxMounter().mount(str(host), source / "deep" / "host", flags=MS_BIND)
    await preparer.release(UID)
    assert (host / "data").is_dir()
    assert not source.exists()


def test_a_mount_point_stops_a_removal_before_anything_in_it_is_touched(root, tmp_path):
    host, mounter = tmp_path / "host", LinuxMounter()
    (host / "data").mkdir(parents=True)
    for relative in ("tree/a/b/mount", "tree/mount", "tree"):
        target = root / relative
        target.mkdir(parents=True, exist_ok=True)
        mounter.mount(str(host), target, flags=MS_BIND)
        with pytest.raises(OSError, match="busy"):
            remove_tree(root / "tree")
        assert (host / "data").is_dir()
        mounter.unmount(find_target(host))
        remove_tree(root / "tree")


def find_target(host: Path) -> Path:
    """Where `host` is mounted now: removal may have moved the directory around the mount."""
    wanted = root_of(host)
    ours = [one for one in read_mounts() if one.root == wanted]
    return Path(ours[-1].target)


def root_of(path: Path) -> str:
    """What mountinfo will name as the root of a bind mount of `path`: its place in its own file system."""
    mounts = [one for one in read_mounts() if path.is_relative_to(one.target)]
    holder = max(mounts, key=lambda one: (len(Path(one.target).parts), one.id))
    return str(Path(holder.root) / path.relative_to(holder.target))


@pytest.mark.parametrize(
    "target", ["/etc", "..", "../../../../../../../../etc", "/proc/self/root/etc", "/proc/1/root"]
)
async def test_a_link_made_by_a_container_does_not_open_the_node(preparer, root, target):
    pod = make_pod([PLAIN], [{"name": "e", "mountPath": "/e", "subPath": "link"}])
    prepared = await preparer.prepare(pod)
    (Path(prepared.volumes["e"].source) / "link").symlink_to(target)
    with pytest.raises(PermissionDenied, match="leads out of volume"):
        await mounts_of(preparer, pod, prepared)
    assert mounts_below(read_mounts(), root) == ()


async def test_a_link_inside_the_volume_is_followed(preparer):
    pod = make_pod([PLAIN], [{"name": "e", "mountPath": "/e", "subPath": "link/inner"}])
    prepared = await preparer.prepare(pod)
    volume = Path(prepared.volumes["e"].source)
    (volume / "real" / "inner").mkdir(parents=True)
    (volume / "real" / "inner" / "file").write_text("text")
    (volume / "link").symlink_to("real")
    mount = (await mounts_of(preparer, pod, prepared)).mounts[0]
    assert (Path(mount.source) / "file").read_text() == "text"


async def test_what_was_checked_cannot_be_exchanged_afterwards(preparer, tmp_path):
    pod = make_pod([PLAIN], [{"name": "e", "mountPath": "/e", "subPath": "dir"}])
    prepared = await preparer.prepare(pod)
    volume = Path(prepared.volumes["e"].source)
    mount = (await mounts_of(preparer, pod, prepared)).mounts[0]
    (volume / "dir").rename(volume / "moved")
    (volume / "dir").symlink_to("/etc")
    assert os.listdir(mount.source) == []
    assert Path(mount.source).samefile(volume / "moved")


async def test_a_container_that_swaps_links_all_the_time_never_wins(preparer, root):
    pod = make_pod([PLAIN], [{"name": "e", "mountPath": "/e", "subPath": "a/b"}])
    prepared = await preparer.prepare(pod)
    volume = Path(prepared.volumes["e"].source)
    (volume / "real" / "b").mkdir(parents=True)
    (volume / "evil").symlink_to("/etc")
    (volume / "a").symlink_to("real")
    inside = root_of(volume)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in ("real", "/", "evil", ".."):
                (volume / "fresh").unlink(missing_ok=True)
                (volume / "fresh").symlink_to(target)
                (volume / "fresh").rename(volume / "a")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(200):
            try:
                mount = (await mounts_of(preparer, pod, prepared)).mounts[0]
            except (PermissionDenied, Unavailable):
                continue
            found = find_mount(read_mounts(), Path(mount.source))
            assert found is not None
            assert found.root.startswith(inside)
    finally:
        stop.set()
        thread.join()


async def test_a_single_file_can_be_mounted(preparer):
    items = [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]
    volume = {"name": "d", "downwardAPI": {"items": items}}
    pod = make_pod([volume], [{"name": "d", "mountPath": "/name", "subPath": "name"}])
    prepared = await preparer.prepare(pod)
    mount = (await mounts_of(preparer, pod, prepared)).mounts[0]
    assert Path(mount.source).read_text() == "web"


async def test_a_second_attempt_uses_the_same_mount(preparer, root):
    pod = make_pod([PLAIN], [{"name": "e", "mountPath": "/e", "subPath": "dir"}])
    prepared = await preparer.prepare(pod)
    for _ in range(3):
        await mounts_of(preparer, pod, prepared)
    assert len(mounts_below(read_mounts(), root)) == 1
    volume = Path(prepared.volumes["e"].source)
    (volume / "dir").rmdir()
    (volume / "dir").write_text("now a file")
    mount = (await mounts_of(preparer, pod, prepared)).mounts[0]
    assert Path(mount.source).read_text() == "now a file"
    assert len(mounts_below(read_mounts(), root)) == 1


def test_mounts_below_a_shared_directory_propagate(root):
    mounter, source = LinuxMounter(), root / "shared"
    copy = root.parent / "copy"
    for path in (source / "inner", copy):
        path.mkdir(parents=True)
    mounter.mount(str(root), root, flags=MS_BIND)
    mounter.mount("none", root, flags=MS_PRIVATE | MS_REC)
    for _ in range(2):
        ensure_shared(mounter, source)
    assert len(mounts_below(read_mounts(), source)) == 1
    mounter.mount(str(source), copy, flags=MS_BIND | MS_REC)
    mount_tmpfs(mounter, source / "inner", size_bytes=1 << 20)
    assert find_mount(read_mounts(), copy / "inner") is not None


async def test_secrets_stay_in_memory(root):
    class Cluster:
        async def find_config_map(self, namespace: str, name: str) -> None:
            return None

        async def find_secret(self, namespace: str, name: str) -> ObjectData:
            return ObjectData(binary={"key": b"secret"})

        async def token(self, uid: PodUid, wish: object) -> bytes:
            raise AssertionError("the pod wants no token")

        async def find_volume(self, uid: PodUid, claim: str) -> None:
            raise AssertionError("the pod has no claim")

    preparer = VolumePreparer(root_dir=root, blocking=asyncio.to_thread, fields=FieldContext(node_name="n"))
    pod = make_pod([{"name": "s", "secret": {"secretName": "s"}}], securityContext={"fsGroup": 4242})
    cluster: Any = Cluster()
    source = Path((await preparer.prepare(pod, cluster)).volumes["s"].source)
    mount = find_mount(read_mounts(), source)
    assert mount is not None
    assert mount.fs_type == "tmpfs"
    found = (source / "key").stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (4242, 0o644)
    await preparer.release(UID)
    assert not source.exists()


def test_huge_pages_are_mounted_where_the_kernel_has_them(root):
    size = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
    pod = make_pod([{"name": "h", "emptyDir": {"medium": "HugePages-2Mi"}}])
    container = msgspec.structs.replace(
        pod.spec.containers[0],
        resources=msgspec.structs.replace(
            pod.spec.containers[0].resources,
            limits={"hugepages-2Mi": "4Mi"},
            requests={"hugepages-2Mi": "4Mi"},
        ),
    )
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=(container,)))
    preparer = VolumePreparer(
        root_dir=root, blocking=asyncio.to_thread, fields=FieldContext(node_name="n", allocatable={})
    )
    if not size.is_dir():
        with pytest.raises(Exception, match="no huge pages"):
            asyncio.run(preparer.prepare(pod))
        return
    source = Path(asyncio.run(preparer.prepare(pod)).volumes["h"].source)
    mount = find_mount(read_mounts(), source)
    assert mount is not None
    assert mount.fs_type == "hugetlbfs"


def test_this_kernel_resolves_names_itself():
    """If openat2 were missing, links inside volumes would stop working: say so here."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(437, -100, b".", 0, 0) == -1
    assert os.strerror(ctypes.get_errno()) != os.strerror(38)
