"""Whether KVM works is found out by a guest, once per boot."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import msgspec
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
