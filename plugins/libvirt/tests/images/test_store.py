"""What the store keeps, forgets and finds again."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from pathlib import Path

import pytest
from kubeletx_libvirt.images.qcow2 import backing_file
from kubeletx_libvirt.images.service import STATIC_DIRECTORY, LibvirtImages

from kubeletx.api import (
    Conflict,
    InvalidPod,
    NotFound,
    PodUid,
    SandboxSpec,
    SupportsImages,
    Unavailable,
    names,
)
from plugins.libvirt.tests.images.conftest import MakeImages, spec
from plugins.libvirt.tests.images.disks import qcow2, raw
from plugins.libvirt.tests.images.file_server import FileServer

DISK = qcow2()
ID = f"sha256:{hashlib.sha256(DISK).hexdigest()}"


def pod(source: str) -> SandboxSpec:
    return SandboxSpec(uid=PodUid("u"), name="p", namespace="n", annotations={names.POD_SOURCE: source})


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A directory that local images may come from, with one disk."""
    directory = tmp_path / "local"
    directory.mkdir()
    (directory / "d.img").write_bytes(DISK)
    return directory


async def opened(make_images: MakeImages, local: Path, **settings: object) -> LibvirtImages:
    images = make_images(image_directories=(str(local),), **settings)
    await images.open()
    return images


async def test_it_is_the_capability_the_host_asks_for(images: LibvirtImages) -> None:
    assert isinstance(images, SupportsImages)


async def test_local_files_are_copied_once_and_again_when_they_change(
    make_images: MakeImages, local: Path
) -> None:
    images = await opened(make_images, local)
    path = str(local / "d.img")
    assert await images.pull_image(spec(path), None, None) == ID
    blob = (await images.disk(ID)).path
    inode = blob.stat().st_ino
    assert await images.pull_image(spec(f"file://{path}"), None, None) == ID
    assert await images.pull_image(spec(path), None, None) == ID
    assert blob.stat().st_ino == inode
    (local / "d.img").write_bytes(raw())
    assert await images.pull_image(spec(path), None, None) != ID
    assert blob.read_bytes() == DISK


async def test_local_files_lie_below_the_configured_directories(
    make_images: MakeImages, local: Path, tmp_path: Path
) -> None:
    images = await opened(make_images, local)
    (tmp_path / "outside.img").write_bytes(DISK)
    (local / "link.img").symlink_to(tmp_path / "outside.img")
    (local / "inside.img").symlink_to("d.img")
    (tmp_path / "local-not").mkdir()
    (tmp_path / "local-not" / "d.img").write_bytes(DISK)
    for path in (
        tmp_path / "outside.img",
        local / "link.img",
        local / ".." / "outside.img",
        tmp_path / "local-not" / "d.img",
    ):
        with pytest.raises(InvalidPod, match="imageDirectories"):
            await images.pull_image(spec(str(path)), None, None)
    assert await images.pull_image(spec(str(local / "inside.img")), None, None) == ID
    with pytest.raises(NotFound):
        await images.pull_image(spec(str(local / "missing.img")), None, None)


async def test_only_regular_files_are_images(make_images: MakeImages, local: Path) -> None:
    images = await opened(make_images, local)
    (local / "directory.img").mkdir()
    os.mkfifo(local / "pipe.img")
    (local / "device.img").symlink_to("/dev/zero")
    for name in ("directory.img", "pipe.img", "device.img"):
        with pytest.raises(InvalidPod):
            await images.pull_image(spec(str(local / name)), None, None)


async def test_by_default_only_pods_of_manifests_may_name_local_files(images: LibvirtImages) -> None:
    path = f"{STATIC_DIRECTORY}/none.img"
    for source in ("file", "http", "applied"):
        await images.check_allowed(path, pod(source))
    for source in ("api", ""):
        with pytest.raises(InvalidPod, match="none for this pod"):
            await images.check_allowed(path, pod(source))
        with pytest.raises(InvalidPod, match="none for this pod"):
            await images.pull_image(spec(path), None, pod(source))
    await images.check_allowed("https://h/x.img", pod("api"))


async def test_one_content_is_one_file_whatever_its_names(
    make_images: MakeImages, local: Path, server: FileServer
) -> None:
    server.files["/other.qcow2"] = DISK
    images = await opened(make_images, local, image_aliases={"base": str(local / "d.img")})
    references = [str(local / "d.img"), "base", f"{server.url}/other.qcow2"]
    for reference in references:
        assert await images.pull_image(spec(reference), None, None) == ID
        image = await images.find_image(spec(reference))
        assert image is not None
        assert image.id == image.ref == ID
    (status,) = await images.list_images()
    assert sorted(status.tags) == sorted(references)
    assert status.size_bytes > 0


