"""Whether KVM works is found out by a guest, once per boot."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kubeletx_libvirt.accelerator import Verdict, check_kvm, tiny_firmware
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.emulation import UNPROVEN_SECONDS
from kubeletx_libvirt.runtime import LibvirtRuntime

from kubeletx.api import Unavailable
from kubeletx.testing import FakeClock, FakeHost, endpoint


def test_the_tiny_guest_ends_emulated_with_its_own_exit_code(tmp_path: Path) -> None:
    firmware = tmp_path / "firmware"
    firmware.write_bytes(tiny_firmware())
    done = subprocess.run(
        [
            *(
                "qemu-system-x86_64",
                "-accel",
                "tcg",
                "-machine",
                "pc",
                "-m",
                "16",
                "-nodefaults",
                "-nographic",
            ),
            *("-bios", str(firmware), "-device", "isa-debug-exit,iobase=0x501,iosize=1"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 33


Check = Callable[..., Awaitable[Verdict]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The check with an emulator that a shell script stands in for; /dev/null is as usable as a /dev/kvm."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def run(script: str, device: str = "/dev/null", **more: Any) -> Awaitable[Verdict]:
        emulator = tmp_path / "bin/qemu-system-x86_64"
        emulator.write_text(f"#!/bin/sh\n{script}\n")
        emulator.chmod(0o755)
        return check_kvm(more.pop("host", FakeHost(tmp_path)), tmp_path, device=device, **more)

    return run


async def test_a_verdict_holds_until_the_next_boot(check: Check) -> None:
    first = await check("exit 33", read_boot_id=lambda: "one")
    assert first.works
    assert await check("exit 1", read_boot_id=lambda: "one") == first
    assert not (await check("exit 1", read_boot_id=lambda: "two")).works


@pytest.mark.parametrize("note", ["{", '{"boot_id":"one","emulator":"EMULATOR","works":false}'])
async def test_a_note_that_proves_nothing_is_made_again(check: Check, tmp_path: Path, note: str) -> None:
    (tmp_path / "kvm.json").write_text(note.replace("EMULATOR", f"{tmp_path}/bin/qemu-system-x86_64"))
    assert (await check("exit 33", read_boot_id=lambda: "one")).works


@pytest.mark.parametrize(
    ("program", "device", "works", "why", "is_stored"),
    [
        pytest.param("sleep 4; exit 33", "/dev/null", True, "", True, id="busy node"),
        pytest.param(
            "while :; do :; done", "/dev/null", False, "did not end within 1 s of CPU", True, id="hangs"
        ),
        pytest.param("exit 1", "/dev/null", False, "ended with exit code 1", False, id="fails"),
        pytest.param("kill -9 $$", "/dev/null", False, "ended with exit code -9", False, id="no memory"),
        pytest.param("exit 33", "/no/such/device", False, "/no/such/device", False, id="no module yet"),
    ],
)
async def test_only_what_is_proven_holds_until_the_next_boot(
    check: Check, tmp_path: Path, program: str, device: str, works: bool, why: str, is_stored: bool
) -> None:
    verdict = await check(program, device)
    assert (verdict.works, why in verdict.why) == (works, True)
    assert (tmp_path / "kvm.json").exists() is is_stored


async def test_a_guest_without_any_cpu_proves_nothing(check: Check, tmp_path: Path) -> None:
    assert not (await check("sleep 60", seconds=0.1)).works
    assert not (tmp_path / "kvm.json").exists()


async def test_a_verdict_that_cannot_be_stored_is_a_verdict(check: Check, tmp_path: Path) -> None:
    class FullHost(FakeHost):
        async def blocking(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if getattr(function, "__name__", "") == "write_bytes":
                raise OSError(errno.ENOSPC, "No space left on device")
            return await super().blocking(function, *args, **kwargs)

    assert (await check("exit 33", host=FullHost(tmp_path))).works


async def test_a_check_that_failed_or_proved_nothing_is_made_again_by_a_later_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unproven = Verdict(boot_id="", emulator="", works=False, why="busy")
    outcomes: list[Verdict | Exception] = [
        Unavailable("no thread"),
        OSError(errno.ENOSPC, "No space left on device"),
        unproven,
        unproven,
        msgspec.structs.replace(unproven, works=True, holds=True),
    ]

    async def next_outcome(*_: object) -> Verdict:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("kubeletx_libvirt.emulation.check_kvm", next_outcome)
    clock = FakeClock()
    host = FakeHost(tmp_path, clock=clock)
    emulation = LibvirtRuntime(endpoint("qemu:///system", workload_type="vm"), Settings(), host).emulation
    for _ in range(2):
        with pytest.raises(Unavailable):
            await emulation.accelerator()
    for accelerator in ("qemu", "qemu", "kvm"):
        assert [await emulation.accelerator() for _ in range(2)] == [accelerator] * 2
        clock.advance(UNPROVEN_SECONDS)
    assert host.sink.reasons() == ["EmulatedAccelerator"]
