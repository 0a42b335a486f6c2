"""The agent's process after an import of a plugin with ``isolation=none``."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from kubeletx.runtimes.plugins.identity import PluginIdentity
from kubeletx.runtimes.plugins.process_state import restored_process

PLUGIN = PluginIdentity("one", "one", "1.0")


def locks_of(path: Path) -> list[str]:
    inode = f":{path.stat().st_ino}"
    return [line for line in Path("/proc/locks").read_text().splitlines() if inode in line]


def test_the_database_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE one (number INTEGER)")
        assert locks_of(path)
        with restored_process(PLUGIN):
            pass
        assert locks_of(path)


def test_files_that_an_import_closes_are_open_again_with_their_offsets(tmp_path: Path) -> None:
    files = []
    for number in range(5):
        path = tmp_path / str(number)
        path.write_text(f"{number}bc")
        files.append(os.open(path, os.O_RDONLY))
        os.read(files[-1], 1)
    with restored_process(PLUGIN):
        for one in files[1], files[3]:
            os.close(one)
    assert [os.read(one, 9) for one in files] == [b"bc"] * 5
    for one in files:
        os.close(one)
