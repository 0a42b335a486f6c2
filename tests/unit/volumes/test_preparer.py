from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import InvalidPod, ObjectData, PodUid, SourceKind, TimedOut, Unavailable
from kubeletx.volumes import PreparedVolume, VolumeError
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.volumes.volume_doubles import FakeCluster, FakeMounter, inline, make_pod, make_preparer

U1 = PodUid("u1")


def mode(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


async def test_a_plain_empty_dir_is_a_directory_for_everyone(tmp_path):
    preparer = make_preparer(tmp_path)
    prepared = await preparer.prepare(make_pod({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b"}]}))
    path = tmp_path / "pods/u1/volumes/kubernetes.io~empty-dir"
    assert prepared.volumes["a"] == PreparedVolume(
        name="a", source=str(path / "a"), plugin="kubernetes.io/empty-dir"
    )
    assert [mode(path / name) for name in "ab"] == [0o777, 0o777]
    assert mode(path) == mode(tmp_path / "pods") == 0o750


async def test_preparing_again_leaves_an_empty_dir_as_its_users_have_it(tmp_path):
    preparer, pod = make_preparer(tmp_path), make_pod({"volumes": [{"name": "a", "emptyDir": {}}]})
    source = Path((await preparer.prepare(pod)).volumes["a"].source)
    (source / "file").write_text("kept")
    source.chmod(0o700)
    await preparer.prepare(pod)
    assert (source / "file").read_text() == "kept"
    assert mode(source) == 0o700


async def test_the_group_of_the_pod_owns_an_empty_dir(tmp_path):
    spec = {"securityContext": {"fsGroup": os.getgid()}, "volumes": [{"name": "a", "emptyDir": {}}]}
    prepared = await make_preparer(tmp_path).prepare(make_pod(spec))
    assert mode(prepared.volumes["a"].source) == 0o2777


@pytest.mark.parametrize(
    ("limit", "memory", "expected"),
    [
        (None, None, 8 << 30),
        ("64Mi", None, 64 << 20),
        ("64Mi", "32Mi", 32 << 20),
        ("64Mi", "128Mi", 64 << 20),
        ("16Gi", None, 8 << 30),
        ("0", None, 8 << 30),
    ],
)
async def test_an_empty_dir_in_memory_has_the_least_of_all_limits(tmp_path, limit, memory, expected):
    mounter = FakeMounter()
    source = {"medium": "Memory"} | ({"sizeLimit": limit} if limit else {})
    resources = {"limits": {"memory": memory}} if memory else {}
    spec = {
        "containers": [{"name": "c", "resources": resources}],
        "volumes": [{"name": "m", "emptyDir": source}],
    }
    await make_preparer(tmp_path, mounter=mounter).prepare(make_pod(spec))
    assert mounter.calls == [f"mount tmpfs m mode=1777,size={expected},noswap"]


async def test_one_container_without_a_limit_means_that_the_pod_has_none(tmp_path):
    mounter = FakeMounter()
    spec = {
        "containers": [
            {"name": "c", "resources": {"limits": {"memory": "1Mi"}}},
            {"name": "d"},
        ],
        "volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}],
    }
    await make_preparer(tmp_path, mounter=mounter).prepare(make_pod(spec))
    assert f"size={8 << 30}" in mounter.calls[0]


async def test_memory_for_a_group_belongs_to_it_and_hands_it_on(tmp_path):
    mounter = FakeMounter()
    group = os.getgid()
    spec = {
        "securityContext": {"fsGroup": group},
        "volumes": [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
    }
    await make_preparer(tmp_path, mounter=mounter).prepare(make_pod(spec))
    assert mounter.calls == [f"mount tmpfs m mode=3777,size=1048576,gid={group},noswap"]


async def test_an_old_kernel_gets_memory_without_noswap(tmp_path):
    mounter = FakeMounter(refuses_noswap=True)
    spec = {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]}
    preparer = make_preparer(tmp_path, mounter=mounter)
    await preparer.prepare(make_pod(spec))
    await preparer.prepare(make_pod(spec))
    assert mounter.calls == ["mount tmpfs m mode=1777,size=1048576"]


@pytest.mark.parametrize(
    ("medium", "limits", "message"),
    [
        ("Disk", {}, "unknown storage medium 'Disk'"),
        ("HugePages", {}, "ask for 0 matching sizes"),
        ("HugePages-3Mi", {"hugepages-3Mi": "6Mi"}, "kernel offers no huge pages of 3145728 bytes"),
        ("HugePages-x", {}, "names no page size"),
    ],
)
async def test_a_medium_that_cannot_be_had_is_refused_in_words(tmp_path, medium, limits, message):
    spec = {
        "containers": [{"name": "c", "resources": {"limits": limits}}],
        "volumes": [{"name": "h", "emptyDir": {"medium": medium}}],
    }
    with pytest.raises(VolumeError, match=message) as caught:
        await make_preparer(tmp_path).prepare(make_pod(spec))
    assert caught.value.reason == "FailedMount"
    assert caught.value.field == "spec.volumes[0].emptyDir.medium"


async def test_a_host_path_is_given_as_it_is(tmp_path):
    spec = {"volumes": [{"name": "h", "hostPath": {"path": "/does/not/exist"}}]}
    prepared = await make_preparer(tmp_path).prepare(make_pod(spec))
    assert prepared.volumes["h"] == PreparedVolume(
        name="h", source="/does/not/exist", managed=False, plugin="kubernetes.io/host-path"
    )


async def test_host_paths_are_made_where_their_type_says_so(tmp_path):
    root, host = tmp_path / "root", tmp_path / "host"
    host.mkdir()
    volumes = [
        {"name": "d", "hostPath": {"path": str(host / "a" / "b"), "type": "DirectoryOrCreate"}},
        {"name": "f", "hostPath": {"path": str(host / "file"), "type": "FileOrCreate"}},
    ]
    old = os.umask(0o077)
    try:
        await make_preparer(root).prepare(make_pod({"volumes": volumes}))
    finally:
        os.umask(old)
    assert mode(host / "a" / "b") == 0o755
    assert mode(host / "file") == 0o644


@pytest.mark.parametrize(
    ("name", "wanted", "words"),
    [
        ("file", "Directory", "is not a directory"),
        ("file", "DirectoryOrCreate", "is not a directory"),
        ("dir", "File", "is not a file"),
        ("dir", "FileOrCreate", "is not a file"),
        ("none", "File", "is not a file"),
        ("file", "Socket", "is not a socket"),
        ("file", "CharDevice", "is not a character device"),
        ("file", "BlockDevice", "is not a block device"),
    ],
)
async def test_a_host_path_of_another_type_waits_until_it_is_right(tmp_path, name, wanted, words):
    (tmp_path / "file").write_text("")
    (tmp_path / "dir").mkdir()
    spec = {"volumes": [{"name": "h", "hostPath": {"path": str(tmp_path / name), "type": wanted}}]}
    with pytest.raises(Unavailable, match=f"hostPath type check failed.*{words}") as caught:
        await make_preparer(tmp_path / "root").prepare(make_pod(spec))
    assert caught.value.reason == "FailedMount"


async def test_a_character_device_passes_its_check(tmp_path):
    spec = {"volumes": [{"name": "n", "hostPath": {"path": "/dev/null", "type": "CharDevice"}}]}
    prepared = await make_preparer(tmp_path).prepare(make_pod(spec))
    assert prepared.volumes["n"].kind is SourceKind.DIRECTORY


@pytest.mark.parametrize("path", ["relative", "/a/../etc"])
async def test_a_host_path_that_is_not_plain_is_refused(tmp_path, path):
    with pytest.raises(VolumeError, match="absolute path"):
        await make_preparer(tmp_path).prepare(
            make_pod({"volumes": [{"name": "h", "hostPath": {"path": path}}]})
        )


async def test_downward_api_files_follow_changed_labels(tmp_path):
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    items += [{"path": "dir/name", "mode": 0o400, "fieldRef": {"fieldPath": "metadata.name"}}]
    spec = {"volumes": [{"name": "d", "downwardAPI": {"items": items, "defaultMode": 0o640}}]}
    preparer = make_preparer(tmp_path)
    prepared = await preparer.prepare(make_pod(spec, labels={"a": "1"}))
    source = Path(prepared.volumes["d"].source)
    assert prepared.volumes["d"].read_only
    assert (source / "labels").read_text() == 'a="1"'
    assert (mode(source / "labels"), mode(source / "dir" / "name")) == (0o640, 0o400)
    await preparer.prepare(make_pod(spec, labels={"a": "2"}))
    assert (source / "labels").read_text() == 'a="2"'


async def test_downward_api_in_a_volume_fails_as_a_mount(tmp_path):
    items = [{"path": "x", "resourceFieldRef": {"containerName": "ghost", "resource": "limits.cpu"}}]
    with pytest.raises(InvalidPod, match="container 'ghost' not found") as caught:
        await make_preparer(tmp_path).prepare(
            make_pod({"volumes": [{"name": "d", "downwardAPI": {"items": items}}]})
        )
    assert caught.value.reason == "FailedMount"


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": {"name": "settings"}},
        {"secret": {"secretName": "settings"}},
        {"projected": {"sources": [{"configMap": {"name": "settings"}}]}},
        {"projected": {"sources": [{"secret": {"name": "settings"}}]}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    ],
)
async def test_cluster_objects_of_a_static_pod_are_refused_in_words(tmp_path, volume):
    with pytest.raises(VolumeError, match=r"cannot be read|can be requested") as caught:
        await make_preparer(tmp_path).prepare(make_pod({"volumes": [{"name": "v", **volume}]}))
    assert caught.value.reason == "FailedMount"


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": {"name": "settings", "optional": True}},
        {"secret": {"secretName": "settings", "optional": True}},
        {"projected": {"sources": [{"configMap": {"name": "settings", "optional": True}}]}},
        {"projected": {"sources": [{"clusterTrustBundle": {"path": "ca", "optional": True}}]}},
    ],
)
async def test_optional_cluster_objects_of_a_static_pod_are_an_empty_directory(tmp_path, volume):
    prepared = await make_preparer(tmp_path).prepare(make_pod({"volumes": [{"name": "v", **volume}]}))
    assert [name for name in os.listdir(prepared.volumes["v"].source) if not name.startswith("..")] == []


async def test_config_maps_and_secrets_become_files(tmp_path):
    cluster, mounter = FakeCluster(), FakeMounter()
    cluster.config_maps["settings"] = ObjectData(text={"a": "1"}, binary={"b": b"\xff"})
    cluster.secrets["key"] = ObjectData(binary={"k": b"secret"})
    volumes = [
        {"name": "c", "configMap": {"name": "settings"}},
        {
            "name": "s",
            "secret": {"secretName": "key", "items": [{"key": "k", "path": "deep/k", "mode": 0o400}]},
        },
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"configMap": {"name": "settings", "items": [{"key": "a", "path": "x"}]}},
                    {"secret": {"name": "key"}},
                    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]
            },
        },
    ]
    prepared = await make_preparer(tmp_path, mounter=mounter).prepare(make_pod({"volumes": volumes}), cluster)
    source = {name: Path(one.source) for name, one in prepared.volumes.items()}
    assert ((source["c"] / "a").read_text(), (source["c"] / "b").read_bytes()) == ("1", b"\xff")
    assert (source["s"] / "deep/k").read_bytes() == b"secret"
    assert mode(source["s"] / "deep/k") == 0o400
    assert [(source["p"] / name).read_text() for name in ("x", "k", "n")] == ["1", "secret", "web"]
    assert [call.split()[2] for call in mounter.calls] == ["s", "p"]  # only these are in memory


