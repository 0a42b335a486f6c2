"""Tables on a terminal: columns that do not fit are left out, states have colours."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx.cli.output import printers
from kubeletx.cli.output.printers import Column, ObjectTable
from kubeletx.cli.output.screen import Screen, colored
from tests.unit.cli.commands.objects import Run
from tests.unit.cli.commands.test_get import pod

COLUMNS = [
    Column("NAME", lambda *_: ""),
    Column("STATE", lambda *_: "", state=True),
    Column("SOME", lambda *_: "", priority=1),
    Column("LESS", lambda *_: "", priority=2),
]


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (None, "NAME STATE SOME LESS"),
        (40, "NAME STATE SOME LESS"),
        (25, "NAME STATE SOME"),
        (5, "NAME STATE"),
    ],
)
def test_the_least_important_columns_are_left_out(
    monkeypatch: pytest.MonkeyPatch, width: int | None, titles: str
) -> None:
    monkeypatch.setattr(printers, "screen", lambda: Screen(width))
    assert ObjectTable(COLUMNS).render([["a", "b", "c", "d"]])[0].split() == titles.split()


def test_long_texts_end_with_the_terminal_s_line(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [COLUMNS[0], Column("REASON", lambda *_: "", long=True), COLUMNS[3]]
    rows = [["a", "a text that is quite long", "d"], ["b", "short", "e"]]
    wide = Column("WIDE", lambda *_: "", wide=True)
    for screen, shown in (
        (
            Screen(36),
            ["NAME   REASON                   LESS", "a      a text that is quit...   d"],
        ),
        (Screen(22), ["NAME   REASON", "a      a text that ...", "b      short"]),
        (Screen(5), ["NAME   REASON", "a      a t...", "b      short"]),
        (Screen(), ["NAME   REASON                      LESS", "a      a text that is quite long   d"]),
    ):
        monkeypatch.setattr(printers, "screen", lambda screen=screen: screen)
        assert ObjectTable(columns).render(rows)[: len(shown)] == shown
    monkeypatch.setattr(printers, "screen", lambda: Screen(22))
    assert "quite long" in ObjectTable([*columns, wide]).render([["a", rows[0][1], "d", "e"]])[1]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("Running", 32), ("Pending", 33), ("Init:0/1", 33), ("ContainerCreating", 33), ("CrashLoopBackOff", 31),
        ("NotReady", 31), ("Ready,SchedulingDisabled", 33), ("Standby", 36), ("Hibernated", 36), ("Live", 32),
    ],
)  # fmt: skip
def test_states_have_colours(state: str, code: int) -> None:
    assert colored(state, f"{state}  ") == f"\x1b[{code}m{state}  \x1b[0m"
    assert colored("Completed", "Completed") == "Completed"


def test_colours_are_off_in_pipes_and_do_not_change_the_alignment(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    plain = kubeletx("get", "pods").stdout
    assert "\x1b" not in plain
    always = kubeletx("get", "pods", "--color=always").stdout
    assert "\x1b[32mRunning\x1b[0m" in always
    assert always.replace("\x1b[32m", "").replace("\x1b[0m", "") == plain
