"""Checks that KVM really runs guests on this machine: starts a tiny guest, once per boot of the node.

Only proofs hold until the next boot: a guest that ended as it should, or used up its CPU time. Any other result may be
due to a busy node, to little memory or to a module that is loaded later.

An existing /dev/kvm proves little: under some hypervisors a guest runs in real mode and hangs later. So the
tiny guest starts as a kernel does: it switches from real mode to 64-bit code with paging, writes to memory,
and uses cpuid, SSE and a locked instruction. Finally it writes one byte to QEMU's exit device. The emulator
then ends with an exit code that has no other cause.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from kubeletx.api import Host, KubeletxError, TimedOut
from kubeletx.linux.boot import boot_id
from kubeletx.linux.programs import run_program

DEADLINE_SECONDS = 30.0
CPU_SECONDS = 1
"""A guest that hangs uses this in a few seconds; on a busy node one that works may need longer, but a tenth of this."""
KVM_DEVICE = "/dev/kvm"
EMULATOR = "qemu-system-x86_64"
_ARGUMENTS = ["-accel", "kvm", "-machine", "pc", "-m", "16", "-nodefaults", "-nographic", "-no-user-config"]
_GUEST_AT = 0xF000
_GUEST = bytes.fromhex(
    # cli; segments 0; lgdt; cr0.PE; far jump to 32-bit code (0xFF000 + 0x27)
    # page tables at 0x1000 (one page of 2 MiB); cr3; cr4.PAE, OSFXSR, OSXMMEXCPT; EFER.LME; cr0.PG; far jump
    # 64-bit: fill and read 256 KiB, cpuid, movups, lock inc, cmp; mov dx,0x501; mov al,0x10; out dx,al; hlt
    "fa31c08ed88ed0bc00700e588ed82e660f011610f10f20c06683c8010f22c066ea27f00f000800b8100000008ed88ec0"
    "8ed0bc0070000031c0bf00100000b900100000fcf3abc7050010000003200000c7050020000003300000c70500300000"
    "83000000b8001000000f22d80f20e00d200600000f22e0b9800000c00f320d000100000f300f20c083e0fb0d02000080"
    "0f22c0ea9af00f00180048c7c70080000048c7c10080000048b8887766554433221148890748031f4883c708e2f431c0"
    "0fa20f100425008000000f11042500900000f048ff04250090000048833c25009000000066ba0105b010eef4ebfd6690"
    "0000000000000000ffff0000009acf00ffff00000092cf00ffff0000009aaf001f00f0f00f"
)
_RESET_VECTOR = 0xFFF0
_JUMP = bytes.fromhex("ea00f000f0")  # far jump to 0xF000:0xF000
_EXIT_CODE = (0x10 << 1) | 1


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the check, and the boot and the emulator for which it is valid.

    `boot_id`: the kernel's id of this boot. `emulator`: path of the emulator. `works`: KVM runs guests.
    `why`: the reason if not. `holds`: it is proven for this boot; if not, the next check starts a new guest.
    """

    boot_id: str
    emulator: str
    works: bool
    why: str = ""
    holds: bool = False


async def check_kvm(
    host: Host,
    directory: Path,
    *,
    device: str = KVM_DEVICE,
    read_boot_id: Callable[[], str] = boot_id,
    seconds: float = DEADLINE_SECONDS,
) -> Verdict:
    """Return whether KVM works: the result stored for this boot and emulator, or of a new check.

    A new check takes at most `CPU_SECONDS` of CPU, and a little more than `seconds`. `directory`: where a proven result
    is stored. Raises OSError if no guest can be started.
    """
    path = directory / "kvm.json"
    boot = await host.blocking(read_boot_id)
    emulator = shutil.which(EMULATOR) or ""
    # no stored result, or one of another version: check again
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        known = msgspec.json.decode(path.read_bytes(), type=Verdict)
        if known.holds and (known.boot_id, known.emulator) == (boot, emulator):
            return known
    works, why, holds = await _try(emulator, directory, device, seconds)
    verdict = Verdict(boot_id=boot, emulator=emulator, works=works, why=why, holds=holds)
    if holds:
        # without a note, the next agent process checks again
        with contextlib.suppress(OSError, KubeletxError):
            await host.blocking(path.write_bytes, msgspec.json.encode(verdict))
    return verdict


async def _try(emulator: str, directory: Path, device: str, seconds: float) -> tuple[bool, str, bool]:
    """Return `works`, `why` and `holds` of a `Verdict`."""
    if not os.access(device, os.R_OK | os.W_OK):
        return False, f"there is no {device} that may be used", False
    if not emulator:
        return False, f"there is no {EMULATOR} to try it with", False
    firmware = directory / "kvm-check.bin"
    firmware.write_bytes(tiny_firmware())
    guest = ("-bios", str(firmware), "-device", "isa-debug-exit,iobase=0x501,iosize=1")
    # The soft limit sends SIGXCPU, which has no other cause; the kernel also kills for lack of memory.
    limits = (f"--cpu={CPU_SECONDS}:{CPU_SECONDS + 1}", "--core=0")
    argv = ["prlimit", *limits, emulator, *_ARGUMENTS, *guest]
    try:
        code = (await run_program(argv, seconds=seconds)).exit_code
    except TimedOut:
        return False, f"a tiny guest did not end within {seconds:g} s", False
    finally:
        firmware.unlink(missing_ok=True)
    if -code == signal.SIGXCPU:
        return False, f"a tiny guest did not end within {CPU_SECONDS} s of CPU", True
    works = code == _EXIT_CODE
    return works, "" if works else f"the emulator ended with exit code {code}", works


def tiny_firmware() -> bytes:
    """Return 64 KiB of firmware that contains the tiny guest; its reset vector jumps there."""
    image = bytearray(0x10000)
    image[_GUEST_AT : _GUEST_AT + len(_GUEST)] = _GUEST
    image[_RESET_VECTOR : _RESET_VECTOR + len(_JUMP)] = _JUMP
    return bytes(image)