async def test_a_missing_object_or_key_is_named(tmp_path):
    cluster = FakeCluster()
    preparer = make_preparer(tmp_path)
    pod = make_pod(
        {"volumes": [{"name": "c", "configMap": {"name": "m", "items": [{"key": "k", "path": "k"}]}}]}
    )
    with pytest.raises(VolumeError, match='configmap "m" not found'):
        await preparer.prepare(pod, cluster)
    cluster.config_maps["m"] = ObjectData(text={"other": ""})
    with pytest.raises(VolumeError, match="has no key 'k'"):
        await preparer.prepare(pod, cluster)


async def test_a_key_with_a_path_that_leaves_the_volume_is_refused(tmp_path):
    items = [{"path": "../x", "fieldRef": {"fieldPath": "metadata.name"}}]
    with pytest.raises(VolumeError, match=r"contains '\.\.'"):
        await make_preparer(tmp_path).prepare(
            make_pod({"volumes": [{"name": "d", "downwardAPI": {"items": items}}]})
        )


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        ({"quobyte": {"registry": "s", "volume": "x"}}, "serves this type of volume"),
        ({"flexVolume": {"driver": "a/b"}}, "serves driver 'a/b'"),
    ],
)
async def test_a_kind_without_a_driver_is_refused_in_words(tmp_path, volume, words):
    pod = make_pod({"volumes": [{"name": "n", **volume}]})
    with pytest.raises(VolumeError, match=rf"{words}.*spec\.volumes\[0\]\.{next(iter(volume))}"):
        await make_preparer(tmp_path).prepare(pod)


