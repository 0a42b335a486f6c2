"""Drivers that hang, flood, leave processes behind, print nonsense, or change while they are called."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kubeletx_flexvolume.host.processes import Processes
from structlog.testing import capture_logs

from kubeletx.api import TimedOut, Unavailable
from kubeletx.linux.programs import ProgramResult, run_program
from kubeletx_testing.waiting import let_others_work, until
from plugins.flexvolume.tests.host.flex_model import OK, PLAIN, FlexNode, failure, says


@pytest_asyncio.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[FlexNode]:
    """A node with a deadline of 0.6 s for the steps of a volume."""
    made = FlexNode(tmp_path.resolve(), timeout_seconds=0.6, init_timeout_seconds=0.6)
    yield made
    await made.close()


def is_alive(pid: int) -> bool:
    """Return True if the process has not ended; a zombie has."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.parametrize(
    ("output", "exit_code", "problem"),
    [
        ("", 0, "no JSON object"),
        ("null", 0, "no JSON object"),
        ("[]", 0, "no JSON object"),
        ("{}", 0, "no JSON object"),
        ("hello", 1, "exit code 1, and its output is no JSON object with a status: 'hello'"),
        (OK, 7, "exit code 7, and its status is Success, which contradicts the exit code"),
        ('{"status": "success"}', 0, "status success"),
        ('{"status": 1}', 0, "field status of its JSON is not text"),
        (f"{OK} done", 0, "no JSON object"),
        (f"{failure('no')}\n{OK}", 0, "contradict each other"),
        (f'{{"status": broken}}\n{OK}', 0, "contradict each other"),
        (failure("no luck"), 0, "failed: 'no luck'"),
        (failure("no luck"), 1, "failed: 'no luck'"),
    ],
)
async def test_an_answer_that_is_not_a_success_is_never_one(
    flex: FlexNode, output: str, exit_code: int, problem: str
) -> None:
    flex.install_plain(mount=says(output, exit_code))
    volumes = await flex.open()
    with pytest.raises((Unavailable, TimedOut)) as error:
        await volumes.prepare(flex.request())
    assert problem in str(error.value)
    assert flex.journal() == []


async def test_chatter_on_both_outputs_is_ignored_and_logged_once(flex: FlexNode) -> None:
    flex.install_plain(
        mount=f'echo "+ mount $2" >&2; echo mounting; add "$2"; {says(OK)}',
        unmount=f'echo bye >&2; drop "$2"; {says(OK)}',
    )
    volumes, request = await flex.open(), flex.request()
    with capture_logs() as logs:
        await volumes.prepare(request)
        await volumes.release(request)
    assert [one["command"] for one in logs if "Ignored output" in one["event"]] == ["mount"]


async def test_a_flood_of_output_is_cut_and_its_driver_killed(flex: FlexNode) -> None:
    flex.install_plain(mount='while :; do printf "%01000d\\n" 0; done')
    volumes = await flex.open()
    with pytest.raises(TimedOut, match="more output than 1 MiB") as error:
        await volumes.prepare(flex.request())
    assert len(str(error.value)) < 1000
    assert flex.running() == []


async def test_a_huge_json_object_is_refused(flex: FlexNode) -> None:
    flex.install_plain(mount="""printf '{"status":"Success","message":"%02000000d"}' 0; exit 0""")
    volumes = await flex.open()
    with pytest.raises(TimedOut, match="more output than 1 MiB"):
        await volumes.prepare(flex.request())


async def test_deeply_nested_json_is_refused(flex: FlexNode) -> None:
    text = '{"status":"Success","x":' + "[" * 200_000
    (flex.directory / "nested").write_text(text)
    flex.install_plain(mount=f"cat {flex.directory}/nested; exit 0")
    volumes = await flex.open()
    with pytest.raises(TimedOut, match="no JSON object"):
        await volumes.prepare(flex.request())


