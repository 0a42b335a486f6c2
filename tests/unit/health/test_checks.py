"""Checks: settings, looks at a node of files, hysteresis, deadlines, and the verdict on an image."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from kubeletx.health.checks.background import Background
from kubeletx.health.checks.base import LookFacts
from kubeletx.health.checks.section import BrokenCheck, read_checks
from kubeletx.health.checks.settling import CheckOutcome, CheckRecord, settle
from kubeletx_testing.waiting import block_until
from tests.unit.health.trial import SHORT, Trial, fail

DONE = 70
"""Seconds from a request of a reboot to the reboot."""
COMMAND = {"kind": "command", "level": "required", "period": 10, "failures": 2}


def look(node: Path, kind: str, **fields: Any) -> CheckOutcome:
    """Look once at a node whose /proc and /sys lie in a directory."""
    before, seconds = fields.pop("before", {}), fields.pop("seconds", 10)
    (check,) = read_checks([{"kind": kind, **fields}], fail).values()
    facts = LookFacts(
        run=node / "run", now=100, proc=node / "proc", sys=node / "sys", before=before, seconds=seconds
    )
    return check.look(facts)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    files = {
        "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 200 kB\nHugePages_Total: 0\n",
        "proc/stat": "cpu  50 0 50 800 100 0 0 0 0 0\ncpu0 1 1\n",
        "proc/pressure/memory": "some avg10=1.00 avg60=60.50 avg300=3.00 total=9\nfull avg10=0.00 avg60=0.25 avg300=0.00 total=1\n",
    }
    write(tmp_path, files)
    return tmp_path


def write(base: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(content)


# -- looks


def test_disk_memory_and_pressure_compare_with_their_limits(node: Path) -> None:
    path = str(node)
    assert look(node, "disk-space", path=path, free="1Ki").ok
    assert look(node, "disk-space", path=path, free="999999Ti").ok is False
    assert look(node, "inodes", path=path, free="0%").ok
    assert look(node, "memory", available="20%") == CheckOutcome(
        True, "20.0% of memory free, 20% wanted at least"
    )
    assert look(node, "memory", available="201Ki").ok is False
    assert look(node, "pressure").ok is False
    assert look(node, "pressure", stall="full", window="avg300").ok


def test_cpu_use_is_the_share_between_two_looks(node: Path) -> None:
    first = look(node, "cpu")
    assert first.ok is None
    write(node, {"proc/stat": "cpu 140 0 50 805 105 0 0 0 0 0\n"})
    second = look(node, "cpu", before=first.counters, most=89.5)
    assert (second.ok, second.message) == (False, "CPUs are busy for 90.0%, at most 89.5%")


def test_the_clock_has_a_state(node: Path) -> None:
    outcome = look(node, "clock")
    assert outcome.ok is ("not" not in outcome.message)


@pytest.mark.parametrize(
    ("script", "ok", "message"),
    [
        ("echo all well; exit 0", True, "all well"),
        ("echo no link >&2; exit 1", False, "no link"),
        ("echo huh; exit 3", None, "exit code 3: huh"),
        ("exec sleep 60", None, "/bin/sh did not end within 0.2 s, and was stopped with SIGKILL"),
    ],
)
def test_a_command_decides_by_its_exit_code(node: Path, script: str, ok: bool | None, message: str) -> None:
    deadline = 0.2 if ok is None and "sleep" in script else 60
    outcome = look(node, "command", command=["/bin/sh", "-c", script], deadline=deadline)
    assert (outcome.ok, outcome.message) == (ok, message)


# -- settings


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"kind": "disc"}, "checks[0]: kind 'disc' is not one of "),
        (["disk"], "checks[0]: kind 'None' is not one of "),
        ({"kind": "memory", "free": "5%"}, "unknown field `free`; the fields of memory are name, level, "),
        ({"kind": "memory", "available": "much"}, "'much' is not an amount such as 512Mi or 5%"),
        ({"kind": "cpu", "period": 5}, "period 5 is not between 10 and 86400"),
        ({"kind": "cpu", "level": "vital"}, "Invalid enum value 'vital' - at `level`"),
        ({"kind": "command", "command": []}, "command is empty"),
        ({"kind": "command"}, "missing required field `command`"),
    ],
)
def test_a_bad_entry_is_named_and_stays_unknown(entry: Any, problem: str) -> None:
    lines: list[str] = []
    checks = read_checks([entry, {"kind": "cpu", "name": "load"}], lines.append)
    assert len(lines) == 1
    assert problem in lines[0]
    assert list(checks) == ["checks[0]", "load"]
    assert isinstance(checks["checks[0]"], BrokenCheck)


def test_names_are_unique_and_a_section_is_a_list() -> None:
    lines: list[str] = []
    checks = read_checks([{"kind": "cpu"}, {"kind": "cpu", "level": "required"}], lines.append)
    assert list(checks) == ["cpu", "checks[1]"]
    assert checks["checks[1]"].level == "required"
    assert read_checks({"kind": "cpu"}, lines.append) == {}
    assert "a list of checks is expected" in lines[1]


# -- results


def test_a_result_changes_after_looks_in_a_row() -> None:
    record, seen = CheckRecord(), ""
    words = {"+": True, "-": False, ".": None}
    for word in "+---+-...+":
        record = settle(record, CheckOutcome(words[word], "so it is"), failures=3, successes=1)
        seen += next(letter for letter, ok in words.items() if ok is record.ok)
    assert seen == "+++-++++.+"
    record = settle(record, CheckOutcome(False, "two\nlines"), failures=3, successes=1)
    assert record.message == "1 of 3 in a row: two lines"


def test_work_that_hangs_is_late_in_each_period_and_never_started_twice() -> None:
    now, over, begun = [0.0], Event(), []

    def work() -> str:
        begun.append(now[0])
        over.wait()
        return "done"

    background: Background[str] = Background(lambda: now[0])
    background.start("disk", work, 10)
    assert background.results() == {}
    for now[0] in (10, 40, 70):
        background.start("disk", work, 10)
        assert background.results() == {"disk": None}
        assert background.results() == {}
    over.set()
    block_until(lambda: background.is_idle)
    assert background.results() == {}
    background.start("disk", work, 10)
    block_until(lambda: background.is_idle)
    assert background.results() == {"disk": "done"}
    assert begun == [0, 70]


# -- verdict


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A node whose required check reads a file: its first line is the exit code."""
    (tmp_path / "code").write_text("0")
    command = ["/bin/sh", "-c", f'echo "the code is $(cat {tmp_path}/code)"; exit $(cat {tmp_path}/code)']
    return Trial(tmp_path, SHORT, checks=[{**COMMAND, "name": "app", "command": command, "deadline": 60}])


