"""Small files that survive a crash."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kubeletx.store.files import remove_file, write_file


def test_a_file_is_replaced_as_a_whole_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_file(path, b"one")
    write_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_file(path, b"one")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, b"two")
    assert path.read_bytes() == b"one"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_a_crash_left_beside_the_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".file.new").write_bytes(b"a longer text that was cut off")
    write_file(tmp_path / "file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_removing_tells_whether_there_was_something(tmp_path: Path) -> None:
    write_file(tmp_path / "file", b"")
    assert remove_file(tmp_path / "file")
    assert not remove_file(tmp_path / "file")