async def test_a_daemon_that_keeps_the_output_open_does_not_delay_the_answer_for_long(flex: FlexNode) -> None:
    pid_file = flex.directory / "daemon"
    flex.install_plain(mount=f'sleep 1000 & echo $! > {pid_file}; add "$2"; {says(OK)}')
    volumes, request = await flex.open(), flex.request()
    async with asyncio.timeout(10):
        await volumes.prepare(request)
    daemon = int(pid_file.read_text())
    try:
        assert is_alive(daemon), (
            "a daemon of a successful driver, such as that of a FUSE file system, is kept"
        )
    finally:
        os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize("prefix", ["", "trap '' TERM; "])
async def test_at_the_deadline_all_processes_of_the_driver_are_killed(hasty: FlexNode, prefix: str) -> None:
    pids = hasty.directory / "pids"
    script = f"sleep 1000 & echo $! >> {pids}; (sleep 1000; echo late) & echo $! >> {pids}; echo $$ >> {pids}; wait"
    hasty.install_plain(mount=f"{prefix}{script}")
    volumes = await hasty.open()
    with pytest.raises(TimedOut, match=r"did not answer within 0\.\d s and was killed"):
        await volumes.prepare(hasty.request())
    found = [int(line) for line in pids.read_text().split()]
    assert len(found) == 3
    await until(lambda: not any(is_alive(pid) for pid in found))
    assert (hasty.running(), hasty.journal()) == ([], [])


async def test_an_exited_driver_whose_child_floods_is_killed_with_it(flex: FlexNode) -> None:
    pid_file = flex.directory / "child"
    flood = 'while :; do printf "%01000d" 0; done'
    flex.install_plain(mount=f"({flood}) & echo $! > {pid_file}; {says(OK)}")
    volumes = await flex.open()
    with pytest.raises(TimedOut, match="more output than 1 MiB"):
        await volumes.prepare(flex.request())
    await until(lambda: not is_alive(int(pid_file.read_text())))


async def test_a_cancelled_call_kills_the_driver_and_keeps_the_journal(flex: FlexNode) -> None:
    pid_file = flex.directory / "pid"
    flex.install_plain(mount=f'echo $$ > {pid_file}; add "$2"; sleep 1000')
    volumes, request = await flex.open(), flex.request()
    call = asyncio.create_task(volumes.prepare(request), name="prepare")
    await until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    await until(lambda: flex.node.mounted)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not is_alive(int(pid_file.read_text())))
    assert flex.journal() == ["data"]
    await volumes.release(request)
    assert (flex.node.mounted, flex.journal()) == ([], [])


