from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletx.volumes.files.atomic_writer import DATA, FileContent, check_path, write_files

NAMES = st.sampled_from(["a", "b", "dir/a", "dir/b", "dir/sub/c", "other/x"])
FILES = st.dictionaries(
    NAMES,
    st.builds(FileContent, data=st.binary(max_size=5), mode=st.sampled_from([0o644, 0o400, 0o755])),
)


def shown(target: Path) -> dict[str, FileContent]:
    """What a container sees: files reached through names that do not begin with '..'."""
    found = {}
    for name in os.listdir(target):
        if name.startswith(".."):
            continue
        top = target / name
        paths = [top] if top.is_file() else [one for one in top.rglob("*") if one.is_file()]
        for path in paths:
            mode = stat.S_IMODE(path.stat().st_mode)
            found[str(path.relative_to(target))] = FileContent(data=path.read_bytes(), mode=mode)
    return found


def generations(target: Path) -> list[str]:
    return [name for name in os.listdir(target) if name.startswith("..") and name != DATA]


@settings(max_examples=60, deadline=None)
@given(st.lists(FILES, min_size=1, max_size=5))
def test_after_any_history_exactly_the_last_files_are_shown(tmp_path_factory, history):
    target = tmp_path_factory.mktemp("volume")
    for files in history:
        write_files(target, files)
        assert shown(target) == files
        assert len(generations(target)) == 1


@settings(max_examples=30, deadline=None)
@given(FILES)
def test_the_same_files_again_change_nothing(tmp_path_factory, files):
    target = tmp_path_factory.mktemp("volume")
    assert write_files(target, files)
    before = generations(target)
    assert not write_files(target, files)
    assert generations(target) == before


def test_an_open_directory_keeps_showing_one_generation(tmp_path):
    write_files(tmp_path, {"a": FileContent(data=b"1"), "b": FileContent(data=b"1")})
    generation = (tmp_path / DATA).resolve()
    fd = os.open(generation / "a", os.O_RDONLY)
    write_files(tmp_path, {"a": FileContent(data=b"2"), "b": FileContent(data=b"2")})
    assert os.read(fd, 9) == b"1"
    os.close(fd)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"2"


def test_what_a_crash_left_behind_is_removed(tmp_path):
    write_files(tmp_path, {"a": FileContent(data=b"1")})
    (tmp_path / "..2026_01_01.abandoned").mkdir()
    (tmp_path / "..data_tmp").symlink_to("..2026_01_01.abandoned")
    write_files(tmp_path, {"a": FileContent(data=b"1")})
    assert len(generations(tmp_path)) == 1


def test_a_missing_name_is_restored(tmp_path):
    files = {"a": FileContent(data=b"1")}
    write_files(tmp_path, files)
    (tmp_path / "a").unlink()
    assert not write_files(tmp_path, files)
    assert shown(tmp_path) == files


def test_a_change_of_mode_alone_is_written(tmp_path):
    write_files(tmp_path, {"a": FileContent(data=b"1")})
    assert write_files(tmp_path, {"a": FileContent(data=b"1", mode=0o600)})
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_the_group_may_read_everything(tmp_path):
    group = os.getgid()
    files = {"dir/a": FileContent(data=b"1", mode=0o400)}
    write_files(tmp_path, files, group=group)
    assert stat.S_IMODE((tmp_path / "dir" / "a").stat().st_mode) == 0o440
    assert stat.S_IMODE((tmp_path / "dir").stat().st_mode) & 0o2050 == 0o2050
    assert not write_files(tmp_path, files, group=group)


def test_directories_are_open_to_all_whatever_the_umask(tmp_path):
    old = os.umask(0o077)
    try:
        write_files(tmp_path, {"dir/sub/a": FileContent(data=b"1")})
    finally:
        os.umask(old)
    for name in (DATA, "dir", "dir/sub"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o755


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", "..data/x", "..hidden", "a\0b", "x" * 300])
def test_a_path_that_could_do_harm_is_refused(tmp_path, path):
    with pytest.raises(ValueError, match=r"."):
        write_files(tmp_path, {path: FileContent(data=b"")})
    assert os.listdir(tmp_path) == []


def test_a_hidden_file_is_allowed():
    check_path(".hidden/..also")


def test_content_is_never_printed():
    assert "secret" not in repr(FileContent(data=b"secret"))


def test_what_does_not_fit_leaves_nothing_behind_and_the_old_files_as_they_are(tmp_path, monkeypatch):
    old = {"a": FileContent(data=b"old")}
    write_files(tmp_path, old)
    before = os.listdir(tmp_path)

    def write(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", write)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                write_files(tmp_path, {"a": FileContent(data=b"too much")})
    assert sorted(os.listdir(tmp_path)) == sorted(before)
    assert shown(tmp_path) == old


def test_space_that_an_interrupted_writer_took_is_free_before_the_next_one_writes(tmp_path, monkeypatch):
    write_files(tmp_path, {"a": FileContent(data=b"1")})
    (tmp_path / "..2026_01_01.abandoned").mkdir()
    seen: list[list[str]] = []
    write = Path.write_bytes

    def look(self: Path, data: bytes) -> int:
        seen.append(generations(tmp_path))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", look)
    write_files(tmp_path, {"a": FileContent(data=b"2")})
    assert [len(one) for one in seen] == [2]
    assert "..2026_01_01.abandoned" not in seen[0]
