"""Whether KVM works is found out by a guest, once per boot."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import msgspec
import pytest
from kubeletx_libvirt.accelerator import Verdict, check_kvm, tiny_firmware

from kubeletx.testing import FakeHost


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


async def test_a_verdict_holds_until_the_next_boot(tmp_path: Path) -> None:
    check = partial(check_kvm, FakeHost(tmp_path), tmp_path, device="/no/such/device")
    first = await check(read_boot_id=lambda: "one")
    assert not first.works
    assert "/no/such/device" in first.why
    remembered = msgspec.structs.replace(first, works=True)
    (tmp_path / "kvm.json").write_bytes(msgspec.json.encode(remembered))
    assert await check(read_boot_id=lambda: "one") == remembered
    assert not (await check(read_boot_id=lambda: "two")).works


async def test_a_broken_note_of_the_verdict_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "kvm.json").write_bytes(b"{")
    await check_kvm(FakeHost(tmp_path), tmp_path, device="/no/such/device")
    assert msgspec.json.decode((tmp_path / "kvm.json").read_bytes(), type=Verdict).works is False


@pytest.mark.parametrize(
    ("program", "works", "why"),
    [
        pytest.param("sleep 4; exit 33", True, "", id="busy node"),
        pytest.param("while :; do :; done", False, "did not end within 1 s of CPU", id="hangs"),
        pytest.param("exit 1", False, "ended with exit code 1", id="fails"),
    ],
)
async def test_a_guest_that_gets_little_cpu_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, works: bool, why: str
) -> None:
    emulator = tmp_path / "qemu-system-x86_64"
    emulator.write_text(f"#!/bin/sh\n{program}\n")
    emulator.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    verdict = await check_kvm(FakeHost(tmp_path), tmp_path, device="/dev/null")
    assert (verdict.works, why in verdict.why) == (works, True)
