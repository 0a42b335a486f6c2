"""``kubeletx panel``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kubeletx.api import Png, Table, Text
from tests.unit.cli.commands.objects import Run


def test_panels_are_listed_and_shown_as_table_and_text(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("panel").stderr == "No panels found.\n"
    agent.backend.panels = {
        "load": Table(columns=("WHAT", "VALUE"), rows=(("threads", "3"), ("\x1b[31mred", ""))),
        "notes": Text(text="one\ntwo\x07\n"),
    }
    assert kubeletx("panel").stdout.splitlines() == [
        "NAME    TITLE   PLUGIN   STATE   REASON",
        "load    Load    fake     ready   <none>",
        "notes   Notes   fake     ready   <none>",
    ]
    assert kubeletx("panel", "load").stdout.splitlines() == [
        "WHAT       VALUE",
        "threads    3",
        "�[31mred   <none>",
    ]
    assert kubeletx("panel", "notes").stdout == "one\ntwo�\n"
    assert json.loads(kubeletx("panel", "notes", "-o", "json").stdout)["type"] == "text"
    missing = kubeletx("panel", "a/b")
    assert (missing.exit_code, missing.stderr) == (1, "Error: no plugin registers panel 'a/b'\n")


def test_a_picture_is_written_to_a_file_once(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    picture, file = b"\x89PNG\r\n\x1a\n123", tmp_path / "dot.png"
    agent.backend.panels = {"dot": Png(data=picture)}
    assert kubeletx("panel", "dot", "-f", str(file)).stdout == f"panel/dot written to {file}\n"
    assert file.read_bytes() == picture
    assert "exists; give --force" in kubeletx("panel", "dot", "-f", str(file)).stderr
    assert kubeletx("panel", "dot", "-f", str(file), "--force").exit_code == 0
