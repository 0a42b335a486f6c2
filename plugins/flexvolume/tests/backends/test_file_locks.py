"""Locks on files, from a real /proc/locks and from texts."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.fuse import is_locked


@pytest.mark.parametrize("lock", [fcntl.flock, fcntl.lockf])
def test_a_file_is_locked_while_a_process_has_a_lock_on_it(tmp_path: Path, lock: object) -> None:
    path = tmp_path / "data"
    path.touch()
    assert not is_locked(str(path))
    with path.open("r+") as file:
        assert callable(lock)
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert is_locked(str(path))
        assert not is_locked(str(tmp_path))
    assert not is_locked(str(path))


def test_a_missing_file_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(str(tmp_path / "missing"))


def test_the_whole_number_of_the_file_is_compared(tmp_path: Path) -> None:
    path, locks = tmp_path / "data", tmp_path / "locks"
    path.touch()
    found = path.stat()
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    locks.write_text(f"1: OFDLCK ADVISORY  READ -1 {device}:{found.st_ino}1 100 101\n")
    assert not is_locked(str(path), locks)
    locks.write_text(f"1: OFDLCK ADVISORY  READ -1 {device}:{found.st_ino} 100 101\n")
    assert is_locked(str(path), locks)
