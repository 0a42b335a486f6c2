"""Replacement of small files: the content is complete, and on disk before the function returns."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.linux.files import (
    private_directory,
    read_regular,
    remove_file,
    replace_file,
    replace_unflushed,
)

Replace = Callable[[Path, bytes, int], None]
KINDS = st.sampled_from([replace_file, replace_unflushed])
MODES = st.sampled_from([0o600, 0o644, 0o755, 0o666])


@contextmanager
def scratch() -> Iterator[Path]:
    with TemporaryDirectory() as directory:
        yield Path(directory)


@contextmanager
def limited(size: int) -> Iterator[None]:
    """Let writes fail with EFBIG beyond `size` bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(KINDS, st.lists(st.tuples(st.binary(max_size=2000), MODES), min_size=1, max_size=4))
def test_the_last_content_and_mode_are_there_and_no_other_file(
    replace: Replace, writes: list[tuple[bytes, int]]
) -> None:
    with scratch() as directory:
        path = directory / "deep" / "er" / "file"
        for data, mode in writes:
            replace(path, data, mode)
            assert path.read_bytes() == data
            assert stat.S_IMODE(path.stat().st_mode) == mode
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert os.listdir(path.parent) == ["file"]


@given(KINDS, st.binary(max_size=50), st.binary(min_size=2, max_size=5000), st.data())
def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_other(
    replace: Replace, old: bytes, new: bytes, draw: st.DataObject
) -> None:
    with scratch() as directory:
        path = directory / "file"
        replace(path, old, 0o600)
        size = draw.draw(st.integers(0, len(new) - 1))
        with limited(size), pytest.raises(OSError) as failure:
            replace(path, new, 0o600)
        assert failure.value.errno == errno.EFBIG
        assert path.read_bytes() == old
        assert os.listdir(directory) == ["file"]


@given(KINDS, st.binary(max_size=100))
def test_what_an_interrupted_write_left_is_replaced_and_a_link_is_not_followed(
    replace: Replace, data: bytes
) -> None:
    with scratch() as directory:
        (directory / "other").write_bytes(b"of another program")
        (directory / ".file.new").symlink_to("other")
        replace(directory / "file", data, 0o600)
        assert (directory / "file").read_bytes() == data
        assert (directory / "other").read_bytes() == b"of another program"
        assert sorted(os.listdir(directory)) == ["file", "other"]


def test_file_then_name_then_directory_are_on_disk_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel promises a rename after a power loss only once the directory was flushed."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def flush(descriptor: int) -> None:
        steps.append(f"flush {Path(os.readlink(f'/proc/self/fd/{descriptor}')).relative_to(tmp_path.parent)}")
        fsync(descriptor)

    def rename(source: Path, target: Path) -> Path:
        steps.append(f"rename {source.name} {target.name}")
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", flush)  # only a power loss shows the order
    monkeypatch.setattr(Path, "replace", rename)
    durable = [f"flush {tmp_path.name}/.file.new", "rename .file.new file", f"flush {tmp_path.name}"]
    for _ in ("a new file", "an old file"):
        replace_file(tmp_path / "file", b"x")
        assert steps == durable
        steps.clear()
    replace_unflushed(tmp_path / "file", b"x")
    assert steps == ["rename .file.new file"]
    steps.clear()
    assert remove_file(tmp_path / "file")
    assert steps == [f"flush {tmp_path.name}"]
    assert not remove_file(tmp_path / "file")


def test_a_private_directory_is_closed_to_others_and_never_a_link(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert private_directory(path) == path
    path.chmod(0o755)
    private_directory(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(NotADirectoryError):
            private_directory(tmp_path / name)


@given(st.binary(max_size=100), st.integers(0, 100))
def test_a_file_is_read_up_to_its_limit(data: bytes, limit: int) -> None:
    with scratch() as directory:
        path = directory / "file"
        path.write_bytes(data)
        if len(data) <= limit:
            assert read_regular(path, limit) == data
        else:
            with pytest.raises(OSError, match="larger than"):
                read_regular(path, limit)


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name, number in (("pipe", errno.EINVAL), ("directory", errno.EINVAL), ("link", errno.ELOOP)):
        with pytest.raises(OSError) as failure:
            read_regular(tmp_path / name, 10)
        assert failure.value.errno == number
