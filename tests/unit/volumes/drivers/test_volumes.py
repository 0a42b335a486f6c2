"""Volumes of volume drivers: journal, order, failures, hangs, restarts of the agent and of the machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import (
    AlreadyExists,
    ClusterVolume,
    InvalidPod,
    KubeletxError,
    ObjectData,
    PodUid,
    TimedOut,
    Unavailable,
    VolumeCapabilities,
)
from kubeletx.testing import FakeVolumeDriver
from kubeletx.volumes import VolumeError, VolumePreparer
from kubeletx.volumes.drivers import DriverEntry
from kubeletx.volumes.drivers.journal import EntryState
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.volumes.volume_doubles import FakeCluster, FakeMounter, make_pod, make_preparer

U1 = PodUid("u1")
DISK = {"flexVolume": {"driver": "example.com/disk", "options": {"size": "1"}}}
CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}


def node(tmp_path: Path, driver: FakeVolumeDriver | None = None, **changes: Any) -> VolumePreparer:
    """A preparer whose one plugin serves all flexVolume drivers, under the name disks."""
    preparer = make_preparer(tmp_path / "root", boot_id="boot-1", **changes)
    if driver is not None:
        preparer.drivers.add(DriverEntry(name="disks", driver=driver, sources=("flexVolume",)))
    return preparer


def fake(tmp_path: Path, **changes: Any) -> FakeVolumeDriver:
    return FakeVolumeDriver(tmp_path / "volumes", **changes)


def pod(*volumes: dict[str, Any], **metadata: Any) -> Any:
    named = [{"name": f"v{index}", **volume} for index, volume in enumerate(volumes)]
    return make_pod({"volumes": named}, **metadata)


def journal(tmp_path: Path) -> dict[str, str]:
    """States of the entries that are on disk, by volume."""
    try:
        text = (tmp_path / "root/pods/u1/volumes.json").read_text()
    except FileNotFoundError:
        return {}
    return {name: one["state"] for name, one in json.loads(text)["entries"].items()}


async def test_a_driver_prepares_its_volumes_beside_the_agents_own(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    preparer = node(tmp_path, driver)
    prepared = await preparer.prepare(pod({"emptyDir": {}}, DISK))
    assert list(prepared.volumes) == ["v0", "v1"]
    volume = prepared.volumes["v1"]
    assert (volume.source, volume.plugin) == (str(tmp_path / "volumes/v1"), "example.com/disk")
    (request,) = driver.prepared.values()
    assert request.options == {"size": "1"}
    assert request.target == str(tmp_path / "root/pods/u1/volumes/example.com~disk/v1")
    assert Path(request.target).is_dir()
    assert journal(tmp_path) == {"v1": "ready"}


async def test_the_journal_is_on_disk_before_the_driver_is_called(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    held = driver.held["prepare v0"] = asyncio.Event()
    preparer = node(tmp_path, driver)
    preparing = asyncio.create_task(preparer.prepare(pod(DISK)))
    await until(lambda: "prepare v0" in driver.calls)
    assert journal(tmp_path) == {"v0": "preparing"}
    held.set()
    await preparing
    held = driver.held["release v0"] = asyncio.Event()
    releasing = asyncio.create_task(preparer.release(U1))
    await until(lambda: "release v0" in driver.calls)
    assert journal(tmp_path) == {"v0": "releasing"}
    held.set()
    await releasing
    assert journal(tmp_path) == {}


async def test_a_pod_without_such_volumes_has_no_journal(tmp_path: Path) -> None:
    preparer = node(tmp_path, fake(tmp_path))
    await preparer.prepare(pod({"emptyDir": {}}))
    assert not (tmp_path / "root/pods/u1/volumes.json").exists()
    await preparer.release(U1)
    assert preparer.journals() == {}


async def test_volumes_are_released_by_their_driver_the_last_one_first(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    preparer = node(tmp_path, driver)
    await preparer.prepare(pod(DISK, {"emptyDir": {}}, DISK))
    driver.calls.clear()
    await preparer.release(U1)
    assert driver.calls == ["release v2", "release v0"]
    assert not (tmp_path / "root/pods/u1/volumes").exists()
    await preparer.remove_directory(U1)


async def test_preparing_again_calls_no_driver(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    preparer, one = node(tmp_path, driver), pod(DISK)
    await preparer.prepare(one)
    await preparer.prepare(one)
    assert driver.calls == ["prepare v0"]


async def test_a_new_agent_finds_prepared_volumes_in_the_journal(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    await node(tmp_path, driver).prepare(pod(DISK))
    after = await node(tmp_path, driver).prepare(pod(DISK))
    assert after.volumes["v0"].source == str(tmp_path / "volumes/v0")
    assert driver.calls == ["prepare v0"]


@pytest.mark.parametrize("lost", ["boot", "files"])
async def test_what_a_reboot_or_an_administrator_removed_is_prepared_again(tmp_path: Path, lost: str) -> None:
    driver = fake(tmp_path)
    await node(tmp_path, driver).prepare(pod(DISK))
    changes = {"boot_id": "boot-2"} if lost == "boot" else {}
    if lost == "files":
        (tmp_path / "volumes/v0").rmdir()
    preparer = make_preparer(tmp_path / "root", **{"boot_id": "boot-1", **changes})
    preparer.drivers.add(DriverEntry(name="disks", driver=driver, sources=("flexVolume",)))
    await preparer.prepare(pod(DISK))
    assert driver.calls == ["prepare v0", "prepare v0"]


async def test_a_volume_that_was_never_ready_is_released_too(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    driver.failures["prepare v0"] = Unavailable("the backend is away")
    preparer = node(tmp_path, driver)
    with pytest.raises(
        Unavailable, match=r'MountVolume.SetUp failed for volume "v0" : the backend is away'
    ) as caught:
        await preparer.prepare(pod(DISK))
    assert isinstance(caught.value, KubeletxError)
    assert journal(tmp_path) == {"v0": "preparing"}
    after_crash = node(tmp_path, driver)
    await after_crash.release(U1)
    assert driver.calls == ["prepare v0", "release v0"]


async def test_a_release_that_fails_keeps_entry_and_directory(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    preparer = node(tmp_path, driver)
    await preparer.prepare(pod(DISK, DISK))
    driver.failures["release v0"] = Unavailable("in use")
    with pytest.raises(Unavailable, match="in use"):
        await preparer.release(U1)
    assert journal(tmp_path) == {"v0": "releasing"}
    with pytest.raises(Unavailable, match="release volumes first"):
        await preparer.remove_directory(U1)
    del driver.failures["release v0"]
    await preparer.release(U1)
    assert driver.calls[-3:] == ["release v1", "release v0", "release v0"]
    assert journal(tmp_path) == {}


async def test_mounts_of_sub_paths_go_before_the_driver_is_called(tmp_path: Path) -> None:
    driver, mounter = fake(tmp_path), FakeMounter()
    preparer = node(tmp_path, driver, mounter=mounter)
    await preparer.prepare(pod(DISK))
    place = tmp_path / "root/pods/u1/volume-subpaths/v0/web/0"
    mounter.mount("x", place)
    mounter.busy.add(str(place))
    with pytest.raises(Unavailable, match="still in use"):
        await preparer.release(U1)
    assert "release v0" not in driver.calls
    mounter.busy.clear()
    await preparer.release(U1)
    assert mounter.table == []
    assert driver.calls[-1] == "release v0"


async def test_a_driver_that_hangs_delays_no_other_volume_and_no_other_pod(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    held = driver.held["prepare v0"] = asyncio.Event()
    preparer = node(tmp_path, driver)
    with pytest.raises(TimedOut, match="volumes v0 have not been prepared within 0 s"):
        await preparer.prepare(pod(DISK, DISK, {"emptyDir": {}}), deadline_seconds=0.1)
    assert journal(tmp_path) == {"v0": "preparing", "v1": "ready"}
    assert (tmp_path / "root/pods/u1/volumes/kubernetes.io~empty-dir/v2").is_dir()
    await preparer.prepare(pod({**DISK, "name": "other"}, uid="u2"))
    held.set()
    await preparer.prepare(pod(DISK, DISK, {"emptyDir": {}}))
    assert driver.calls.count("prepare v0") == 1, "a later call waits for the running one"


async def test_a_release_cancels_a_preparation_and_follows_it(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    driver.held["prepare v0"] = asyncio.Event()
    preparer = node(tmp_path, driver)
    preparing = asyncio.create_task(preparer.prepare(pod(DISK)))
    await until(lambda: "prepare v0" in driver.calls)
    await preparer.release(U1)
    with pytest.raises(Unavailable, match="cancelled"):
        await preparing
    assert driver.calls == ["prepare v0", "release v0"]
    assert journal(tmp_path) == {}


async def test_a_pod_that_comes_back_during_its_release_is_prepared_after_it(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    preparer, one = node(tmp_path, driver), pod(DISK)
    await preparer.prepare(one)
    held = driver.held["release v0"] = asyncio.Event()
    releasing = asyncio.create_task(preparer.driven.release(U1, 60))
    await until(lambda: "release v0" in driver.calls)
    preparing = asyncio.create_task(preparer.prepare(one))
    await let_others_work()
    held.set()
    await releasing
    await preparing
    assert driver.calls == ["prepare v0", "release v0", "prepare v0"]
    assert journal(tmp_path) == {"v0": "ready"}


async def test_a_pod_whose_plugin_is_gone_waits_for_it_at_its_end(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    await node(tmp_path, driver).prepare(pod(DISK))
    bare = node(tmp_path)
    with pytest.raises(
        Unavailable, match=r"\(flexVolume:example.com/disk\), is missing; install its plugin again"
    ):
        await bare.release(U1)
    assert journal(tmp_path) == {"v0": "releasing"}
    await node(tmp_path, driver).release(U1)
    assert journal(tmp_path) == {}


async def test_a_damaged_journal_is_set_aside_and_rebuilt_from_the_directories(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    await node(tmp_path, driver).prepare(pod(DISK, {"emptyDir": {}}))
    path = tmp_path / "root/pods/u1/volumes.json"
    path.write_text("{")
    await node(tmp_path, driver).release(U1)
    assert driver.calls == ["prepare v0", "release v0"]
    assert path.with_name("volumes.json.damaged").exists()
    assert not path.exists()


async def test_a_driver_with_a_name_is_used_before_one_for_the_whole_field(tmp_path: Path) -> None:
    every, special = fake(tmp_path), FakeVolumeDriver(tmp_path / "special")
    preparer = node(tmp_path, every)
    sources = ("flexVolume:example.com/disk", "csi:disk.example.com")
    preparer.drivers.add(DriverEntry(name="special", driver=special, sources=sources))
    inline = {"csi": {"driver": "disk.example.com", "volumeAttributes": {"a": "b"}}}
    await preparer.prepare(pod(DISK, {"flexVolume": {"driver": "example.com/other"}}, inline))
    assert special.calls == ["prepare v0", "prepare v2"]
    assert every.calls == ["prepare v1"]
    assert special.prepared[str(tmp_path / "root/pods/u1/volumes/kubernetes.io~csi/v2")].options == {"a": "b"}
    with pytest.raises(AlreadyExists, match="served by disks"):
        preparer.drivers.add(DriverEntry(name="third", driver=every, sources=("flexVolume",)))


async def test_a_volume_without_a_driver_of_its_name_is_refused(tmp_path: Path) -> None:
    preparer = node(tmp_path)
    entry = DriverEntry(name="d", driver=fake(tmp_path), sources=("flexVolume:example.com/disk",))
    preparer.drivers.add(entry)
    with pytest.raises(VolumeError, match=r"no volume driver serves driver 'example\.com/other'"):
        await preparer.prepare(pod({"flexVolume": {"driver": "example.com/other"}}))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"driver": "a/b", "options": {"kubernetes.io/fsType": "x"}}, "is reserved"),
        ({"driver": "a/b", "options": {"sub.k8s.io/x": "x"}}, "is reserved"),
        ({"driver": "a/b", "options": {"Sub.K8s.io/x": "x"}}, "is reserved"),
        ({"driver": "a/b", "options": {"kubernetes.io": "x"}}, "is reserved"),
        ({"driver": "a/b", "options": {"image": "x" * (1 << 20)}}, "more than 131072 bytes"),
        ({"driver": ".."}, "cannot be part of a path"),
        ({"driver": "a/" + "b" * 254}, "is longer than 255 bytes"),
        ({"driver": "a/b", "options": {"a": "b\0"}}, "is not a string"),
        (
            {"driver": "a/b", "options": {"k8s.io/\n" + "x" * 1000: ""}},
            r"is reserved; .*options\['k8s\.io/\\nx{10,60}\.\.\.\]",
        ),
    ],
)
async def test_options_of_a_static_pod_are_checked_as_by_the_api_server(
    tmp_path: Path, source: dict[str, Any], words: str
) -> None:
    driver = fake(tmp_path)
    with pytest.raises(InvalidPod, match=words):
        await node(tmp_path, driver).prepare(pod({"flexVolume": source}))
    assert driver.calls == []


async def test_attributes_of_a_csi_volume_may_be_in_a_namespace_of_kubernetes(tmp_path: Path) -> None:
    """The external provisioner of every CSI driver writes such an attribute."""
    preparer, driver = node(tmp_path), fake(tmp_path)
    preparer.drivers.add(DriverEntry(name="csi", driver=driver, sources=("csi",)))
    attributes = {"storage.kubernetes.io/csiProvisionerIdentity": "1234-disk.example.com"}
    claims = FakeCluster()
    claims.claims["data"] = ClusterVolume(
        name="pv-1",
        kind="csi",
        claim="data",
        source={"driver": "disk.example.com", "volumeHandle": "h", "volumeAttributes": attributes},
    )
    await preparer.prepare(pod(CLAIM), claims)
    (request,) = driver.prepared.values()
    assert request.options == {"volumeHandle": "h", **attributes}


class TestPersistentVolumes:
    """Volumes that claims are bound to, with secrets of the cluster."""

    def cluster(self, **changes: Any) -> FakeCluster:
        source = {
            "driver": "example.com/disk",
            "options": {"image": "a"},
            "fsType": "xfs",
            "secretRef": {"name": "key", "namespace": "storage"},
        }
        found = FakeCluster()
        found.claims["data"] = ClusterVolume(
            name="pv-1",
            uid="pv-uid",
            kind="flexVolume",
            claim="data",
            source={**source, **changes},
            access_modes=("ReadWriteOnce",),
            capacity_bytes=1 << 30,
        )
        found.volume_secrets["storage", "key"] = ObjectData(binary={"k": b"s3cret"}, type="example.com/disk")
        return found

    async def test_everything_about_the_persistent_volume_is_in_the_request(self, tmp_path: Path) -> None:
        driver = fake(tmp_path)
        await node(tmp_path, driver).prepare(pod(CLAIM), self.cluster(readOnly=True))
        (request,) = driver.prepared.values()
        assert (request.persistent_volume, request.claim, request.volume_name) == ("pv-1", "data", "pv-1")
        assert request.persistent_volume_uid == "pv-uid"
        assert (request.fs_type, request.read_only, request.access_modes) == ("xfs", True, ("ReadWriteOnce",))
        assert (request.options, request.capacity_bytes) == ({"image": "a"}, 1 << 30)
        assert request.target.endswith("/pods/u1/volumes/example.com~disk/pv-1")

    async def test_the_secret_reaches_the_driver_and_nothing_else(self, tmp_path: Path) -> None:
        driver = fake(tmp_path)
        preparer = node(tmp_path, driver)
        await preparer.prepare(pod(CLAIM), self.cluster())
        assert driver.secrets == {"pv-1": {"k": b"s3cret"}}
        stored = (tmp_path / "root/pods/u1/volumes.json").read_text()
        assert "s3cret" not in stored
        assert "s3cret" not in repr([*driver.prepared.values(), preparer.journals()])
        await preparer.release(U1)

    async def test_a_prepared_volume_needs_no_secret_after_a_restart(self, tmp_path: Path) -> None:
        driver, cluster = fake(tmp_path), self.cluster()
        await node(tmp_path, driver).prepare(pod(CLAIM), cluster)
        cluster.volume_secrets.clear()
        await node(tmp_path, driver).prepare(pod(CLAIM), cluster)
        assert driver.calls == ["prepare pv-1"]

    @pytest.mark.parametrize(
        ("secret", "words"),
        [
            (None, r'secret "storage/key" not found; create it'),
            (
                ObjectData(binary={}, type="Opaque"),
                "has type 'Opaque', not 'example.com/disk'; create it again with that type",
            ),
        ],
    )
    async def test_a_secret_that_cannot_be_used_says_why(
        self, tmp_path: Path, secret: ObjectData | None, words: str
    ) -> None:
        driver, cluster = fake(tmp_path), self.cluster()
        del cluster.volume_secrets["storage", "key"]
        if secret is not None:
            cluster.volume_secrets["storage", "key"] = secret
        with pytest.raises(Unavailable, match=words):
            await node(tmp_path, driver).prepare(pod(CLAIM), cluster)
        assert driver.calls == []

    async def test_an_inline_secret_is_of_the_pods_namespace_and_needs_a_cluster(
        self, tmp_path: Path
    ) -> None:
        driver, cluster = fake(tmp_path), self.cluster()
        inline = {
            "flexVolume": {"driver": "example.com/disk", "secretRef": {"name": "key", "namespace": "x"}}
        }
        cluster.volume_secrets["default", "key"] = ObjectData(binary={"k": b"1"}, type="example.com/disk")
        await node(tmp_path, driver).prepare(pod(inline), cluster)
        assert driver.secrets == {"v0": {"k": b"1"}}
        with pytest.raises(VolumeError, match="this pod's source gives no cluster objects"):
            await node(tmp_path, driver).prepare(pod(inline, uid="u2"))

    async def test_a_claim_without_a_driver_names_the_kind(self, tmp_path: Path) -> None:
        cluster = self.cluster(driver="example.com/none")
        with pytest.raises(VolumeError, match=r"pv-1 \(flexVolume, driver example.com/none\)"):
            await make_preparer(tmp_path / "root").prepare(pod(CLAIM), cluster)

    async def test_a_grown_volume_is_not_prepared_again(self, tmp_path: Path) -> None:
        driver, cluster = fake(tmp_path), self.cluster()
        preparer = node(tmp_path, driver)
        await preparer.prepare(pod(CLAIM), cluster)
        grown = self.cluster()
        grown.claims["data"] = ClusterVolume(
            **{
                name: getattr(grown.claims["data"], name)
                for name in ClusterVolume.__struct_fields__
                if name != "capacity_bytes"
            },
            capacity_bytes=2 << 30,
        )
        await preparer.prepare(pod(CLAIM), grown)
        assert driver.calls == ["prepare pv-1"]


async def test_calls_for_one_persistent_volume_follow_each_other(tmp_path: Path) -> None:
    driver, cluster = fake(tmp_path), TestPersistentVolumes().cluster()
    held = driver.held["prepare pv-1"] = asyncio.Event()
    preparer = node(tmp_path, driver)
    pods = [pod(CLAIM, CLAIM), pod(CLAIM, uid="u2")]
    preparing = [asyncio.create_task(preparer.prepare(one, cluster)) for one in pods]
    await until(lambda: driver.calls == ["prepare pv-1"])
    await let_others_work()
    assert driver.calls == ["prepare pv-1"]
    held.set()
    await asyncio.gather(*preparing)
    assert driver.calls == ["prepare pv-1"] * 3


async def test_the_pods_group_gets_the_files_when_the_volume_is_mounted(tmp_path: Path) -> None:
    """As in a kubelet: also after a reboot, since a volume in memory is a new one then."""
    driver = fake(tmp_path, capabilities=VolumeCapabilities(fs_group=True))
    (tmp_path / "volumes/v0").mkdir(parents=True)
    file = tmp_path / "volumes/v0/file"
    file.write_text("")
    file.chmod(0o600)
    one = with_group(file.stat().st_gid)
    await node(tmp_path, driver).prepare(one)
    assert file.stat().st_mode & 0o777 == 0o660
    file.chmod(0o600)
    await node(tmp_path, driver).prepare(one)
    other = with_group(file.stat().st_gid, {**DISK["flexVolume"], "options": {"size": "2"}})
    await node(tmp_path, driver).prepare(other)
    assert driver.calls == ["prepare v0", "prepare v0"]
    assert file.stat().st_mode & 0o777 == 0o600, "containers may have changed it since"
    rebooted = make_preparer(tmp_path / "root", boot_id="boot-2")
    rebooted.drivers.add(DriverEntry(name="disks", driver=driver, sources=("flexVolume",)))
    await rebooted.prepare(other)
    assert file.stat().st_mode & 0o777 == 0o660


@pytest.mark.parametrize(("policy", "mode"), [("OnRootMismatch", 0o600), ("Always", 0o660), (None, 0o660)])
async def test_the_policy_of_the_group_says_whether_files_are_looked_at(
    tmp_path: Path, policy: str | None, mode: int
) -> None:
    driver = fake(tmp_path, capabilities=VolumeCapabilities(fs_group=True))
    volume = tmp_path / "volumes/v0"
    volume.mkdir(parents=True)
    volume.chmod(0o2770)
    (volume / "file").write_text("")
    (volume / "file").chmod(0o600)
    await node(tmp_path, driver).prepare(with_group(volume.stat().st_gid, policy=policy))
    assert (volume / "file").stat().st_mode & 0o777 == mode


def with_group(group: int, source: dict[str, Any] | None = None, policy: str | None = None) -> Any:
    """A pod with one volume and an fsGroup."""
    context = {"fsGroup": group, **({"fsGroupChangePolicy": policy} if policy else {})}
    volume = {"name": "v0", "flexVolume": source or DISK["flexVolume"]}
    return make_pod({"volumes": [volume], "securityContext": context})


async def test_a_driver_that_prepares_nothing_is_found_out(tmp_path: Path) -> None:
    class Liar(FakeVolumeDriver):
        async def prepare(self, request: Any) -> Any:
            ready = await super().prepare(request)
            Path(ready.path).rmdir()
            return ready

    with pytest.raises(
        Unavailable, match=r"volume driver disks has prepared the volume, but .* cannot be read"
    ):
        await node(tmp_path, Liar(tmp_path / "volumes")).prepare(pod(DISK))


async def test_operations_are_counted_for_each_volume(tmp_path: Path) -> None:
    preparer = node(tmp_path, fake(tmp_path))
    await preparer.prepare(pod(DISK))
    await preparer.release(U1)
    counts = {labels: sum(one.counts) for labels, one in preparer.operations.durations.items()}
    assert counts == {
        ("example.com/disk", "volume_mount", "success"): 1,
        ("example.com/disk", "volume_unmount", "success"): 1,
        ("", "volume_unmount", "success"): 1,
    }


async def test_closing_ends_calls_and_leaves_the_volumes(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    driver.held["prepare v0"] = asyncio.Event()
    preparer = node(tmp_path, driver)
    preparing = asyncio.create_task(preparer.prepare(pod(DISK)))
    await until(lambda: "prepare v0" in driver.calls)
    await preparer.close()
    with pytest.raises(Unavailable):
        await preparing
    assert journal(tmp_path) == {"v0": EntryState.PREPARING.value}
