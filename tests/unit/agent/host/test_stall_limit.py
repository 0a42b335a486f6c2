"""What the watchdog's thread does about a plugin that blocks the agent for too long, and what the next start does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.agent.host import dumps
from kubeletx.agent.host.dumps import write_dump
from kubeletx.agent.host.stall_limit import LOG, RESTART, STALLED_EXIT_CODE, StallLimit
from kubeletx.agent.host.watchdog import EventLoopWatchdog, LoopStall, StallTimes
from kubeletx.api import RuntimeName
from kubeletx.runtimes.handles.abandoned import PluginCall, plugin_call
from kubeletx.runtimes.stall_notes import StallNotes

CALL = PluginCall("bad", "unit_status")


def a_stall(call: PluginCall | None = CALL) -> LoopStall:
    return LoopStall(seconds=30.2, call=call, task="runtime-bad-relist", stack="")


def test_a_runtime_that_blocks_is_noted_dumped_and_ends_the_agent(tmp_path: Path) -> None:
    codes: list[int] = []
    with capture_logs() as lines:
        StallLimit(tmp_path, RESTART, codes.append)(a_stall())
    assert codes == [STALLED_EXIT_CODE]
    note = StallNotes(tmp_path).load()[RuntimeName("bad")]
    assert (note.method, note.seconds) == ("unit_status", 30.2)
    text = Path(note.dump).read_text()
    assert "runtime: bad\nmethod: unit_status\n" in text
    assert "test_stall_limit.py" in text
    assert [(line["runtime"], line["method"]) for line in lines] == [CALL]


@pytest.mark.parametrize(("action", "call"), [(LOG, CALL), (RESTART, None)])
def test_nothing_is_ended_without_a_runtime_or_if_the_setting_is_log(
    action: str, call: PluginCall | None, tmp_path: Path
) -> None:
    codes: list[int] = []
    with capture_logs() as lines:
        StallLimit(tmp_path, action, codes.append)(a_stall(call))
    assert codes == []
    assert StallNotes(tmp_path).load() == {}
    assert [line["event"] for line in lines] == ["Event loop blocked for too long"]
    assert Path(lines[0]["dump"]).exists()


def test_a_runtime_that_blocks_although_it_has_a_note_does_not_end_the_agent_again(tmp_path: Path) -> None:
    codes: list[int] = []
    for _ in range(2):
        StallLimit(tmp_path, RESTART, codes.append)(a_stall())
    assert codes == [STALLED_EXIT_CODE]


def test_without_space_for_the_note_the_agent_is_not_ended(tmp_path: Path) -> None:
    codes: list[int] = []
    (tmp_path / "stalled").write_text("a file where the directory should be")
    StallLimit(tmp_path, RESTART, codes.append)(a_stall())
    assert codes == []


def test_the_newest_dumps_are_kept(tmp_path: Path) -> None:
    paths = [write_dump(tmp_path, "stall", [str(number)]) for number in range(dumps.MOST_DUMPS + 3)]
    assert sorted((tmp_path / "dumps").iterdir()) == paths[3:]


def test_notes_are_cleared_and_an_unreadable_one_counts(tmp_path: Path) -> None:
    notes = StallNotes(tmp_path)
    (tmp_path / "stalled").mkdir()
    (tmp_path / "stalled" / "torn").write_text("{")
    assert notes.load()[RuntimeName("torn")].method == "unknown"
    assert notes.clear() == ("torn",)
    assert notes.load() == {}


async def test_a_stall_is_logged_while_it_lasts_and_reported_once_at_its_limit() -> None:
    times = StallTimes(ask_seconds=0.01, stall_seconds=0.02, log_seconds=0.04)
    reports: list[LoopStall] = []
    reported = threading.Event()

    def report(stall: LoopStall) -> None:
        reports.append(stall)
        reported.set()

    async def block() -> None:
        assert reported.wait(60)

    with capture_logs() as lines:
        watch = EventLoopWatchdog(limit_seconds=0.2, on_limit=report, times=times)
        watch.start()
        await plugin_call("bad", "unit_status", block)
        during = [line for line in lines if line["event"] == "Event loop blocked"]
        async with asyncio.timeout(60):
            while lines[-1]["event"] != "Event loop stalled":
                await asyncio.sleep(0)
        watch.close()
    assert [stall.call for stall in reports] == [CALL]
    assert len(during) >= 2
    assert {(line["runtime"], line["method"]) for line in during} == {CALL}
    assert "block" in during[0]["stack"]
    assert during[1]["elapsed_seconds"] >= 0.08
