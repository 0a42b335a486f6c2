"""Pools: names, links, images that appear complete."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.pools import MAX_SIZE, Pool, Pools
from kubeletx_flexvolume.values import StorageVolume

from kubeletx.api import InvalidConfig, NotFound, Unavailable

MIB = 1 << 20
_OPEN = os.open


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "pool"
    made.mkdir()
    return made


@pytest.fixture
def pools(directory: Path) -> Pools:
    shared = Pool(name="shared", directory=str(directory), is_shared=True)
    return Pools({"default": Pool(name="default", directory=str(directory)), "shared": shared})


def volume(image: str = "data.img", pool: str = "default", size: int = 0) -> StorageVolume:
    return StorageVolume(name="pv-1", backend="loop", image=image, pool=pool, size_bytes=size)


def test_an_unknown_pool_is_refused_with_the_known_ones(pools: Pools) -> None:
    with pytest.raises(
        InvalidConfig, match=r"'fast' is not configured on this node \(known: default, shared\)"
    ):
        pools.check(volume(pool="fast"))
    with pytest.raises(InvalidConfig, match=r"known: none"):
        Pools({}).check(volume())


@pytest.mark.parametrize(
    "image",
    ["", ".", "..", "../x", "a/b", "/etc/passwd", "-f", ".hidden", "a b", "a\n", "a\0b", "ü", "x" * 241],
)
def test_an_image_is_one_plain_file_name(pools: Pools, image: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a file name"):
        pools.image_path(volume(image))


def test_a_size_beyond_all_devices_is_refused(pools: Pools) -> None:
    with pytest.raises(InvalidConfig, match="bytes are too many"):
        pools.check(volume(size=MAX_SIZE + 1))


def test_the_path_of_an_image_is_that_of_the_real_pool(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "link").symlink_to(directory)
    pools = Pools({"default": Pool(name="default", directory=str(tmp_path / "link"))})
    assert pools.image_path(volume()) == f"{directory}/data.img"


def test_a_missing_image_is_made_sparse_and_private_if_the_volume_has_a_size(
    pools: Pools, directory: Path
) -> None:
    path = Path(pools.ensure_file(volume(size=64 * MIB)))
    assert path == directory / "data.img"
    found = path.stat()
    assert (found.st_size, found.st_blocks, found.st_mode & 0o777) == (64 * MIB, 0, 0o600)
    assert [one.name for one in directory.iterdir()] == ["data.img"]
    assert pools.ensure_file(volume(size=64 * MIB)) == str(path)


def test_a_missing_image_without_a_size_is_not_made(pools: Pools, directory: Path) -> None:
    with pytest.raises(NotFound, match=r"data\.img does not exist; make it, or give option size"):
        pools.ensure_file(volume())
    with pytest.raises(NotFound, match="does not exist"):
        pools.ensure_directory(volume())
    assert list(directory.iterdir()) == []


def test_an_image_that_is_smaller_than_its_volume_is_refused(pools: Pools, directory: Path) -> None:
    (directory / "data.img").write_bytes(b"x" * 100)
    assert pools.ensure_file(volume(size=100))
    with pytest.raises(InvalidConfig, match="has 100 bytes, and 101 are asked for"):
        pools.ensure_file(volume(size=101))
    (directory / "data.img").write_bytes(b"")
    with pytest.raises(InvalidConfig, match="has 0 bytes"):
        pools.ensure_file(volume())


@pytest.mark.parametrize("kind", ["link", "dangling link", "directory", "fifo"])
def test_only_a_regular_file_is_an_image(pools: Pools, directory: Path, tmp_path: Path, kind: str) -> None:
    image = directory / "data.img"
    (tmp_path / "outside").write_bytes(b"x" * MIB)
    match kind:
        case "link":
            image.symlink_to(tmp_path / "outside")
        case "dangling link":
            image.symlink_to(tmp_path / "nothing")
        case "directory":
            image.mkdir()
        case _:
            os.mkfifo(image)
    with pytest.raises(InvalidConfig, match="is not a regular file"):
        pools.ensure_file(volume(size=MIB))
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("kind", ["link to a directory", "link to a file", "file"])
def test_only_a_directory_is_a_directory(pools: Pools, directory: Path, tmp_path: Path, kind: str) -> None:
    image = directory / "data.img"
    (tmp_path / "outside").write_text("x")
    match kind:
        case "link to a directory":
            image.symlink_to(tmp_path)
        case "link to a file":
            image.symlink_to(tmp_path / "outside")
        case _:
            image.write_text("x")
    for size in (0, MIB):
        with pytest.raises(InvalidConfig, match="is not a directory"):
            pools.ensure_directory(volume(size=size))


def test_a_directory_is_made_once_and_kept(pools: Pools, directory: Path) -> None:
    path = Path(pools.ensure_directory(volume(size=1)))
    assert path.stat().st_mode & 0o777 == 0o750
    (path / "file").write_text("kept")
    assert pools.ensure_directory(volume(size=1)) == pools.ensure_directory(volume()) == str(path)
    assert (path / "file").read_text() == "kept"


def test_a_pool_that_is_gone_is_named(pools: Pools, directory: Path) -> None:
    directory.rmdir()
    with pytest.raises(Unavailable, match="No such file or directory; check pool default"):
        pools.ensure_file(volume(size=MIB))
    with pytest.raises(NotFound):
        pools.ensure_directory(volume(size=MIB))


def without_tmpfile(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """Open a file on a file system that has no O_TMPFILE."""
    if flags & os.O_TMPFILE == os.O_TMPFILE:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    return _OPEN(path, flags, mode, dir_fd=dir_fd)


@pytest.mark.parametrize("open_file", [os.open, without_tmpfile])
def test_agents_that_make_an_image_at_the_same_moment_get_the_same_one(
    pools: Pools, directory: Path, monkeypatch: pytest.MonkeyPatch, open_file: Callable[..., int]
) -> None:
    """Threads stand for agents, which may have the same PID in their containers."""
    monkeypatch.setattr(os, "open", open_file)  # the test machine's file systems have O_TMPFILE
    barrier = threading.Barrier(4)
    found: list[int] = []

    def make() -> None:
        barrier.wait()
        found.append(Path(pools.ensure_file(volume(size=MIB))).stat().st_ino)

    threads = [threading.Thread(target=make, name=f"agent-{number}") for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert [one.name for one in directory.iterdir()] == ["data.img"]


def test_an_image_is_found_by_its_path(pools: Pools, directory: Path) -> None:
    assert pools.image_at(f"{directory}/data.img") == ("default", "data.img")
    for path in ("", "/data.img", f"{directory}/.hidden", f"{directory}/a/b", f"{directory}x/data.img"):
        assert pools.image_at(path) is None
