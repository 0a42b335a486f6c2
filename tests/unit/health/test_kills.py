"""A guardian that is killed at any change of a file ends in the same state, with at most one reboot more."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kills import KILLER, KillTrial
from .trial import SHORT

_QUICK = {**SHORT, "timer.test.baseimage.update": 30}
_TICKS = 25
_STEP = 11
"""Each such change is killed: prime to the number of changes of a tick, so all kinds of changes come."""


def _upgrade(node: KillTrial) -> None:
    node.set_slots("active", "updating")


def _fallback(node: KillTrial) -> None:
    node.is_reached = False
    node.set_slots("active", "inprogress", "IMGB")


def _repair(node: KillTrial) -> None:
    node.set_slots("active", "active", "IMGB")


_CASES = {
    "upgrade": (_upgrade, ("unused", "active", "IMGB"), 1),
    "fallback": (_fallback, ("active", "inprogress", "IMGA"), 1),
    "two actives": (_repair, ("unused", "active", "IMGB"), 0),
}


@pytest.mark.parametrize("case", _CASES)
def test_a_kill_at_any_change_of_a_file_changes_no_outcome(memory_path: Path, case: str) -> None:
    begin, states, reboots = _CASES[case]

    def run(base: Path, kill: int | None) -> int:
        node = KillTrial(base, _QUICK)
        node.slots.read()
        begin(node)
        node.start()
        before = KILLER.changes
        if kill is not None:
            node.kill_at(kill)
        node.tick(_TICKS * 10)
        assert node.states == states, (kill, node.lines)
        assert len(node.reboots) <= reboots + (kill is not None), (kill, node.reboots)
        if kill is None:
            assert len(node.reboots) == reboots
        return KILLER.changes - before

    changes = run(memory_path / "whole", None)
    for kill in range(0, changes, _STEP):
        run(memory_path / str(kill), kill)
