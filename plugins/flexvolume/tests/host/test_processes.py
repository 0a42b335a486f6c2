"""Programs in process groups, their records, and the limits of calls."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.device import Device
from kubeletx_flexvolume.host.driver import MOST_CALLS, MOST_OF_ONE_DRIVER, CallSlots
from kubeletx_flexvolume.host.node import Node, same_volume
from kubeletx_flexvolume.host.processes import Processes, group_lives
from structlog.testing import capture_logs

from kubeletx.api import TimedOut, Unavailable
from kubeletx.linux.mounts import MountPoint
from kubeletx.linux.programs import ProgramResult
from kubeletx_testing.waiting import until

ENVIRONMENT = {"PATH": os.environ["PATH"]}


async def made(tmp_path: Path) -> Processes:
    one = Processes(tmp_path / "running")
    await one.open()
    return one


def shell(script: str) -> tuple[str, ...]:
    return "/bin/sh", "-c", script


async def test_output_and_exit_code_are_returned(tmp_path: Path) -> None:
    processes = await made(tmp_path)
    found = await processes.run(shell("echo out; echo err >&2; exit 3"), environment=ENVIRONMENT)
    assert (found.exit_code, found.stdout, found.stderr, found.is_cut) == (3, b"out\n", b"err\n", False)
    killed = await processes.run(shell("kill -9 $$"), environment=ENVIRONMENT)
    assert killed.exit_code == -9


async def test_a_program_has_a_record_while_it_runs(tmp_path: Path) -> None:
    processes = await made(tmp_path)
    running = tmp_path / "running"
    call = asyncio.create_task(
        processes.run(shell("sleep 1000"), key="volume", environment=ENVIRONMENT), name="call"
    )
    await until(lambda: list(running.iterdir()))
    (record,) = running.iterdir()
    assert b'"key":"volume"' in record.read_bytes()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert list(running.iterdir()) == []


async def test_a_full_disk_keeps_the_record_by_which_a_started_program_is_found(tmp_path: Path) -> None:
    running = tmp_path / "running"
    records: list[bytes] = []

    async def run(program: Sequence[str], *, started: Callable[[int], object], **_: Any) -> ProgramResult:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            started(os.getpid())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        records.extend(path.read_bytes() for path in running.iterdir())
        return ProgramResult(name=program[0], exit_code=0)

    processes = Processes(running, run=run)
    await processes.open()
    with capture_logs() as logs:
        await processes.run(("driver",), key="volume", environment=ENVIRONMENT)
    assert [one["event"] for one in logs] == ["Failed to record a running program"]
    (record,) = records
    assert b'"key":"volume","pid":0' in record


async def test_a_call_that_is_cancelled_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    processes = await made(tmp_path)
    for turns in range(8):
        call = asyncio.create_task(
            processes.run(shell("sleep 1000"), environment=ENVIRONMENT), name=f"call {turns}"
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert list((tmp_path / "running").iterdir()) == []


async def test_a_program_that_does_not_exist_is_an_oserror(tmp_path: Path) -> None:
    processes = await made(tmp_path)
    with pytest.raises(FileNotFoundError):
        await processes.run(("/no/such/program",), environment=ENVIRONMENT)


async def test_a_process_that_outlives_its_kill_blocks_further_calls_for_its_volume(
    tmp_path: Path,
) -> None:
    alive = {True}
    processes = Processes(
        tmp_path / "running", lives=lambda pid: bool(alive)
    )  # as in an uninterruptible call
    await processes.open()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await processes.run(shell("exec sleep 1000"), key="volume", environment=ENVIRONMENT)
    with pytest.raises(Unavailable, match=r"does not end although it was killed \(process \d+\)"):
        await processes.run(shell("exit 0"), key="volume", environment=ENVIRONMENT)
    assert (await processes.run(shell("exit 0"), key="other", environment=ENVIRONMENT)).exit_code == 0
    alive.clear()
    assert (await processes.run(shell("exit 0"), key="volume", environment=ENVIRONMENT)).exit_code == 0


async def test_a_program_that_prints_too_much_and_outlives_its_kill_blocks_further_calls(
    tmp_path: Path,
) -> None:
    processes = Processes(tmp_path / "running", lives=lambda pid: True)
    await processes.open()
    assert (await processes.run(("yes",), key="volume", environment=ENVIRONMENT)).is_cut
    with pytest.raises(Unavailable, match=r"does not end although it was killed"):
        await processes.run(shell("exit 0"), key="volume", environment=ENVIRONMENT)


async def test_a_group_lives_until_its_last_process_has_ended() -> None:
    """Zombies do not count: nothing in the group can change a volume."""
    leader = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", "sleep 1000 & exit 0", stdin=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    await leader.wait()
    assert group_lives(leader.pid)
    os.killpg(leader.pid, signal.SIGKILL)
    await until(lambda: not group_lives(leader.pid))


async def test_slots_limit_all_calls_and_those_of_one_driver_in_their_order() -> None:
    slots, running, order, gate = CallSlots(), [], [], asyncio.Event()

    async def call(number: int, driver: str) -> None:
        async with slots.slot(driver):
            order.append(number)
            running.append(driver)
            await gate.wait()

    drivers = ["a"] * 10 + ["b"] * 10
    calls = [
        asyncio.create_task(call(number, one), name=f"call {number}") for number, one in enumerate(drivers)
    ]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(running) == MOST_CALLS
    assert running.count("a") == MOST_OF_ONE_DRIVER
    gate.set()
    await asyncio.gather(*calls)
    assert [one for one in order if one < 10] == list(range(10))
    assert [one for one in order if one >= 10] == list(range(10, 20))


def node_on(processes: Processes) -> Node:
    """Return a node with the real programs."""

    async def blocking(function, *args):  # type: ignore[no-untyped-def]
        return function(*args)

    return Node(
        partial(processes.run, environment=ENVIRONMENT),
        blocking,
        blocking,
    )


async def test_programs_of_a_volume_end_at_the_deadline_of_the_call(tmp_path: Path) -> None:
    node = node_on(await made(tmp_path))
    now = asyncio.get_running_loop().time()
    programs = node.programs("pv", "key", now + 30)
    result = await programs.run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], 30)
    assert (result.exit_code, result.out, result.stderr.decode()) == (3, "out\n", "err\n")
    with pytest.raises(Unavailable, match=r"/no/such/program cannot be started: .*; install it"):
        await programs.run(["/no/such/program"], 30)
    for late in (
        programs.run(["sleep", "1000"], 0.1),
        node.programs("pv", "", now).run(["sleep", "1000"], 30),
    ):
        with pytest.raises(TimedOut, match="sleep did not end before the deadline and was killed"):
            await late


async def test_a_volume_that_hangs_is_measured_until_the_deadline(tmp_path: Path) -> None:
    async def hang(*_: Any) -> Any:
        await asyncio.Event().wait()

    node = Node(partial((await made(tmp_path)).run, environment=ENVIRONMENT), asyncio.to_thread, hang)
    with pytest.raises(TimedOut, match=f"the file system at {tmp_path} did not answer"):
        await node.measure(str(tmp_path), asyncio.get_running_loop().time())


async def test_a_regular_file_is_never_blank(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4 << 20))
    programs = node_on(await made(tmp_path)).programs("pv", "", asyncio.get_running_loop().time() + 30)
    for path, problem in (
        (file, "it is not a block device"),
        (tmp_path / "none", "it cannot be read: No such"),
    ):
        result = await programs.probe(str(path), is_interrupted=True)
        assert result.exit_code == 1
        assert result.out.startswith(problem)
        assert await Device(str(path), programs).find_size() == 0


def shown(target: str) -> MountPoint:
    return MountPoint(target=target, root="/", device="0:1", fs_type="tmpfs", source="tmpfs", options=())


def test_the_same_volume_in_other_pods_is_found_by_the_kubelets_layout() -> None:
    pod = "/r/pods/%s/volumes/v~d/%s"
    others = ("/r/pods/other/volume-subpaths/v~d/pv", "/x/pods/other/volumes/v~d/pv", "/pv")
    same = pod % ("other", "pv")
    mounts = [shown(one) for one in (same, pod % ("other", "pv2"), *others, pod % ("mine", "pv"))]
    assert same_volume(mounts, pod % ("mine", "pv")) == (same,)
    assert same_volume(mounts, "/a/b/c/pv") == ()


async def test_links_in_the_directory_of_a_path_are_resolved_and_the_path_itself_is_not(
    tmp_path: Path,
) -> None:
    real = tmp_path.resolve() / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (real / "target").symlink_to("/elsewhere")

    async def blocking(function, *args):  # type: ignore[no-untyped-def]
        return function(*args)

    async def run(program: Sequence[str], *, key: str) -> ProgramResult:
        raise AssertionError(program)

    entry = shown(str(real / "target"))
    node = Node(run, blocking, blocking, lambda: (entry,))
    assert await node.find_mount(str(tmp_path / "link" / "target")) == entry
