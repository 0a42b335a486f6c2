"""Lines of the guardian's log, and of its configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.health.config import read_file
from kubeletx.health.main import Log


def test_each_event_is_logged_and_what_is_wrong_once_an_hour(capsys: pytest.CaptureFixture[str]) -> None:
    """A check that fails, passes and fails again is three events."""
    log = Log()
    for _ in range(3):
        log("BadState", "cannot be written")
        log.event("CheckFailed", "disk is full")
    lines = capsys.readouterr().err.splitlines()
    assert sorted(lines) == ["BadState: cannot be written", *["CheckFailed: disk is full"] * 3]


def test_a_key_that_nothing_reads_is_named(tmp_path: Path) -> None:
    path = tmp_path / "health.yaml"
    path.write_text("agent: {socket: /run/x}\nbackend: dry-run\n")
    lines: list[str] = []
    assert read_file(path, lines.append).sections == {"backend": "dry-run"}
    assert lines == [f"{path}: agent: no item has this name; see kubeletx health config"]
