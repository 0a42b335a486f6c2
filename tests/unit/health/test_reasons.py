"""Reasons of boots: stored, deduced, shown. The cases are those of the first implementation's own tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubeletx.health.model import BootReason
from kubeletx.health.reasons import BootRecord, ReasonFiles, trim_stack
from tests.unit.health.kills import KillTrial
from tests.unit.health.trial import SHORT, Trial


def smart(node: Trial, before: int, now: int) -> None:
    """Write what the disk counted before and now."""
    for name, count in (("SMART_details_previous.json", before), ("SMART_details.json", now)):
        (node.persist / name).write_text(json.dumps({"power_cycle_count": count}))


@pytest.mark.parametrize(
    ("stored", "cycles", "status", "expected"),
    [
        ("", (5, 6), "", BootReason.POWER_FAIL),
        ("", (5, 5), "", BootReason.KERNEL),
        ("", None, "", BootReason.UNKNOWN),
        ("BootReasonFatal", (5, 6), "", BootReason.FATAL),
        ("", None, "CARDRESET", BootReason.HW_WATCHDOG),
        ("", (5, 5), "CARDRESET", BootReason.HW_WATCHDOG),
        ("", (5, 6), "CARDRESET", BootReason.POWER_FAIL),
        ("BootReasonRebootCmd", None, "CARDRESET", BootReason.REBOOT_CMD),
        ("rubbish", None, "", BootReason.PARSE_FAIL),
    ],
)
def test_a_reason_is_read_or_deduced(
    tmp_path: Path, stored: str, cycles: tuple[int, int] | None, status: str, expected: BootReason
) -> None:
    node = Trial(tmp_path)
    assert node.status.boot_reason == BootReason.FIRST
    if stored:
        (node.persist / "boot-reason").write_text(stored)
    if cycles:
        smart(node, *cycles)
    (node.persist / "hw_watchdog_bootstatus").write_text(status)
    node.slots.reboot("power cut", BootReason.NONE)
    node.start()
    assert node.status.boot_reason == expected
    assert not (node.persist / "boot-reason").exists()


def test_the_next_boot_shows_the_reason_time_and_image(tmp_path: Path) -> None:
    node = Trial(tmp_path, SHORT)
    node.order("reboot", reason="kernel parameters")
    node.until_reboot()
    for _ in range(2):  # the second time: the guardian alone was restarted
        status = node.status
        assert (status.boot_reason, status.reboot_reason) == (BootReason.REBOOT_CMD, "kernel parameters")
        assert (status.reboot_image, status.restart_counter) == ("IMGA", 1)
        assert status.reboot_time
        node.start()


def test_the_last_ten_boots_are_published_newest_first(tmp_path: Path) -> None:
    node = Trial(tmp_path, SHORT)
    for number in range(12):
        node.order("reboot", reason=f"reboot {number}")
        node.until_reboot()
        node.tick()
        assert node.boots[0] == (f"RebootCmd: reboot {number}", "IMGA")
    assert node.boots == [(f"RebootCmd: reboot {number}", "IMGA") for number in range(11, 1, -1)]


def test_the_first_cause_wins_with_its_text(tmp_path: Path) -> None:
    files = ReasonFiles(tmp_path)
    files.write(BootRecord(boot_reason=BootReason.OOM, reason="no memory", stack="s" * 3000))
    files.write(BootRecord(boot_reason=BootReason.REBOOT_CMD, reason="later"))
    record = files.read()
    assert record is not None
    assert (record.boot_reason, record.reason, len(record.stack)) == (BootReason.OOM, "no memory", 1600)


def test_stacks_are_trimmed_at_their_start() -> None:
    assert trim_stack("x" * 100) == "x" * 100
    assert trim_stack("a" * 1000 + "b" * 1000).startswith("...\na")
    assert len(trim_stack("a" * 9000)) == 1600


@pytest.mark.parametrize(("content", "before"), [(None, 0), ("42", 42), ("garbage", 0), ("99\n", 99)])
def test_boots_are_counted(tmp_path: Path, content: str | None, before: int) -> None:
    path = tmp_path / "persist" / "status" / "restartcounter"
    if content is not None:
        path.parent.mkdir(parents=True)
        path.write_text(content)
    node = Trial(tmp_path)
    assert node.status.restart_counter == before
    assert (node.persist / "status" / "restartcounter").read_text() == f"{before + 1}\n"


def test_a_kill_at_the_start_counts_no_boot_twice(memory_path: Path) -> None:
    node = KillTrial(memory_path)
    kill, was_killed = 0, True
    while was_killed:
        node.slots.reboot("power cut", BootReason.NONE)
        was_killed = node.start_killed_at(kill)
        node.start()
        kill += 1
        assert node.status.restart_counter == kill
        assert (node.persist / "status" / "restartcounter").read_text() == f"{kill + 1}\n"
    assert kill > 3
