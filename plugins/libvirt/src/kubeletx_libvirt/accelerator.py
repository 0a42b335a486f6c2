"""Whether KVM really runs guests here: a guest of seven bytes is started, once per boot of the node.

That /dev/kvm is there says little: under some hypervisors a guest hangs at its first instruction. The tiny guest
writes one byte to QEMU's exit device, and the emulator ends with an exit code that nothing else gives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import msgspec

from kubeletx.api import Host

DEADLINE_SECONDS = 3.0
KVM_DEVICE = "/dev/kvm"
EMULATOR = "qemu-system-x86_64"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RESET_VECTOR = 0xFFF0
_GUEST = bytes.fromhex("ba0105b010eef4")  # mov dx,0x501; mov al,0x10; out dx,al; hlt
_EXIT_CODE = (0x10 << 1) | 1


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and for which boot and emulator it holds."""

    boot_id: str
    emulator: str
    works: bool
    why: str = ""


async def check_kvm(host: Host, directory: Path) -> Verdict:
    """The remembered verdict of this boot, or a new one; takes at most `DEADLINE_SECONDS` and a little."""
    path = directory / "kvm.json"
    boot_id = (await host.blocking(_BOOT_ID.read_text)).strip()
    emulator = shutil.which(EMULATOR) or ""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        known = msgspec.json.decode(path.read_bytes(), type=Verdict)
        if (known.boot_id, known.emulator) == (boot_id, emulator):
            return known
    works, why = await _try(emulator, directory)
    verdict = Verdict(boot_id=boot_id, emulator=emulator, works=works, why=why)
    await host.blocking(path.write_bytes, msgspec.json.encode(verdict))
    return verdict


async def _try(emulator: str, directory: Path) -> tuple[bool, str]:
    if not os.access(KVM_DEVICE, os.R_OK | os.W_OK):
        return False, f"there is no {KVM_DEVICE} that may be used"
    if not emulator:
        return False, f"there is no {EMULATOR} to try it with"
    firmware = directory / "kvm-check.bin"
    firmware.write_bytes(tiny_firmware())
    process = await asyncio.create_subprocess_exec(
        emulator,
        *("-accel", "kvm", "-machine", "pc", "-m", "16", "-nodefaults", "-nographic", "-no-user-config"),
        *("-bios", str(firmware), "-device", "isa-debug-exit,iobase=0x501,iosize=1"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            code = await process.wait()
    except TimeoutError:
        return False, f"a guest of seven bytes did not run within {DEADLINE_SECONDS:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        firmware.unlink(missing_ok=True)
    return code == _EXIT_CODE, "" if code == _EXIT_CODE else f"the emulator ended with exit code {code}"


def tiny_firmware() -> bytes:
    """64 KiB whose reset vector holds the guest."""
    image = bytearray(b"\xf4" * 0x10000)
    image[_RESET_VECTOR : _RESET_VECTOR + len(_GUEST)] = _GUEST
    return bytes(image)
