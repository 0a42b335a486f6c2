"""Reclaim of plugins/quark in real cgroups, with each kind of swap and with none: what comes back, and what is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kubeletx_quark.cgroups import Hierarchy, find_hierarchy
from kubeletx_quark.reclaim import reclaim

from tests.integration.support.swap_devices import NoSwap, swap_file, zram, zswap

ANONYMOUS, FILE = 24_000_000, 8_000_000
FILL = f"""
import os, sys
memory = b"".join(number.to_bytes(8, "big") * 512 for number in range({ANONYMOUS} // 4096))
with open(sys.argv[1], "rb") as file:
    file.read()
print("filled", flush=True)
sys.stdin.readline()
print(sum(memory[::4096]) + len(memory), flush=True)
"""
SUM = sum(number.to_bytes(8, "big")[0] for number in range(ANONYMOUS // 4096)) + ANONYMOUS // 4096 * 4096


@pytest.fixture
def hierarchy() -> Hierarchy:
    return find_hierarchy("memory")


@pytest.fixture
def cgroup(hierarchy: Hierarchy) -> Iterator[Path]:
    directory = hierarchy.mount / f"kubeletx-reclaim-{os.getpid()}"
    directory.mkdir()
    try:
        if hierarchy.version == 2 and not (directory / "memory.reclaim").exists():
            pytest.skip("cgroup v2 has no memory controller, or no memory.reclaim, on this machine")
        yield directory
    finally:
        directory.rmdir()


@pytest.fixture
def process(cgroup: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the cgroup with anonymous memory, and with pages of a file that only it has read."""
    file = tmp_path / "data"
    with file.open("wb") as opened:
        opened.write(os.urandom(FILE))
        opened.flush()
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    enter = f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable} -c '{FILL}' {file}"
    child = subprocess.Popen(["sh", "-c", enter], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "filled\n"
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.fixture(params=["none", "zram", "zswap", "file"])
def swap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """One kind of swap; skipped, with the reason, where this machine does not have it."""
    if request.param == "none" and len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("this machine has swap of its own")
    with ExitStack() as stack:
        try:
            if request.param == "zram":
                stack.enter_context(zram())
            elif request.param == "zswap":
                stack.enter_context(zswap(tmp_path))
            elif request.param == "file":
                stack.enter_context(swap_file(tmp_path))
        except NoSwap as why:
            pytest.skip(str(why))
        yield request.param


def compressed_bytes() -> int:
    """Size of the pages in zswap, before compression."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Zswapped:"):
            return int(line.split()[1]) * 1024
    return 0


def test_memory_comes_back_as_reported_and_the_process_finds_it_unchanged(
    swap: str, process: subprocess.Popen[str], cgroup: Path, hierarchy: Hierarchy, tmp_path: Path
) -> None:
    before, in_zswap = usage(cgroup), compressed_bytes()
    found = reclaim(cgroup, hierarchy.version, tmp_path / "note")
    assert found.before_bytes == pytest.approx(before, abs=4 << 20)
    assert found.after_bytes == pytest.approx(usage(cgroup), abs=4 << 20)
    assert found.freed_bytes > 0.8 * FILE
    if swap == "none":
        assert found.swapped_bytes == 0
        assert found.after_bytes >= ANONYMOUS, "anonymous pages have no place to go"
    else:
        assert found.swapped_bytes > 0.8 * ANONYMOUS
        assert found.after_bytes < 0.5 * before
    if swap == "zswap":
        assert compressed_bytes() - in_zswap > 0.8 * ANONYMOUS
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == f"{SUM}\n"


def usage(cgroup: Path) -> int:
    names = ("memory.usage_in_bytes", "memory.current")
    return int(next(one for name in names if (one := cgroup / name).exists()).read_text())


def test_a_limit_of_swap_is_lifted_only_meanwhile(
    process: subprocess.Popen[str], cgroup: Path, hierarchy: Hierarchy, tmp_path: Path
) -> None:
    if hierarchy.version == 1:
        pytest.skip("cgroup v1 has no limit of swap alone")
    with ExitStack() as stack:
        try:
            stack.enter_context(zram())
        except NoSwap as why:
            pytest.skip(str(why))
        (cgroup / "memory.swap.max").write_text("0")
        found = reclaim(cgroup, hierarchy.version, tmp_path / "notes" / "one")
        assert found.swapped_bytes > 0.8 * ANONYMOUS
        assert (cgroup / "memory.swap.max").read_text() == "0\n"