async def test_an_alias_that_changed_leads_to_the_new_image(make_images: MakeImages, local: Path) -> None:
    (local / "e.img").write_bytes(raw())
    first = await opened(make_images, local, image_aliases={"base": str(local / "d.img")})
    old = await first.pull_image(spec("base"), None, None)
    second = await opened(make_images, local, image_aliases={"base": str(local / "e.img")})
    assert await second.find_image(spec("base")) is None
    new = await second.pull_image(spec("base"), None, None)
    assert {image.id: image.tags for image in await second.list_images()} == {new: ("base",), old: ()}


async def test_everything_is_found_again_after_a_restart(make_images: MakeImages, local: Path) -> None:
    first = await opened(make_images, local)
    await first.pull_image(spec(str(local / "d.img")), None, None)
    info = await first.store_info()
    second = await opened(make_images, local)
    assert (await second.store_info()).id == info.id
    assert (await second.disk(ID)) == await first.disk(ID)
    assert await second.find_image(spec(str(local / "d.img"))) == await first.find_image(
        spec("anything:else", ID)
    )


async def test_a_lost_index_costs_names_and_never_the_format(
    make_images: MakeImages, local: Path, tmp_path: Path
) -> None:
    first = await opened(make_images, local)
    await first.pull_image(spec(str(local / "d.img")), None, None)
    (tmp_path / "images" / "index.json").write_text("{half")
    second = await opened(make_images, local)
    disk = await second.disk(ID)
    assert (disk.format, disk.virtual_size_bytes) == ("qcow2", 1 << 20)
    assert await second.find_image(spec(str(local / "d.img"))) is None
    assert (tmp_path / "images" / "index.json.unreadable").exists()


async def test_a_raw_disk_stays_raw_whatever_is_in_it(
    make_images: MakeImages, local: Path, tmp_path: Path
) -> None:
    (local / "r.raw").write_bytes(raw())
    images = await opened(make_images, local)
    ref = await images.pull_image(spec(str(local / "r.raw")), None, None)
    path = (await images.disk(ref)).path
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.write(qcow2(backing=(300, 11))[:512])
    (tmp_path / "images" / "index.json").unlink()
    again = await opened(make_images, local)
    assert (await again.disk(ref)).format == "raw"


async def test_what_a_crash_left_is_swept(make_images: MakeImages, local: Path, tmp_path: Path) -> None:
    first = await opened(make_images, local)
    await first.pull_image(spec(str(local / "d.img")), None, None)
    partial = tmp_path / "images" / "partial"
    kept, old, odd = partial / ("a" * 64), partial / ("b" * 64), partial / "odd"
    for directory in (kept, old, odd):
        directory.mkdir()
        (directory / "data").write_bytes(b"some")
    (kept / "disk").write_bytes(b"half unpacked")
    os.utime(old / "data", (0, 0))
    (tmp_path / "images" / "blobs" / "x.new").write_bytes(b"")
    (tmp_path / "images" / "index.json.new").write_bytes(b"{")
    second = await opened(make_images, local)
    assert sorted(path.name for path in partial.rglob("*")) == ["a" * 64, "data"]
    assert [path.name for path in (tmp_path / "images" / "blobs").iterdir()] == [f"{ID[7:]}.qcow2"]
    assert (await second.disk(ID)).format == "qcow2"


async def test_a_stored_disk_is_never_continued_as_a_download(
    make_images: MakeImages, local: Path, tmp_path: Path
) -> None:
    first = await opened(make_images, local)
    await first.pull_image(spec(str(local / "d.img")), None, None)
    blob = (await first.disk(ID)).path
    work = tmp_path / "images" / "partial" / ("c" * 64)
    work.mkdir()
    os.link(blob, work / "data")  # the agent died between the link and the index
    await opened(make_images, local)
    assert not work.exists()
    assert blob.read_bytes() == DISK


async def test_a_disk_that_vanished_is_pulled_again(make_images: MakeImages, local: Path) -> None:
    images = await opened(make_images, local)
    path = str(local / "d.img")
    await images.pull_image(spec(path), None, None)
    (await images.disk(ID)).path.unlink()
    assert await images.find_image(spec(path)) is None
    with pytest.raises(NotFound):
        await images.disk(ID)
    assert await images.pull_image(spec(path), None, None) == ID
    assert (await images.disk(ID)).path.exists()


