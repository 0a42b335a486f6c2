"""`run_program`: nothing of a program outlives its deadline."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletx.runtimes.host.programs import ProgramFailed, run_program


async def test_a_program_gives_its_output_or_says_why_not() -> None:
    assert await run_program("/bin/cat", stdin=b"text", seconds=10) == b"text"
    with pytest.raises(ProgramFailed, match="went wrong"):
        await run_program("/bin/sh", "-c", "echo went wrong; exit 1", seconds=10)


async def test_a_child_that_holds_the_pipes_after_its_parent_ended_is_killed_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        await run_program("/bin/sh", "-c", f"sleep 1000 & echo $! > {pid_file}", seconds=0.5)
    pid = int(pid_file.read_text())
    async with asyncio.timeout(60):
        while _lives(pid):
            await asyncio.sleep(0)


def _lives(pid: int) -> bool:
    """A zombie that nobody waits for here is dead enough."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and Path(f"/proc/{pid}").exists()
