"""Files of the guardian that survive crashes and half-broken disks: checksummed, with the previous copy kept.

`StateFile.write` keeps the old content as ``NAME.previous`` before it replaces NAME. `StateFile.read` takes NAME if its
checksum is right, else the previous copy, else the default; damage never raises, it is reported in one line. A file of a newer
program is not damaged: what this program does not know in it is ignored.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from kubeletx.linux.files import read_regular, replace_file, replace_unflushed

from .checks.base import CheckRecord
from .contact import Contact
from .drain import DrainHold
from .model import TICK_SECONDS, Begin, Complain, NodeBoot
from .operations import BootEnd
from .orders import FailedImage, SlotWrite
from .reasons import BootRecord
from .validation import ControllerMark, Validation
from .watchdog.ages import WatchedAgent

_T = TypeVar("_T", bound=msgspec.Struct)
MAX_BYTES: Final = 1 << 20
PREVIOUS: Final = ".previous"
KEPT: Final = 200
"""Entries that are kept."""
BOOTS: Final = 10
BOOTED: Final = "Booted"
UPGRADE_FAILED: Final = "UpgradeFailed"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Values that survive a reboot. `boot`: identity of the boot that wrote it last.

    `commit`: label of the image whose commit has begun. `failed`: the last image that fell back. `counters`: last values of the
    controller's counters, by the name of the field. `items`: settings of ``kubeletx health config``.
    """

    boot: str = ""
    restart_counter: int = 0
    last_boot: BootRecord = BootRecord()
    """Reason for the present boot."""
    commit: str = ""
    failed: FailedImage | None = None
    tested: str = ""
    """Label of the image that was tested when the boot ended."""
    write: SlotWrite | None = None
    """An order about a slot that the slot does not show yet."""
    commands: tuple[Begin, ...] = ()
    """Operations that the controller's agent asked for last."""
    counters: dict[str, int] = {}
    items: dict[str, int | str] = {}
    activated: str = ""
    """Version of the image that was installed last because of BaseOsConfig.Activate."""
    asks_maintenance: bool = False
    """A user has asked for maintenance mode."""


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """Values that survive a restart of the guardian within one boot."""

    boot: str = ""
    ticks: int = 0
    validation: Validation = Validation()
    operation: BootEnd | None = None
    contact: Contact = Contact()
    watched: dict[str, WatchedAgent] = {}
    drain: DrainHold = DrainHold()
    mark: ControllerMark = ControllerMark.NONE
    restarts: tuple[str, ...] = ()
    """Units whose restart is decided and may not be done."""
    ignored: tuple[Begin, ...] = ()
    """See `Inbox.ignored`."""

    @property
    def now(self) -> int:
        """Second of the current tick."""
        return self.ticks * TICK_SECONDS

    checks: dict[str, CheckRecord] = {}


class StateFile(Generic[_T]):
    """One value in one file."""

    def __init__(
        self, path: Path, default: _T, complain: Callable[[str], object], *, survives_power_loss: bool = True
    ) -> None:
        self.path = path
        self._default = default
        self._complain = complain
        self._replace = replace_file if survives_power_loss else replace_unflushed
        self._written: bytes | None = None

    def read(self) -> _T:
        """Return the newest intact value."""
        problems = []
        for path in (self.path, self._previous):
            try:
                value = decode(read_regular(path, MAX_BYTES), type(self._default))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {error}")
                continue
            if problems:
                self._complain(f"{problems[0]}; {path.name} counts")
            return value
        if problems:
            self._complain(f"{'; '.join(problems)}; it is made again")
        return self._default

    def write(self, value: _T) -> None:
        """Store the value, unless it is stored already. An error is reported, and the next write tries again."""
        data = encode(value)
        if data == self._written:
            return
        try:
            if self._written is not None or self._is_intact():
                with suppress(FileNotFoundError):
                    self._previous.unlink()
                os.link(self.path, self._previous)
            self._replace(self.path, data)
        except OSError as error:
            self._complain(f"{self.path}: cannot be written: {error.strerror}; it is tried again")
            return
        self._written = data

    @property
    def _previous(self) -> Path:
        return self.path.with_name(self.path.name + PREVIOUS)

    def _is_intact(self) -> bool:
        try:
            decode(read_regular(self.path, MAX_BYTES), type(self._default))
        except (OSError, ValueError):
            return False
        return True


def encode(value: msgspec.Struct) -> bytes:
    """Return the content of a file: the checksum of the second line, then the value as JSON."""
    body = msgspec.json.encode(value)
    return b"crc32 %08x\n%s\n" % (zlib.crc32(body), body)


def decode(data: bytes, kind: type[_T]) -> _T:
    """Return the value of a file. Raises ValueError with the reason."""
    head, _, body = data.rstrip(b"\n").partition(b"\n")
    if head != b"crc32 %08x" % zlib.crc32(body):
        raise ValueError("the checksum is wrong")
    return msgspec.json.decode(body, type=kind)  # its errors are ValueErrors


class NodeHistoryEntry(msgspec.Struct, frozen=True):
    """One event. `time`: RFC 3339, for people only; `boot`: number of the boot; `second`: of ticks since its start.

    `image`: with `BOOTED`, label of the image that ran before.
    """

    time: str
    boot: int
    second: int
    reason: str
    message: str
    image: str = ""


class NodeHistoryEntries(msgspec.Struct, frozen=True):
    """Content of the file, the newest entry last."""

    entries: tuple[NodeHistoryEntry, ...] = ()


class NodeHistory:
    """History of the node over reboots and power cuts, a file below PERSIST: boots, upgrades, operations, watchdog hits."""

    def __init__(
        self, path: Path, complain: Complain, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._file = StateFile(path, NodeHistoryEntries(), complain)
        self._now = now
        self._entries: tuple[NodeHistoryEntry, ...] | None = None

    def entries(self) -> tuple[NodeHistoryEntry, ...]:
        """Return the entries, the newest last."""
        if self._entries is None:
            self._entries = self._file.read().entries
        return self._entries

    def boots(self) -> tuple[NodeBoot, ...]:
        """Return the last boots, the newest first. A failed upgrade that was noticed later is the reason for its boot."""
        boots: list[NodeBoot] = []
        for entry in self.entries():
            if entry.reason == UPGRADE_FAILED and boots:
                boots.pop()
            if entry.reason in {BOOTED, UPGRADE_FAILED}:
                boots.append(NodeBoot(reason=entry.message, time=entry.time, image=entry.image))
        return tuple(reversed(boots[-BOOTS:]))

    def add(self, boot: int, second: int, reason: str, message: str, image: str) -> None:
        """Store an event."""
        time = self._now().isoformat(timespec="seconds")
        entry = NodeHistoryEntry(time, boot, second, reason, message, image)
        self._entries = (*self.entries(), entry)[-KEPT:]
        self._file.write(NodeHistoryEntries(self._entries))