async def test_removal_takes_all_names_and_may_come_twice(make_images: MakeImages, local: Path) -> None:
    images = await opened(make_images, local)
    path = str(local / "d.img")
    await images.pull_image(spec(path), None, None)
    blob = (await images.disk(ID)).path
    for _ in range(2):
        await images.remove_image(spec(path))
    assert not blob.exists()
    assert await images.list_images() == []
    await images.remove_image(spec("never:seen", ID))


@pytest.mark.parametrize("how", ["ref", "path"])
async def test_a_backing_file_in_use_is_never_removed(
    make_images: MakeImages, local: Path, tmp_path: Path, how: str
) -> None:
    blob = tmp_path / "images" / "blobs" / f"{ID[7:]}.qcow2"
    images = await opened(make_images, local, used={ID if how == "ref" else str(blob)})
    await images.pull_image(spec(str(local / "d.img")), None, None)
    with pytest.raises(Conflict, match="in use"):
        await images.remove_image(spec(str(local / "d.img"), ID))
    assert (await images.disk(ID)).path == blob
    assert blob.exists()


async def test_nothing_is_removed_while_no_one_can_tell_what_is_in_use(
    make_images: MakeImages, local: Path
) -> None:
    images = await opened(make_images, local, used=Unavailable("libvirt does not answer"))
    await images.pull_image(spec(str(local / "d.img")), None, None)
    with pytest.raises(Unavailable):
        await images.remove_image(spec("", ID))
    assert (await images.disk(ID)).path.exists()


async def test_a_held_disk_is_not_removed(make_images: MakeImages, local: Path) -> None:
    images = await opened(make_images, local)
    await images.pull_image(spec(str(local / "d.img")), None, None)
    async with images.hold(ID) as disk:
        with pytest.raises(Conflict):
            await images.remove_image(spec("", ID))
        assert disk.path.exists()
    await images.remove_image(spec("", ID))
    with pytest.raises(NotFound):
        async with images.hold(ID):
            pass


async def test_usage_counts_what_is_on_disk(make_images: MakeImages, local: Path, tmp_path: Path) -> None:
    images = await opened(make_images, local)
    before = (await images.store_info()).filesystems[0]
    await images.pull_image(spec(str(local / "d.img")), None, None)
    after = (await images.store_info()).filesystems[0]
    assert after.mountpoint == str(tmp_path / "images")
    assert after.used_bytes - before.used_bytes >= len(DISK) // 2
    assert after.inodes_used > before.inodes_used


def run(*command: str) -> bytes:
    return subprocess.run(command, check=True, timeout=60, capture_output=True).stdout


async def test_overlays_share_the_stored_disk_and_leave_it_alone(
    make_images: MakeImages, local: Path, tmp_path: Path
) -> None:
    source, published = tmp_path / "source.raw", local / "real.qcow2"
    source.write_bytes(b"base".ljust(1 << 20, b"\1"))
    run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(source), str(published))
    images = await opened(make_images, local)
    disk = await images.disk(await images.pull_image(spec(str(published)), None, None))
    content = disk.path.read_bytes()
    for number in range(2):
        overlay = str(tmp_path / f"overlay-{number}.qcow2")
        base = ("-F", disk.format, "-b", str(disk.path))
        run("qemu-img", "create", "-q", "-f", "qcow2", *base, overlay, "8M")
        run("qemu-io", "-f", "qcow2", "-c", f"write -P {number + 9} 0 4096", overlay)
        assert b"failed" not in run("qemu-io", "-f", "qcow2", "-c", "read -P 1 8192 4096", overlay)
        assert backing_file(Path(overlay)) == str(disk.path)
    assert disk.path.read_bytes() == content


async def test_the_loop_never_touches_the_disk(
    make_images: MakeImages, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = await opened(make_images, local)
    loop_thread = threading.get_ident()
    real = os.open
    opened_on_loop: list[object] = []

    def spy(path: object, *arguments: object, **named: object) -> int:
        if threading.get_ident() == loop_thread:
            opened_on_loop.append(path)
        return real(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", spy)  # which thread opens a file is seen nowhere else
    await images.pull_image(spec(str(local / "d.img")), None, None)
    await images.disk(ID)
    await images.remove_image(spec("", ID))
    assert opened_on_loop == []