async def test_a_mount_that_was_interrupted_is_undone_before_it_is_done_again(flex: FlexNode) -> None:
    began = flex.directory / "began"
    flex.install_plain(mount=f'add "$2"; touch {began}; sleep 1000')
    volumes, request = await flex.open(), flex.request()
    call = asyncio.create_task(volumes.prepare(request), name="prepare")
    await until(began.exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    flex.install_plain()
    flex.forget_calls()
    await (await flex.open()).prepare(request)
    assert flex.commands() == ["unmount", "mount"]
    assert flex.node.mounted == [request.target]


async def test_a_driver_whose_init_hangs_delays_no_other(hasty: FlexNode) -> None:
    hasty.install_plain("example.com/bad", init="sleep 1000")
    hasty.install_plain()
    volumes = await hasty.open()
    async with asyncio.timeout(0.5):
        await volumes.prepare(hasty.request())
    with pytest.raises(Unavailable, match=r"driver example.com/bad: not ready"):
        await volumes.prepare(hasty.request(driver="example.com/bad"))


async def test_hanging_calls_of_one_driver_leave_room_for_another(flex: FlexNode) -> None:
    flex.install_plain("example.com/bad", mount="touch $2/here; sleep 1000")
    flex.install_plain()
    volumes = await flex.open()
    bad = [flex.request(f"v{number}", driver="example.com/bad") for number in range(9)]
    calls = [asyncio.create_task(volumes.prepare(one), name=one.name) for one in bad]
    try:
        await until(lambda: sum(Path(one.target, "here").exists() for one in bad) == 6)
        await volumes.prepare(flex.request())
        assert sum(Path(one.target, "here").exists() for one in bad) == 6
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_at_most_eight_calls_run_over_all_drivers(flex: FlexNode) -> None:
    gate = flex.directory / "gate"
    os.mkfifo(gate)
    mount = f"touch $2/here; read _ < {gate}; {says(OK)}"
    for name in ("a.com/one", "b.com/two"):
        flex.install_plain(name, mount=mount)
    volumes = await flex.open()
    requests = [
        flex.request(f"v{number}", driver=("a.com/one", "b.com/two")[number % 2]) for number in range(12)
    ]
    calls = [asyncio.create_task(volumes.prepare(one), name=one.name) for one in requests]
    here = [Path(one.target, "here") for one in requests]
    try:
        await until(lambda: sum(one.exists() for one in here) == 8)
        for _ in range(50):
            await let_others_work()
        assert sum(one.exists() for one in here) == 8
        writer = await asyncio.to_thread(os.open, gate, os.O_RDWR)
        os.write(writer, b"\n" * 12)
        await asyncio.gather(*calls)
        os.close(writer)
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_driver_that_deletes_itself_has_answered(flex: FlexNode) -> None:
    flex.install_plain(mount=f'rm "$0"; add "$2"; {says(OK)}')
    volumes, request = await flex.open(), flex.request()
    await volumes.prepare(request)
    with pytest.raises(Unavailable, match="install"):
        await volumes.release(request)
    flex.install_plain()
    await volumes.release(request)
    assert flex.journal() == []


async def test_a_driver_that_is_replaced_during_a_call_is_initialised_and_used(flex: FlexNode) -> None:
    gate = flex.directory / "gate"
    os.mkfifo(gate)
    flex.install_plain(mount=f'add "$2"; touch "$2/here"; read _ < {gate}; {says(OK)}')
    volumes, request = await flex.open(), flex.request()
    call = asyncio.create_task(volumes.prepare(request), name="prepare")
    await until(Path(request.target, "here").exists)
    flex.install_plain(unmount=f'rm "$2/here"; drop "$2"; echo new >> {flex.calls_file}; {says(OK)}')
    await asyncio.to_thread(gate.write_text, "\n")
    await call
    await volumes.release(request)
    assert flex.commands() == ["mount", "unmount", "new"]


@pytest.mark.parametrize(
    "form", ["hunter2-secret", base64.b64encode(b"hunter2-secret\n").decode(), "hunter2-\\u0073ecret"]
)
@pytest.mark.parametrize("exit_code", [0, 1])
async def test_a_secret_that_a_driver_prints_is_in_no_error_and_no_log(
    flex: FlexNode, form: str, exit_code: int
) -> None:
    failing = f'{{"status": "Failure", "message": "login with {form} failed"}}'
    request = flex.request(secrets={"key": b"hunter2-secret\n"})
    for output in (f"mount: {form}", failing):
        flex.install_plain(mount=f"{says(output, exit_code)}")
        volumes = await flex.open()
        with capture_logs() as logs, pytest.raises((Unavailable, TimedOut)) as error:
            await volumes.prepare(request)
        await until(lambda: any(driver.failures for driver in flex.drivers().values()))
        shown = [driver.last_error for driver in flex.drivers().values()]
        texts = [str(error.value), repr(error.value), str(logs), *shown]
        for text in texts:
            assert "hunter2-secret" not in text
            assert "aHVudGVyMi1zZWNyZXQ" not in text


async def test_a_secret_is_in_no_error_of_a_driver_that_cannot_be_started(flex: FlexNode) -> None:
    flex.install_plain()
    volumes = await flex.open()
    await volumes.prepare(flex.request("first"))
    flex.path_of().chmod(0o644)
    with capture_logs() as logs, pytest.raises(Unavailable) as error:
        await volumes.prepare(flex.request(secrets={"key": b"hunter2-secret"}))
    for text in (str(error.value), str(error.value.__cause__), str(error.value.__context__), str(logs)):
        assert "hunter2" not in text
        assert "aHVudGVy" not in text


async def test_drivers_get_a_small_environment_no_input_and_a_session_of_their_own(tmp_path: Path) -> None:
    flex = FlexNode(tmp_path.resolve(), environment={"HTTPS_PROXY": "http://proxy"})
    seen = flex.directory / "seen"
    flex.install_plain(
        mount=f"env > {seen}; cat >> {seen}; echo session $(ps -o sess= -p $$) $$ >> {seen}; pwd >> {seen}; {says(OK)}"
    )
    volumes = await flex.open()
    try:
        await volumes.prepare(flex.request())
    finally:
        await flex.close()
    lines = [line for line in seen.read_text().split("\n") if line]
    variables = {line.partition("=")[0] for line in lines if "=" in line}
    assert variables - {"_", "OLDPWD", "SHLVL"} == {
        "PATH",
        "HOME",
        "LANG",
        "HTTPS_PROXY",
        "PWD",
        "KUBELETX_CALL",
    }
    session, pid = next(line for line in lines if line.startswith("session")).split()[1:]
    assert session == pid
    assert lines[-1] == "/"


async def test_a_call_that_a_killed_agent_left_is_ended_at_the_start(flex: FlexNode) -> None:
    flex.install_plain()
    program = (
        "import subprocess, sys, pathlib, msgspec\n"
        "from kubeletx_flexvolume.host.processes import RunningProcess, start_time\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=subprocess.DEVNULL)\n"
        "path = pathlib.Path(sys.argv[1]); path.mkdir()\n"
        "one = RunningProcess('key', child.pid, start_time(child.pid))\n"
        "(path / f'{child.pid}.json').write_bytes(msgspec.json.encode(one))\n"
        "print(child.pid, flush=True)\n"
    )
    script = flex.directory / "agent.py"
    script.write_text(program)
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        str(flex.host.state_directory / "running"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await agent.communicate()
    pid = int(output)
    assert is_alive(pid)
    await flex.open()
    await until(lambda: not is_alive(pid))


async def test_a_call_of_an_agent_that_was_killed_before_it_knew_the_process_is_ended(
    flex: FlexNode,
) -> None:
    """The record is written before the program starts, and has its process ID only afterwards."""
    running = flex.host.state_directory / "running"
    running.mkdir()
    (running / "one.json").write_text(
        '{"key": "volume", "pid": 0, "started": "", "call": "0123456789abcdef"}'
    )
    (running / "other.json").write_text('{"key": "volume", "pid": 0, "started": "", "call": "of-no-process"}')
    process = await asyncio.create_subprocess_exec(
        "sleep", "1000", env={**os.environ, "KUBELETX_CALL": "0123456789abcdef"}, start_new_session=True
    )
    other = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
    try:
        await flex.open()
        assert await process.wait() == -signal.SIGTERM
        assert other.returncode is None
        assert flex.running() == []
    finally:
        other.kill()
        await other.wait()


async def test_a_program_has_a_record_before_it_starts(tmp_path: Path) -> None:
    seen = []

    async def starting(*args: Any, **options: Any) -> ProgramResult:
        seen.extend(json.loads(one.read_bytes()) for one in (tmp_path / "running").iterdir())
        return await run_program(*args, **options)

    processes = Processes(tmp_path / "running", run=starting)
    await processes.open()
    with pytest.raises(FileNotFoundError):
        await processes.run(("/no/such/program",), key="volume", environment={})
    assert [(one["key"], one["pid"]) for one in seen] == [("volume", 0)]
    assert list((tmp_path / "running").iterdir()) == []


async def test_a_record_of_a_process_that_ended_harms_no_other(flex: FlexNode) -> None:
    running = flex.host.state_directory / "running"
    running.mkdir()
    (running / f"{os.getppid()}.json").write_text(
        f'{{"key": "", "pid": {os.getppid()}, "started": "another boot 1"}}'
    )
    (running / "damaged.json").write_text("{")
    flex.install({"init": says(PLAIN)})
    await flex.open()
    assert is_alive(os.getppid())