async def test_an_image_volume_is_left_to_the_runtime(tmp_path):
    pod = make_pod({"volumes": [{"name": "i", "image": {"reference": "registry/data:1"}}]})
    prepared = await make_preparer(tmp_path).prepare(pod)
    assert prepared.volumes["i"] == PreparedVolume(
        name="i", read_only=True, managed=False, image="registry/data:1", plugin="kubernetes.io/image"
    )


@pytest.mark.parametrize("name", ["..", "a/b", ""])
async def test_a_volume_name_never_leads_elsewhere(tmp_path, name):
    with pytest.raises(InvalidPod, match="cannot be part of a path"):
        await make_preparer(tmp_path).prepare(make_pod({"volumes": [{"name": name, "emptyDir": {}}]}))


async def test_release_unmounts_inner_mounts_first_and_removes_everything(tmp_path):
    mounter = FakeMounter()
    preparer = make_preparer(tmp_path, mounter=mounter)
    spec = {"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}, {"name": "a", "emptyDir": {}}]}
    prepared = await preparer.prepare(make_pod(spec))
    mounter.mount("nfs", Path(prepared.volumes["m"].source) / "inner")
    mounter.mount("other", tmp_path / "pods/u10/volumes/x")
    mounter.calls.clear()
    await preparer.release(U1)
    assert mounter.calls == ["unmount inner", "unmount m"]
    assert os.listdir(tmp_path / "pods/u1") == []
    await preparer.release(U1)
    await preparer.remove_directory(U1)
    assert not (tmp_path / "pods/u1").exists()
    await preparer.remove_directory(U1)


async def test_what_is_still_in_use_stays_whole(tmp_path):
    mounter = FakeMounter()
    preparer = make_preparer(tmp_path, mounter=mounter)
    prepared = await preparer.prepare(
        make_pod({"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]})
    )
    source = prepared.volumes["m"].source
    Path(source, "file").write_text("kept")
    mounter.busy.add(source)
    for call in (preparer.release, preparer.remove_directory):
        with pytest.raises(Unavailable, match="still"):
            await call(U1)
    assert Path(source, "file").exists()
    mounter.busy.clear()
    await preparer.release(U1)


async def test_release_never_touches_a_host_path(tmp_path):
    host = tmp_path / "host"
    (host / "data").mkdir(parents=True)
    preparer = make_preparer(tmp_path / "root")
    prepared = await preparer.prepare(make_pod({"volumes": [{"name": "h", "hostPath": {"path": str(host)}}]}))
    volumes = tmp_path / "root/pods/u1/volumes"
    (volumes / "link").symlink_to(host)
    await preparer.release(U1)
    assert prepared.volumes["h"].source == str(host)
    assert (host / "data").is_dir()
    assert not volumes.exists()


async def test_a_pod_without_volumes_costs_no_file_work(tmp_path):
    prepared = await make_preparer(tmp_path / "root").prepare(make_pod({}))
    assert prepared.volumes == {}
    assert not (tmp_path / "root").exists()


async def test_orphans_are_directories_that_no_one_knows(tmp_path):
    mounter = FakeMounter()
    preparer = make_preparer(tmp_path, mounter=mounter)
    for uid in ("u1", "u2", "u3"):
        source = {"medium": "Memory"} if uid == "u2" else {}
        await preparer.prepare(make_pod({"volumes": [{"name": "m", "emptyDir": source}]}, uid=uid))
    (tmp_path / "pods" / "file").write_text("")
    orphans = await preparer.find_orphans(frozenset({U1}))
    assert [(one.uid, len(one.mounts)) for one in orphans] == [("u2", 1), ("u3", 0)]
    assert await make_preparer(tmp_path / "new").find_orphans(frozenset()) == ()


class SlowMounter(FakeMounter):
    """Each mount first calls `before`, which may block or raise."""

    def __init__(self, before: Callable[[], object]) -> None:
        super().__init__()
        self.before = before

    def mount(self, source: str, target: Path, **options: Any) -> None:
        self.before()
        super().mount(source, target, **options)


MEMORY = {"name": "n", "emptyDir": {"medium": "Memory"}}


async def test_a_hanging_file_system_holds_up_its_own_pod_only(tmp_path):
    release = threading.Event()
    mounter = SlowMounter(lambda: release.wait(30))
    preparer = make_preparer(tmp_path, blocking=asyncio.to_thread, mounter=mounter)
    stuck = make_pod({"volumes": [MEMORY]})
    try:
        with pytest.raises(TimedOut, match="took longer"):
            await preparer.prepare(stuck, deadline_seconds=0.05)
        with pytest.raises(Unavailable, match="has not returned"):
            await preparer.prepare(stuck)
        await preparer.prepare(make_pod({"volumes": [{"name": "a", "emptyDir": {}}]}, uid="u2"))
    finally:
        release.set()
    async with asyncio.timeout(60):
        while True:
            try:
                prepared = await preparer.prepare(stuck)
                break
            except Unavailable:
                await let_others_work()
    assert prepared.volumes["n"].source.endswith("/n")


async def test_an_error_of_the_file_system_names_the_volume(tmp_path):
    def fail() -> None:
        raise OSError(28, "No space left on device", "/x")

    preparer = make_preparer(tmp_path, blocking=inline, mounter=SlowMounter(fail))
    with pytest.raises(
        Unavailable,
        match=r'^MountVolume.SetUp failed for volume "n" : emptyDir: No space left on device \(/x\)$',
    ) as caught:
        await preparer.prepare(make_pod({"volumes": [MEMORY]}))
    assert caught.value.reason == "FailedMount"


async def test_a_time_out_of_a_file_server_is_its_error_and_not_the_end_of_our_patience(tmp_path):
    class SlowServer(FakeMounter):
        def mount(self, *_: object, **__: object) -> None:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), "/x")

    preparer = make_preparer(tmp_path, blocking=asyncio.to_thread, mounter=SlowServer())
    mounts = [{"name": "e", "mountPath": "/e", "mountPropagation": "HostToContainer"}]
    containers = [{"name": "c", "volumeMounts": mounts}]
    pod = make_pod({"volumes": [{"name": "e", "emptyDir": {}}], "containers": containers})
    prepared = await preparer.prepare(pod)
    with pytest.raises(Unavailable, match="volumes: Connection timed out"):
        await preparer.mounts_for(pod, pod.spec.containers[0], prepared, attempt=0)


async def test_work_on_one_pods_volumes_waits_for_its_turn(tmp_path):
    going, most = 0, 0
    lock = threading.Lock()

    def slow() -> None:
        nonlocal going, most
        with lock:
            going += 1
            most = max(most, going)
        threading.Event().wait(0.01)
        with lock:
            going -= 1

    preparer = make_preparer(tmp_path, blocking=asyncio.to_thread, mounter=SlowMounter(slow))
    pod = make_pod({"volumes": [{**MEMORY, "name": name} for name in "abc"]})
    await asyncio.gather(*(preparer.prepare(pod) for _ in range(5)))
    assert most == 1


async def test_a_release_follows_a_preparation_that_was_given_up(tmp_path):
    begun, goes_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        goes_on.wait(60)
        (tmp_path / "pods/u1/volumes/late").mkdir()

    preparer = make_preparer(tmp_path, blocking=asyncio.to_thread, mounter=SlowMounter(slow))
    pod = make_pod({"volumes": [MEMORY]})
    prepare = asyncio.create_task(preparer.prepare(pod))
    await until(begun.is_set)
    prepare.cancel()
    release = asyncio.create_task(preparer.release(pod.uid))
    await let_others_work()
    goes_on.set()
    await release
    assert not (tmp_path / "pods" / pod.uid / "volumes").exists()
