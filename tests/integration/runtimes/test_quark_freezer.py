"""The freezer on the real kernel: both cgroup versions, threads that cannot be frozen, cgroups that vanish."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubeletx_quark.cgroups import container_cgroup, container_cgroups, find_hierarchy
from kubeletx_quark.freezer import Freezer, FreezerState

from kubeletx.api import Conflict, NotFound, SystemClock
from kubeletx_testing.waiting import block_until
from tests.integration.support.silent_files import SilentFileSystem

CLOCK = SystemClock()
ID = "f" * 64


def mounts() -> list[tuple[int, Path]]:
    """The freezer hierarchies of this machine: version and mount point."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, (kind, _, options) = line.split(), line.partition(" - ")[2].split(" ", 2)
        if kind == "cgroup" and "freezer" in options.split(","):
            found[1] = Path(fields[4])
        if kind == "cgroup2":
            found[2] = Path(fields[4])
    return sorted(found.items())


@pytest.fixture(params=mounts(), ids=lambda one: f"v{one[0]}")
def freezer(request: pytest.FixtureRequest) -> Iterator[Freezer]:
    """The freezer of a new cgroup, with one below it."""
    version, mount = request.param
    directory = mount / f"kubeletx-quark-{os.getpid()}" / ID
    (directory / "below").mkdir(parents=True)
    yield Freezer(directory, version)
    for one in (directory / "below", directory, directory.parent):
        if one.exists():
            one.rmdir()


@pytest.fixture
def process(freezer: Freezer) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the cgroup below that of `freezer`, which counts on its standard output."""
    child = subprocess.Popen(["sleep", "1000"])
    (freezer.directory / "below" / "cgroup.procs").write_text(str(child.pid))
    yield child
    let_go(freezer)
    child.kill()
    child.wait()


def let_go(freezer: Freezer) -> None:
    """Thaw without waiting, after a test that failed."""
    for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        if (freezer.directory / name).exists():
            (freezer.directory / name).write_text(word)


async def test_all_below_is_frozen_and_thawed_each_twice(
    freezer: Freezer, process: subprocess.Popen[bytes]
) -> None:
    assert freezer.state() is FreezerState.THAWED
    for _ in range(2):
        await freezer.freeze(CLOCK)
        assert freezer.state() is FreezerState.FROZEN
    process.send_signal(signal.SIGTERM)
    assert process.poll() is None or freezer.directory.joinpath("cgroup.freeze").exists()
    for _ in range(2):
        await freezer.thaw(CLOCK)
        assert freezer.state() is FreezerState.THAWED
    assert process.wait(10) == -signal.SIGTERM


async def test_a_cgroup_that_is_gone_is_not_found(freezer: Freezer) -> None:
    (freezer.directory / "below").rmdir()
    freezer.directory.rmdir()
    assert freezer.state() is FreezerState.GONE
    for change in (freezer.freeze, freezer.thaw):
        with pytest.raises(NotFound, match="is gone"):
            await change(CLOCK)


async def test_a_cgroup_below_a_frozen_one_stays_frozen_and_the_error_says_so(
    freezer: Freezer, process: subprocess.Popen[bytes]
) -> None:
    above = Freezer(freezer.directory.parent, 1 if (freezer.directory / "freezer.state").exists() else 2)
    await above.freeze(CLOCK)
    try:
        with pytest.raises(Conflict, match="a cgroup above it is frozen"):
            await freezer.thaw(CLOCK, 0.05)
    finally:
        await above.thaw(CLOCK)
    assert freezer.state() is FreezerState.THAWED


async def test_a_thread_in_uninterruptible_sleep_is_named_and_the_processes_run_again(
    freezer: Freezer, process: subprocess.Popen[bytes], stuck: subprocess.Popen[bytes]
) -> None:
    (freezer.directory / "below" / "cgroup.procs").write_text(str(stuck.pid))
    with pytest.raises(Conflict, match=rf"not frozen after 0.2 s, runs again: thread {stuck.pid} \(cat\) is"):
        await freezer.freeze(CLOCK, 0.2)
    assert freezer.state() is FreezerState.THAWED


@pytest.fixture
def forking(freezer: Freezer) -> Iterator[None]:
    """Shells in the cgroup that start processes all the time."""
    shells = [subprocess.Popen(["sh", "-c", "while :; do /bin/true; done"]) for _ in range(4)]
    try:
        for shell in shells:
            (freezer.directory / "below" / "cgroup.procs").write_text(str(shell.pid))
        yield
    finally:
        let_go(freezer)
        for shell in shells:
            shell.kill()
            shell.wait()
    block_until(lambda: not (freezer.directory / "below" / "cgroup.procs").read_text())


@pytest.mark.usefixtures("forking")
async def test_processes_that_start_others_all_the_time_are_frozen_each_time(freezer: Freezer) -> None:
    for _ in range(100):
        await freezer.freeze(CLOCK)
        assert freezer.state() is FreezerState.FROZEN
        await freezer.thaw(CLOCK)


@pytest.fixture
def stuck(freezer: Freezer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that cannot be frozen while the test runs."""
    with SilentFileSystem(tmp_path / "mount") as files:
        yield files.reader
        let_go(freezer)


async def test_a_container_is_found_by_its_process_and_by_a_search(
    freezer: Freezer, process: subprocess.Popen[bytes]
) -> None:
    hierarchy = find_hierarchy("freezer")
    if hierarchy.mount not in freezer.directory.parents:
        pytest.skip("the other version's freezer is used on this machine")
    assert container_cgroup(hierarchy, process.pid, ID) == freezer.directory
    assert (ID, freezer.directory) in list(container_cgroups(hierarchy))
    with pytest.raises(Conflict, match="not the container's"):
        container_cgroup(hierarchy, process.pid, "a" * 64)
    process.kill()
    process.wait()
    with pytest.raises(NotFound, match="has ended"):
        container_cgroup(hierarchy, process.pid, ID)
