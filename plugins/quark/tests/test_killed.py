"""Which processes of a frozen container count as killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_quark.killed import ENDED_SECONDS, find_killed, wait_ended

from kubeletx.testing import FakeClock

STATUS = "Name:\tsleep\nSigQ:\t0/1\nSigPnd:\t{}\nShdPnd:\t{}\nSigBlk:\t0000000000000000\n"
NONE, KILL, TERM = f"{0:016x}", f"{1 << 8:016x}", f"{1 << 14:016x}"


def place(tmp_path: Path, statuses: dict[int, str]) -> tuple[Path, Path]:
    """A cgroup with the even processes, one below it with the odd ones, and their /proc."""
    below, proc = tmp_path / "cgroup" / "below", tmp_path / "proc"
    below.mkdir(parents=True)
    for directory, rest in ((below.parent, 0), (below, 1)):
        text = "".join(f"{pid}\n" for pid in statuses if pid % 2 == rest)
        (directory / "cgroup.procs").write_text(text)
    for pid, status in statuses.items():
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "status").write_text(status)
    return below.parent, proc


@pytest.mark.parametrize(
    ("own", "shared", "is_killed"),
    [(NONE, NONE, False), (TERM, TERM, False), (KILL, NONE, True), (NONE, KILL, True)],
)
@pytest.mark.parametrize("pid", [8, 9])
def test_a_pending_sigkill_is_found_in_the_cgroup_and_below(
    tmp_path: Path, pid: int, own: str, shared: str, is_killed: bool
) -> None:
    statuses = {pid: STATUS.format(own, shared), 20: STATUS.format(NONE, NONE)}
    directory, proc = place(tmp_path, statuses)
    assert find_killed(directory, proc) == ((pid,) if is_killed else ())


def test_a_process_that_has_ended_and_a_cgroup_that_is_gone_are_not_an_error(tmp_path: Path) -> None:
    directory, proc = place(tmp_path, {8: STATUS.format(KILL, NONE)})
    (proc / "8" / "status").unlink()
    assert find_killed(directory, proc) == ()
    assert find_killed(tmp_path / "gone", proc) == ()


@pytest.mark.parametrize(("state", "seconds"), [("Z", 0), ("X", 0), (None, 0), ("S", ENDED_SECONDS)])
async def test_the_end_of_a_process_is_awaited_for_a_limited_time(
    tmp_path: Path, state: str | None, seconds: float
) -> None:
    clock = FakeClock(auto_advance=True)
    if state is not None:
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "stat").write_text(f"7 (a) b) {state} 1 7 7 0")
    began = clock.monotonic()
    await wait_ended([7], clock, tmp_path)
    assert clock.monotonic() - began == pytest.approx(seconds, abs=0.01)
