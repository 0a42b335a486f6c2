"""Journals of volumes that are damaged, missing, too new, or cannot be written."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.api import ClusterVolume, PodUid, Unavailable
from kubeletx.testing import FakeVolumeDriver, volume_request
from kubeletx.volumes import VolumePreparer
from kubeletx.volumes.drivers import DriverEntry
from kubeletx.volumes.drivers import journal as journals
from tests.unit.volumes.volume_doubles import FakeCluster, make_pod, make_preparer

U1 = PodUid("u1")
DISK = {"flexVolume": {"driver": "example.com/disk", "options": {"size": "1"}}}


def node(tmp_path: Path, driver: FakeVolumeDriver | None = None, **changes: Any) -> VolumePreparer:
    """A preparer; `driver` serves all flexVolume drivers."""
    preparer = make_preparer(tmp_path / "root", boot_id="boot-1", **changes)
    if driver is not None:
        preparer.drivers.add(DriverEntry(name="disks", driver=driver, sources=("flexVolume",)))
    return preparer


def fake(tmp_path: Path) -> FakeVolumeDriver:
    return FakeVolumeDriver(tmp_path / "volumes")


def pod(*volumes: dict[str, Any], **metadata: Any) -> Any:
    return make_pod({"volumes": [{"name": f"v{n}", **one} for n, one in enumerate(volumes)]}, **metadata)


def path_of(tmp_path: Path, uid: str = "u1") -> Path:
    return tmp_path / "root/pods" / uid / "volumes.json"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "\0\0\0", '{"entries": {"v0": {}}}', '{"version": "1"}', "\udcff"]
)
async def test_a_damaged_journal_is_set_aside_and_other_pods_are_not_affected(
    tmp_path: Path, content: str
) -> None:
    driver = fake(tmp_path)
    before = node(tmp_path, driver)
    await before.prepare(pod(DISK))
    await before.prepare(pod(DISK, uid="u2"))
    path_of(tmp_path).write_bytes(content.encode("utf-8", "surrogateescape"))
    after = node(tmp_path, driver)
    await after.prepare(pod(DISK, uid="u2"))
    await after.release(U1)
    assert driver.calls == ["prepare v0", "prepare v0", "release v0"]
    assert path_of(tmp_path).with_name("volumes.json.damaged").exists()


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
async def test_a_journal_that_is_not_a_file_is_set_aside(tmp_path: Path, kind: str) -> None:
    driver = fake(tmp_path)
    await node(tmp_path, driver).prepare(pod(DISK))
    path = path_of(tmp_path)
    path.unlink()
    make: dict[str, Callable[[], None]] = {
        "directory": path.mkdir,
        "link": lambda: path.symlink_to("/etc/passwd"),
        "fifo": lambda: os.mkfifo(path),
    }
    make[kind]()
    await node(tmp_path, driver).release(U1)
    assert driver.calls == ["prepare v0", "release v0"]


async def test_a_journal_that_cannot_be_read_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files are not a reason to lose the options of a volume."""
    driver = fake(tmp_path)
    await node(tmp_path, driver).prepare(pod(DISK))
    after = node(tmp_path, driver)

    def fails(*_: Any) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("kubeletx.linux.json_files.read_regular", fails)
        with pytest.raises(Unavailable, match=r"volumes\.json cannot be read: Too many open files"):
            await after.release(U1)
    await after.release(U1)
    assert driver.calls == ["prepare v0", "release v0"]
    assert not path_of(tmp_path).with_name("volumes.json.damaged").exists()