def tick(trial: Trial, seconds: int) -> None:
    """Let ticks pass; each takes the results of the looks of the one before."""
    for _ in range(seconds // 10):
        trial.tick()
        block_until(lambda: trial.guardian.check_runner.background.is_idle)


def install(trial: Trial) -> None:
    assert trial.order("install", "IMGB").outcome == "accepted"
    trial.until_reboot()


def test_an_image_with_good_checks_is_committed(trial: Trial) -> None:
    install(trial)
    tick(trial, 100)
    assert trial.states == ("unused", "active", "IMGB")
    (check,) = trial.guardian.checks
    assert (check.name, check.ok, check.message) == ("app", True, "the code is 0")


def test_an_image_with_a_failed_check_falls_back_with_its_message(trial: Trial) -> None:
    (trial.base / "code").write_text("1")
    install(trial)
    tick(trial, 40 + 300 + DONE + 20)
    assert trial.states == ("active", "inprogress", "IMGA")
    assert "app: the code is 1" in trial.reboots[-1]["reason"]
    assert any(line == "CheckFailed: app: the code is 1" for line in trial.lines)


def test_an_unknown_required_check_holds_the_commit_and_costs_nothing(trial: Trial) -> None:
    (trial.base / "code").write_text("7")
    install(trial)
    tick(trial, 600)
    assert trial.states == ("active", "inprogress", "IMGB")
    assert trial.guardian.checks[0].ok is None
    (trial.base / "code").write_text("0")
    tick(trial, 100)
    assert trial.states == ("unused", "active", "IMGB")


def test_a_result_outlives_a_restart_of_the_guardian(trial: Trial) -> None:
    (trial.base / "code").write_text("1")
    tick(trial, 40)
    trial.start()
    trial.tick()
    assert trial.guardian.checks[0].ok is False
