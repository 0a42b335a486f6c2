"""Programs of the agent, on real programs: messages, deadlines, locks of volumes, secrets."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from kubeletx_flexvolume.commands import Commands

from kubeletx.api import TimedOut, Unavailable
from kubeletx.linux.programs import STDIN_FILE
from kubeletx_testing.waiting import until


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path, grace_seconds=0.2)


async def test_the_result_has_status_and_output(commands: Commands) -> None:
    result = await commands.run(["sh", "-c", "echo out; echo err >&2; exit 3"], seconds=10)
    assert (result.exit_code, result.out, result.stderr.decode()) == (3, "out\n", "err\n")
    assert str(result.problem("volume v")) == (
        "volume v: sh -c 'echo out; echo err >&2; exit 3' failed with exit status 3: err"
    )


async def test_a_problem_leaves_out_the_description_of_options(commands: Commands) -> None:
    script = (
        "printf 'Filesystem must be larger than 300MB.\\nUsage: mkfs.xfs\\n/* blocksize */\\n' >&2; exit 1"
    )
    result = await commands.run(["sh", "-c", script], seconds=10)
    assert str(result.problem("volume v")).endswith("exit status 1: Filesystem must be larger than 300MB.")


async def test_a_program_gets_no_input_and_a_plain_environment(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    result = await commands.run(["sh", "-c", "cat; env"], seconds=10)
    assert "LC_ALL=C" in result.out
    assert "PASSWORD" not in result.out


async def test_a_program_that_is_not_installed_is_named(commands: Commands) -> None:
    with pytest.raises(Unavailable, match=r"program mkfs\.none is not on this node; install it"):
        await commands.run(["mkfs.none"], seconds=1)


async def test_a_program_over_its_deadline_is_interrupted(commands: Commands) -> None:
    with pytest.raises(TimedOut, match=r"sleep 60 did not end within 0.1 s, and was stopped with SIGINT"):
        await commands.run(["sleep", "60"], seconds=0.1)


async def test_a_secret_is_a_file_and_no_argument(commands: Commands) -> None:
    script = f"cat {STDIN_FILE}; tr '\\0' ' ' < /proc/self/cmdline"
    result = await commands.run(["sh", "-c", script], seconds=10, secret=b"hunter2")
    assert result.out.startswith("hunter2")
    assert "hunter2" not in result.out[len("hunter2") :]


async def test_only_one_program_of_a_volume_runs_at_a_time(commands: Commands, tmp_path: Path) -> None:
    first = asyncio.create_task(commands.run(["sleep", "60"], seconds=2, volume="pv-1"), name="first")
    await until((tmp_path / "pv-1.lock").exists)
    with pytest.raises(
        Unavailable, match=r"volume pv-1 is locked by PID \d+ \(sleep 60\), which has not ended"
    ):
        await commands.run(["true"], seconds=1, volume="pv-1")
    assert (await commands.run(["true"], seconds=1, volume="pv-2")).exit_code == 0
    with pytest.raises(TimedOut):
        await first
    assert (await commands.run(["true"], seconds=1, volume="pv-1")).exit_code == 0


async def test_a_program_keeps_its_lock_when_the_agent_is_gone(tmp_path: Path) -> None:
    source = (
        "import asyncio, os, pathlib\n"
        "from kubeletx_flexvolume.commands import Commands\n"
        f"commands = Commands(pathlib.Path({str(tmp_path)!r}))\n"
        "async def main():\n"
        "    asyncio.get_running_loop().call_later(0.3, os._exit, 9)\n"
        f"    await commands.run(['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 60'], seconds=50, volume='pv-1')\n"
        "asyncio.run(main())\n"
    )
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", source)
    assert await agent.wait() == 9
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(Unavailable, match=rf"locked by PID {pid} \(sleep 60\)"):
        await Commands(tmp_path).run(["true"], seconds=1, volume="pv-1")
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not _runs(pid))
    assert (await Commands(tmp_path).run(["true"], seconds=1, volume="pv-1")).exit_code == 0


def _runs(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
