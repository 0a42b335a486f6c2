"""The emulated machine: OVMF, a boot loader, the i6300esb watchdog, and a console whose lines tell what happens."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from kubeletx_testing.lab.process import Daemon, LabError
from kubeletx_testing.lab.tools import get_tool

from .disks import HERE, SLOTS, make_disks

BOOT_SECONDS: Final = 300
"""Most seconds until an image has booted, on a busy machine."""
_FIRMWARE: Final = Path("/usr/share/OVMF")
_TICK: Final = "400ms"
_CONFIG: Final = """\
backend: kernel
timer.test.baseimage.update: 60
timer.update.fallback.no.network: 120
"""


class Machine:
    """One machine. Its disks survive `cut_power` and `switch_on`."""

    def __init__(self, loader: str, directory: Path) -> None:
        self._share = directory / "trial"
        if directory.exists():
            raise LabError(f"{directory} has the disks of an earlier run; name another directory")
        self._share.mkdir(parents=True)
        root = HERE.parent.parent
        environment = {
            "repository": root,
            "python": sys.executable,
            "slots": SLOTS[loader],
            "tick": _TICK,
            "grub_editenv": shutil.which("grub-editenv") or "",
        }
        lines = [f"{name}={shlex.quote(str(value))}\n" for name, value in environment.items()]
        (self._share / "environment").write_text(
            "".join(lines) + "export PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8\n"
        )
        (self._share / "config.yaml").write_text(_CONFIG)
        shutil.copy(HERE / "inside.sh", self._share)
        disk, persist = make_disks(loader, directory)
        variables = directory / "variables.fd"
        shutil.copy(_FIRMWARE / "OVMF_VARS_4M.fd", variables)
        self._emulator = Daemon(
            name="console", argv=_argv(self._share, disk, persist, variables), directory=directory
        )
        self._cycles = 0
        self._seen = 0
        self.boots = 0

    def switch_on(self) -> None:
        """Switch the machine on."""
        self._cycles += 1
        (self._share / "power").write_text(f"{self._cycles}\n")
        for name in ("order", "taken", "done"):
            (self._share / name).unlink(missing_ok=True)
        self._emulator.start()

    def cut_power(self) -> None:
        """Cut the power: what the guest has not written to its disks is lost."""
        self._emulator.kill()
        self._seen = self._emulator.log_path.stat().st_size

    def order(self, line: str) -> None:
        """Run a line of shell in the machine, which `inside.sh` takes. Its output goes to the console."""
        (self._share / ".order").write_text(f"{line}\n")
        (self._share / ".order").replace(self._share / "order")

    def wait(self, *texts: str, seconds: float = BOOT_SECONDS) -> str:
        """Return the next line of the console that has one of the texts; lines before it are over.

        Raises LabError with the end of the console.
        """
        deadline = time.monotonic() + seconds
        while True:
            with self._emulator.log_path.open("rb") as file:
                file.seek(self._seen)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._seen += len(line)
                    text = line.decode(errors="replace").strip()
                    self.boots += "TRIAL kernel" in text
                    if any(wanted in text for wanted in texts):
                        return text
            if not self._emulator.is_running or time.monotonic() > deadline:
                why = "took too long" if self._emulator.is_running else "the emulator ended"
                raise LabError(f"no {' or '.join(map(repr, texts))}: {why}\n{self._emulator.log_tail()}")
            time.sleep(0.02)


def _argv(share: Path, disk: Path, persist: Path, variables: Path) -> list[str]:
    code = _FIRMWARE / "OVMF_CODE_4M.fd"
    if not code.exists():
        raise LabError(f"{code} is missing: install ovmf")
    argv = [get_tool("qemu-system-x86_64"), "-machine", "q35", "-accel", "tcg", "-cpu", "max"]
    argv += ["-smp", "1", "-m", "768", "-nodefaults", "-display", "none", "-monitor", "none"]
    argv += ["-serial", "stdio", "-device", "virtio-rng-pci"]
    argv += ["-device", "i6300esb", "-action", "watchdog=reset"]
    argv += ["-drive", f"if=pflash,format=raw,readonly=on,file={code}"]
    argv += ["-drive", f"if=pflash,format=raw,file={variables}"]
    for number, path in enumerate((disk, persist)):
        argv += ["-drive", f"if=none,id=d{number},format=raw,file={path}"]
        argv += ["-device", f"virtio-blk-pci,drive=d{number},addr={number + 4}"]
    for name, options in {"host": "path=/,readonly=on,multidevs=remap", "trial": f"path={share}"}.items():
        argv += ["-fsdev", f"local,id={name},security_model=none,{options}"]
        argv += ["-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]
    return argv
