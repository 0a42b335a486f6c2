"""The machine's own watchdog: a timer that resets the machine unless it is fed in time.

It is fed after each tick, so only while the loop turns, and for up to 300 s during a tick, see `loop.showing_life`. Only one
program can open the device: if systemd has it (RuntimeWatchdogSec=), systemd feeds it, and the guardian's own unit has
WatchdogSec=.
Source: Documentation/watchdog/watchdog-api.rst, include/uapi/linux/watchdog.h.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeletx.linux.files import replace_file

from ..config import read_section
from ..model import Complain

SYSFS: Final = Path("/sys/class/watchdog")
BOOT_STATUS: Final = "hw_watchdog_bootstatus"
"""File below PERSIST with the names of the flags of the last reset, one a line."""
_GET_SUPPORT, _GET_BOOT_STATUS, _SET_TIMEOUT = 0x80285700, 0x80045702, 0xC0045706
_MAGIC_CLOSE: Final = 0x100
_FLAGS: Final = ("OVERHEAT", "FANFAULT", "EXTERN1", "EXTERN2", "POWERUNDER", "CARDRESET", "POWEROVER")


class HardwareSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part of section ``watchdog``. `device`: such as /dev/watchdog; empty: none. `timeout`: in seconds."""

    device: str = ""
    timeout: int = 60
    agents: Any = None
    """A mapping by names of agents: section ``watchdog.agents.NAME``."""


class HardwareWatchdog:
    """The device, opened by the first `feed` that can, and the flags of the last reset."""

    def __init__(
        self,
        section: Any,
        tick_seconds: float,
        complain: Complain,
        *,
        sysfs: Path = SYSFS,
        ioctl: Callable[[int, int, bytes], bytes] = fcntl.ioctl,
    ) -> None:
        self._complain, self._ioctl = complain, ioctl
        settings = read_section(section, HardwareSettings, "watchdog", complain)
        self._path = settings.device
        # A tick may take long.
        self._timeout = max(settings.timeout, int(3 * tick_seconds))
        self._descriptor = -1
        name = Path(self._path).name if self._path else "watchdog"
        self._sysfs = sysfs / (name if name[-1].isdigit() else f"{name}0")

    def keep_boot_status(self, persist: Path) -> None:
        """Store the flags of the last reset for the reason of this boot, before it is deduced; opens the device.

        Without a device, a file of another program stays.
        """
        self._open()
        flags: int | None = None
        with suppress(OSError, ValueError):
            flags = int((self._sysfs / "bootstatus").read_text())
        if flags is None and self._descriptor >= 0:
            flags = self._number(_GET_BOOT_STATUS, 0)
        if flags is None and not self._path:
            return
        names = "".join(f"{name}\n" for bit, name in enumerate(_FLAGS) if (flags or 0) >> bit & 1)
        try:
            replace_file(persist / BOOT_STATUS, names.encode(), 0o644)
        except OSError as error:
            self._complain(f"{persist / BOOT_STATUS}: cannot be written: {error.strerror}")

    def feed(self) -> None:
        """Restart the timer. A device that cannot be opened is tried again each time: its driver may come later."""
        self._open()
        if self._descriptor >= 0:
            try:
                os.write(self._descriptor, b"\0")
            except OSError as error:
                self._complain(f"{self._path}: cannot be fed: {error.strerror}")

    def close(self) -> None:
        """Stop the timer. A process that ends without it is replaced in time, or the machine is reset."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.write(self._descriptor, b"V")
            os.close(self._descriptor)
            self._descriptor, self._path = -1, ""

    def _open(self) -> None:
        if self._descriptor >= 0 or not self._path:
            return
        try:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            owned = "another program feeds it, such as systemd with RuntimeWatchdogSec="
            self._complain(f"{self._path}: {owned if error.errno == errno.EBUSY else error.strerror}")
            return
        seconds = self._number(_SET_TIMEOUT, self._timeout)
        if seconds is None or seconds < self._timeout:
            found = "its own time-out" if seconds is None else f"{seconds} s"
            self._complain(f"{self._path}: {self._timeout} s cannot be set; {found} counts")
        with suppress(OSError):
            options = int.from_bytes(self._ioctl(self._descriptor, _GET_SUPPORT, bytes(40))[:4], "little")
            if not options & _MAGIC_CLOSE:
                self._complain(f"{self._path}: has no magic close; it stops if the guardian crashes")

    def _number(self, request: int, value: int) -> int | None:
        try:
            answer = self._ioctl(self._descriptor, request, value.to_bytes(4, "little"))
        except OSError:
            return None
        return int.from_bytes(answer, "little")
