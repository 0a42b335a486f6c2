"""The emulated machine: OVMF, a boot loader, the i6300esb watchdog, and a console whose lines tell what happens."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kubeletx_testing.lab.process import Daemon, LabError
from kubeletx_testing.lab.tools import get_tool

from .disks import FIRMWARE, make_disks

_BOOT_SECONDS: Final = 300  # most until an image has booted, on a busy machine


class Machine:
    """One machine. Its disks survive `cut_power` and `switch_on`. `root`: image of its read-only root file system."""

    def __init__(self, loader: str, directory: Path, root: Path) -> None:
        directory.mkdir()
        self._orders, self._monitor = directory / "orders", directory / "monitor"
        os.mkfifo(self._orders)
        self._directory, self._argv = directory, self._command(make_disks(loader, directory), root)
        self._emulator = Daemon(name="console", argv=self._argv, directory=directory)
        self.log_path = self._emulator.log_path
        self._cycles = self._seen = self.boots = 0

    def switch_on(self) -> None:
        """Switch the machine on."""
        self._cycles += 1
        self._start("-smbios", f"type=1,serial={self._cycles}")

    def go_back(self) -> None:
        """Go on where `save` was called; the disks are as they were then."""
        self._start("-loadvm", "saved")

    def _start(self, *arguments: str) -> None:
        self._emulator = Daemon(name="console", argv=[*self._argv, *arguments], directory=self._directory)
        self._emulator.start()

    def cut_power(self) -> None:
        """Cut the power: what the guest has not written to its disks is lost."""
        self._emulator.kill()
        self._seen = self.log_path.stat().st_size

    def end(self) -> None:
        """Switch the machine off for good; from another thread as well."""
        self._argv = ["false"]
        self._emulator.kill()

    def save(self) -> None:
        """Store the running machine with its disks, for `go_back`."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self._monitor))
            monitor.sendall(b"savevm saved\n")
            answer = b""
            while answer.count(b"(qemu)") < 2:  # the prompts before and after the command
                answer += monitor.recv(4096)
        if b"Error" in answer:
            raise LabError(f"the machine cannot be stored: {answer.decode()}")

    def order(self, line: str) -> None:
        """Run a line of shell in the machine, which `inside.sh` reads. Its output goes to the console."""
        self._orders.write_text(f"{line}\n")

    def wait(self, *texts: str) -> str:
        """Return the next line of the console that has one of the texts; lines before it are over. Raises LabError."""
        deadline = time.monotonic() + _BOOT_SECONDS
        while True:
            with self.log_path.open("rb") as file:
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
            time.sleep(0.01)

    def _command(self, disks: Sequence[Path], root: Path) -> list[str]:
        # The console reads orders from a pipe that it holds open at both ends, so it never ends.
        argv = ["sh", "-c", 'exec "$@" <>"$0"', str(self._orders), get_tool("qemu-system-x86_64")]
        argv += ["-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "384", "-nodefaults"]
        argv += [
            "-display",
            "none",
            "-serial",
            "stdio",
            "-monitor",
            f"unix:{self._monitor},server=on,wait=off",
        ]
        argv += ["-device", "virtio-rng-pci", "-device", "i6300esb", "-action", "watchdog=reset"]
        argv += ["-drive", f"if=pflash,format=raw,readonly=on,file={FIRMWARE / 'OVMF_CODE_4M.fd'}"]
        argv += ["-drive", f"if=pflash,format=qcow2,file={disks[2]}"]
        drives = (f"qcow2,file={disks[0]}", f"qcow2,file={disks[1]}", f"raw,readonly=on,file={root}")
        for number, drive in enumerate(drives):
            argv += ["-drive", f"if=none,id=d{number},format={drive}"]
            argv += ["-device", f"virtio-blk-pci,drive=d{number},addr={number + 4}"]
        return argv