async def test_a_journal_of_a_newer_version_is_kept_and_blocks_only_its_pod(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    await node(tmp_path, driver).prepare(pod(DISK))
    path = path_of(tmp_path)
    text = json.dumps({**json.loads(path.read_text()), "version": 2, "entries": "of another kind"})
    path.write_text(text)
    after = node(tmp_path, driver)
    for call in (lambda: after.prepare(pod(DISK)), lambda: after.release(U1)):
        with pytest.raises(
            Unavailable, match=r"volumes\.json has version 2.* versions up to 1.*install the newer"
        ):
            await call()
    await after.prepare(pod(DISK, uid="u2"))
    assert path.read_text() == text
    assert driver.calls == ["prepare v0", "prepare v0"]


class TestMissing:
    """The journal is gone, or another program, such as a kubelet, has made the volumes."""

    async def test_volumes_without_a_journal_are_released_by_their_driver(self, tmp_path: Path) -> None:
        driver = fake(tmp_path)
        await node(tmp_path, driver).prepare(pod(DISK, {"emptyDir": {}}))
        path_of(tmp_path).unlink()
        after = node(tmp_path, driver)
        await after.release(U1)
        await after.remove_directory(U1)
        assert driver.calls == ["prepare v0", "release v0"]
        assert not (tmp_path / "root/pods/u1").exists()

    async def test_without_their_driver_they_are_swept_with_the_mount_table(self, tmp_path: Path) -> None:
        await node(tmp_path, fake(tmp_path)).prepare(pod(DISK))
        path_of(tmp_path).unlink()
        after = node(tmp_path)
        await after.release(U1)
        await after.remove_directory(U1)
        assert not (tmp_path / "root/pods/u1").exists()

    async def test_files_that_the_driver_leaves_do_not_keep_the_directory(self, tmp_path: Path) -> None:
        driver = fake(tmp_path)
        await node(tmp_path, driver).prepare(pod(DISK))
        path_of(tmp_path).unlink()
        (tmp_path / "root/pods/u1/volumes/example.com~disk/v0/file").write_text("of the driver")
        after = node(tmp_path, driver)
        await after.release(U1)
        await after.remove_directory(U1)
        assert driver.calls == ["prepare v0", "release v0"]

    async def test_volumes_of_one_name_and_different_drivers_are_all_released(self, tmp_path: Path) -> None:
        driver = fake(tmp_path)
        for vendor in ("a", "b~c"):
            (tmp_path / f"root/pods/u1/volumes/{vendor}~disk/data").mkdir(parents=True)
        released = []
        for entry in journals.rebuild_journal(tmp_path / "root", U1).entries.values():
            assert entry.request.persistent_volume == "data"
            released.append(entry.request.driver)
        assert released == ["a/disk", "b/c/disk"]
        await node(tmp_path, driver).release(U1)
        assert len(driver.calls) == 2

    async def test_a_prepared_volume_takes_the_place_of_one_that_was_rebuilt(self, tmp_path: Path) -> None:
        driver = fake(tmp_path)
        path = tmp_path / "root/pods/u1/volumes/example.com~disk/v0"
        path.mkdir(parents=True)
        preparer = node(tmp_path, driver)
        await preparer.prepare(pod(DISK))
        assert list(preparer.journals()[U1].entries) == ["v0"]
        await preparer.release(U1)
        assert driver.calls == ["prepare v0", "release v0"]
        path.mkdir(parents=True)
        preparer = node(tmp_path, driver)
        cluster = FakeCluster()
        cluster.claims["data"] = ClusterVolume(
            name="v0", kind="flexVolume", claim="data", source=DISK["flexVolume"]
        )
        renamed = make_pod({"volumes": [{"name": "other", "persistentVolumeClaim": {"claimName": "data"}}]})
        await preparer.prepare(renamed, cluster)
        assert list(preparer.journals()[U1].entries) == ["other"]


class TestFullDisk:
    """The file system of the agent's root directory has no space left."""

    is_full = False

    async def blocking(self, function: Callable[..., Any], *args: Any) -> Any:
        if self.is_full and isinstance(args[-1], journals.PodJournal) and args[-1].entries:
            raise OSError(errno.ENOSPC, "No space left on device")
        return function(*args)

    async def test_no_driver_is_called_for_a_volume_that_cannot_be_recorded(self, tmp_path: Path) -> None:
        driver = fake(tmp_path)
        preparer = node(tmp_path, driver, blocking=self.blocking)
        self.is_full = True
        with pytest.raises(
            Unavailable,
            match=r"u1/volumes\.json cannot be written: No space left on device; free space",
        ):
            await preparer.prepare(pod(DISK))
        assert driver.calls == []
        self.is_full = False
        await preparer.prepare(pod(DISK))
        assert driver.calls == ["prepare v0"]

    async def test_volumes_are_released_nevertheless(self, tmp_path: Path) -> None:
        driver = fake(tmp_path)
        preparer = node(tmp_path, driver, blocking=self.blocking)
        await preparer.prepare(pod(DISK, DISK))
        self.is_full = True
        with capture_logs() as logs:
            await preparer.release(U1)
        assert driver.calls[2:] == ["release v1", "release v0"]
        assert not path_of(tmp_path).exists()
        assert [one["event"] for one in logs] == [
            "Failed to update a journal of volumes, releasing them anyway"
        ]


async def test_a_target_that_is_a_link_is_refused(tmp_path: Path) -> None:
    driver, elsewhere = fake(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = tmp_path / "root/pods/u1/volumes/example.com~disk/v0"
    target.parent.mkdir(parents=True)
    target.symlink_to(elsewhere)
    preparer = node(tmp_path, driver)
    with pytest.raises(Unavailable, match=r"v0 is a link, or is reached through one; remove it"):
        await preparer.prepare(pod(DISK))
    assert driver.calls == []
    await preparer.release(U1)
    await preparer.remove_directory(U1)
    assert elsewhere.exists()


async def test_two_hundred_volumes_of_a_pod_are_prepared_and_released(tmp_path: Path) -> None:
    driver = fake(tmp_path)
    await node(tmp_path, driver).prepare(pod(*(DISK,) * 200))
    await node(tmp_path, driver).release(U1)
    assert len(driver.calls) == 400
    assert not path_of(tmp_path).exists()


def test_a_journal_of_two_hundred_volumes_with_long_options_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "pods/u1").mkdir(parents=True)
    found = journals.PodJournal(
        entries={
            str(number): journals.JournalEntry(
                request=volume_request(tmp_path, str(number), options={"image": "x" * 100_000}),
                driver="disks",
            )
            for number in range(200)
        }
    )
    journals.write_journal(tmp_path, U1, found)
    assert journals.read_journal(tmp_path, U1, lambda *_: True) == found
