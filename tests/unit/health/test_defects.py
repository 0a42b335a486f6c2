"""Defects of the first implementation and bad input: none costs a boot or hides the last good value."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .kills import KillTrial
from .trial import SHORT, Trial

TESTED = ("active", "inprogress", "IMGB")
RUBBISH = {
    "rubbish": b"\x00\xff{",
    "half": b'{"ConfigGetStatus": ',
    "huge": b'{"ConfigGetStatus": 1, "x": "' + b"a" * (4 << 20) + b'"}',
    "wrong type": b'{"ConfigGetStatus": "one"}',
    "a list": b"[]",
    "deep": b"[" * 100_000,
}


@pytest.fixture
def node(memory_path: Path) -> KillTrial:
    """A node whose new image is tested."""
    node = KillTrial(memory_path, SHORT)
    node.slots.read()
    node.set_slots(*TESTED)
    return node


def lines_of(node: Trial, reason: str) -> list[str]:
    return [line for line in node.lines if line.startswith(f"{reason}:")]


def test_times_of_files_decades_away_fire_nothing(node: KillTrial) -> None:
    """Defect 1."""
    for year in (0, 4_000_000_000):
        node.tick(10)
        os.utime(node.run / "zedagent/ZedAgentStatus/zedagent.json", (year, year))
    node.tick(20)
    assert node.states == TESTED
    assert node.reboots == []


def test_a_window_shorter_than_the_fallback_limit_does_not_commit_unseen(memory_path: Path) -> None:
    """Defects 2, 3 and 5: no contact, lost contact, and a silent source that last said success."""
    node = KillTrial(memory_path, {**SHORT, "timer.test.baseimage.update": 30, "contact.fresh.limit": 10})
    node.slots.read()
    node.set_slots(*TESTED)
    node.tick(10)
    node.is_reached = False
    node.tick(50)
    assert node.states == TESTED


def test_slots_that_do_not_answer_when_the_window_ends_are_committed_later(node: KillTrial) -> None:
    """Defect 4."""
    node.tick(40)
    (node.base / "slots" / "IMGB.state").write_text("lies")
    node.tick(40)
    assert len(lines_of(node, "SlotsUnreadable")) == 1
    assert node.reboots == []
    (node.base / "slots" / "IMGB.state").write_text("inprogress")
    node.tick(30)
    assert node.states == ("unused", "active", "IMGB")


@pytest.mark.parametrize("other", ["updating", "unused"])
def test_a_commit_ends_whatever_the_other_slot_is(node: KillTrial, other: str) -> None:
    """Defect 7."""
    node.tick(50)
    (node.base / "slots" / "IMGA.state").write_text(other)
    node.tick(50)
    assert node.states == ("unused", "active", "IMGB")
    assert node.reboots == []


def test_a_shutdown_waits_for_the_verdict(node: KillTrial) -> None:
    """Defect 12."""
    assert node.order("shutdown").outcome in {"accepted", "deferred"}
    node.tick(50)
    assert node.states == TESTED
    assert not node.status.device_shutdown
    node.tick(30)
    assert node.states == ("unused", "active", "IMGB")


def test_the_first_cause_keeps_its_text(node: KillTrial) -> None:
    """Defect 9."""
    node.tick()
    assert node.order("mark-failed").outcome == "accepted"
    node.tick(30)
    node.order("reboot", reason="a second cause")
    node.tick(60)
    assert [line["bootReason"] for line in node.reboots] == ["Fallback"]
    assert "second" not in node.status.reboot_reason


@pytest.mark.parametrize("kind", RUBBISH)
def test_rubbish_in_a_topic_is_one_line_and_no_reboot(node: KillTrial, kind: str) -> None:
    node.tick(20)
    node.is_reached = False
    path = node.run / "zedagent/ZedAgentStatus/zedagent.json"
    path.write_bytes(RUBBISH[kind])
    node.tick(30)
    assert len(lines_of(node, "BadTopic")) == 1, node.lines
    assert node.reboots == []
    node.is_reached = True
    node.tick(60)
    assert node.states == ("unused", "active", "IMGB")


def test_an_unknown_number_does_not_count_as_contact(node: KillTrial) -> None:
    node.is_reached = False
    node.tick(10)
    node.publish("zedagent", "ZedAgentStatus", "zedagent", ConfigGetStatus=99, NewField={"a": 1})
    node.tick(40)
    assert node.states == TESTED


@pytest.mark.parametrize("name", ["persist/kubeletx-health/memory", "run/kubeletx-health/state"])
@pytest.mark.parametrize(
    "content", [b"", b"crc32 00000000\n{}\n", b"\xff" * 100], ids=["empty", "sum", "rubbish"]
)
def test_a_broken_state_file_costs_no_boot(node: KillTrial, name: str, content: bytes) -> None:
    node.tick(30)
    (node.base / name).write_bytes(content)
    node.start()
    node.tick(100)
    assert node.states == ("unused", "active", "IMGB")
    assert node.reboots == []
    assert len(lines_of(node, "BadState")) == 1, node.lines
