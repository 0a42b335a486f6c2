"""Emulators are found by the UUID in their command line, and a reused process id is not believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kubeletx_libvirt.emulators import Emulators, EmulatorUsage

ONE, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def write_process(
    proc: Path, pid: int, *command: str, user: int = 3, system: int = 4, started: int = 500, pages: int = 10
) -> None:
    directory = proc / str(pid)
    directory.mkdir(exist_ok=True)
    (directory / "cmdline").write_bytes(b"\0".join(one.encode() for one in command) + b"\0")
    figures = ["S", *["0"] * 10, str(user), str(system), *["0"] * 6, str(started), "0", str(pages), "0"]
    (directory / "stat").write_text(f"{pid} (qemu) system) x) {' '.join(figures)}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "meminfo").touch()
    write_process(tmp_path, 7, "qemu-system-x86_64", "-name", "guest=kx-1", "-uuid", ONE, "-no-shutdown")
    write_process(tmp_path, 8, "sh", "-c", f"echo -uuid {OTHER}")
    (tmp_path / "9").mkdir()
    return tmp_path


def test_processor_time_and_memory_are_those_of_the_machines_emulator(proc: Path) -> None:
    assert Emulators(proc).usage([ONE, OTHER]) == {ONE: EmulatorUsage(7 * TICK_NS, 10 * PAGE)}


def test_an_emulator_that_was_found_is_not_searched_for_again(proc: Path) -> None:
    emulators = Emulators(proc)
    emulators.usage([ONE])
    (proc / "7" / "cmdline").unlink()
    write_process(proc, 10, "sh")
    assert emulators.usage([ONE]) == {ONE: EmulatorUsage(7 * TICK_NS, 10 * PAGE)}


def test_another_process_with_the_same_id_is_not_taken_for_the_emulator(proc: Path) -> None:
    emulators = Emulators(proc)
    emulators.usage([ONE])
    write_process(proc, 7, "sleep", "1", started=600)
    assert emulators.usage([ONE]) == {}


def test_a_machine_that_was_started_again_is_found_again(proc: Path) -> None:
    emulators = Emulators(proc)
    emulators.usage([ONE])
    for name in ("cmdline", "stat"):
        (proc / "7" / name).unlink()
    write_process(proc, 11, "qemu-system-x86_64", "-uuid", ONE, user=0, system=1, started=900)
    assert emulators.usage([ONE]) == {ONE: EmulatorUsage(TICK_NS, 10 * PAGE)}


def test_this_very_process_is_not_an_emulator() -> None:
    assert Emulators().usage([ONE]) == {}
