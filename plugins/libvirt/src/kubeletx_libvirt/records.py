"""State that libvirt does not store, in small files below the state directory. It is read once and kept in memory.

    sandboxes/<sandbox id>/record.json    the pod's identity and addresses, and whether it was stopped
    units/<domain uuid>/record.json       the requested and granted spec
    units/<domain uuid>/run.json          start time, exit, number of restarts of the guest

The identity is in the domain's metadata too, so if this directory is lost, machines are still found and only
their history is lost. Files are replaced atomically; after a crash a file is either the old or the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from kubeletx.api import (
    Host,
    Internal,
    KubeletxError,
    Machine,
    Nic,
    PermissionDenied,
    Resources,
    SandboxId,
    SandboxSpec,
    Unavailable,
    UnitId,
    UnitSpec,
)
from kubeletx.linux.files import replace_unflushed
from kubeletx_libvirt.images.problems import free_bytes, is_full

T = TypeVar("T", bound=msgspec.Struct)

log = structlog.get_logger(__name__)

STATE_FULL = "StateDirectoryFull"


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Stored state of one sandbox.

    `is_ready`: its creation has finished. `is_stopped`: its network was released. `ips`: addresses without
    prefix length.
    """

    spec: SandboxSpec
    created_at_ns: int
    is_ready: bool = False
    is_stopped: bool = False
    ips: tuple[str, ...] = ()


class UnitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Stored configuration of one unit.

    `asked`: resources requested by the last resize; None: never resized. `nics`: extra interfaces after the
    last attach or detach; None: those of `spec`. `resources`: the granted resources, in the form of
    `UnitStatus.resources`.
    """

    spec: UnitSpec
    asked: Resources | None = None
    nics: tuple[Nic, ...] | None = None
    resources: dict[str, int] = {}

    @property
    def machine(self) -> Machine | None:
        """The machine's settings in `spec`; None in a record whose unit is not a machine."""
        return self.spec.detail if isinstance(self.spec.detail, Machine) else None

    @property
    def present_nics(self) -> tuple[Nic, ...]:
        """The extra interfaces that the machine has now."""
        if self.nics is not None:
            return self.nics
        return self.machine.nics if self.machine is not None else ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Stored history of one run of a machine, from a start to its end. Times are 0 until they are known.

    `is_starting`: a start was requested at `since_ns`, and the machine has not been seen running since then.
    `since_ns`: last change of the machine's state. `exit_code`: None until the machine ends, and if it never
    ran. `hint`: the guest's event that explains its end (Watchdog, GuestPanicked, GuestCrashed). `restarts`:
    number of the guest's reboots. `reboot_at_ns`: time of a delayed reboot; 0: none. `boot_id`: Linux's id of
    the guest's boot, as last read; empty: not read since the last start or reboot.
    """

    is_starting: bool = False
    started_at_ns: int = 0
    finished_at_ns: int = 0
    since_ns: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    hint: str = ""
    restarts: int = 0
    reboot_at_ns: int = 0
    boot_id: str = ""


class Records:
    """Records of one runtime's sandboxes and units.

    They are read from files once, kept in memory, and written at each change.
    """

    def __init__(self, host: Host) -> None:
        """`host`: the files are below its state directory."""
        self._host = host
        self.directory = host.state_directory
        self.sandboxes: dict[SandboxId, SandboxRecord] = {}
        self.units: dict[UnitId, UnitRecord] = {}
        self.runs: dict[UnitId, Run] = {}
        self._gone: dict[UnitId, None] = {}
        self._is_loaded = False
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read all records from their files; a second call does nothing."""
        if not self._is_loaded:
            with state_file_errors(self.directory, "read"):
                await self._host.blocking(self._load)
            self._is_loaded = True

    def sandbox_directory(self, sandbox_id: SandboxId) -> Path:
        return self.directory / "sandboxes" / sandbox_id

    def unit_directory(self, unit_id: UnitId) -> Path:
        """Return the directory of one unit's files: records, cloud-init seed, shared directories."""
        return self.directory / "units" / unit_id

    async def list_unit_directories(self) -> list[UnitId]:
        """Return the ids of all units that have a directory, even without a readable record."""
        path = self.directory / "units"
        with state_file_errors(path, "read"):
            return await self._host.blocking(_names, path)

    def run_of(self, unit_id: UnitId) -> Run:
        """Return the unit's latest run; an empty `Run` before its first start."""
        return self.runs.get(unit_id, _NO_RUN)

    async def save_sandbox(
        self, sandbox_id: SandboxId, record: SandboxRecord, *, must_last: bool = True
    ) -> None:
        """Write the record to its file, then to memory.

        `must_last`: False only logs the error of a full disk, since the end of a sandbox must not wait for
        free space.
        """
        path = self.sandbox_directory(sandbox_id) / "record.json"
        try:
            with state_file_errors(path):
                await self._host.blocking(_write, path, record)
        except Unavailable as error:
            if must_last or error.reason != STATE_FULL:
                raise
            log.warning("Failed to record the end of a sandbox", sandbox_id=sandbox_id, err=str(error))
        self.sandboxes[sandbox_id] = record

    async def save_unit(self, unit_id: UnitId, record: UnitRecord, *, is_new: bool = False) -> None:
        """Write the record to its file, then to memory.

        `is_new`: the unit is being created. A unit that `forget_unit` has removed is ignored unless it is
        new.
        """
        if is_new:
            self._gone.pop(unit_id, None)
        async with self._writing:
            await self._write_unit(unit_id, record)

    async def change_unit(self, unit_id: UnitId, **changes: Any) -> None:
        """Replace fields of the unit's newest record, so that a concurrent change of another field is kept.

        A unit without a record is ignored.
        """
        async with self._writing:
            if (record := self.units.get(unit_id)) is not None:
                await self._write_unit(unit_id, msgspec.structs.replace(record, **changes))

    async def _write_unit(self, unit_id: UnitId, record: UnitRecord) -> None:
        if unit_id not in self._gone:
            path = self.unit_directory(unit_id) / "record.json"
            with state_file_errors(path):
                await self._host.blocking(_write, path, record)
            self.units[unit_id] = record

    async def save_run(self, unit_id: UnitId, run: Run) -> None:
        """Store the run in memory, then in its file, so that concurrent reads of the unit's state already get it.

        Events and calls change the same unit: writes are done one at a time, and each writes the newest run.
        A removed unit is ignored, since a call or event that began before the removal would create its
        directory again. A full disk is only logged: a machine that is removed to free space must end too, and
        only history is lost.
        """
        if unit_id in self._gone:
            return
        self.runs[unit_id] = run
        async with self._writing:
            newest = self.runs.get(unit_id)
            if newest is None:
                return
            path = self.unit_directory(unit_id) / "run.json"
            try:
                with state_file_errors(path):
                    await self._host.blocking(_write, path, newest)
            except Unavailable as error:
                if error.reason != STATE_FULL:
                    raise
                log.warning("Failed to record the run of a machine", unit=unit_id, err=str(error))

    async def forget_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove the sandbox's directory, then its record from memory."""
        path = self.sandbox_directory(sandbox_id)
        with state_file_errors(path, "remove"):
            await self._host.blocking(_remove_tree, path)
        self.sandboxes.pop(sandbox_id, None)

    async def forget_unit(self, unit_id: UnitId) -> None:
        """Remove the unit's directory, then its records from memory.

        If the removal fails, the records remain and a retry finds the unit.
        """
        self._gone[unit_id] = None
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        async with self._writing:
            path = self.unit_directory(unit_id)
            with state_file_errors(path, "remove"):
                await self._host.blocking(_remove_tree, path)
            self.units.pop(unit_id, None)
            self.runs.pop(unit_id, None)

    def _load(self) -> None:
        for directory, record in _read_all(self.directory / "sandboxes", "record.json", SandboxRecord):
            self.sandboxes[SandboxId(directory)] = record
        for directory, unit in _read_all(self.directory / "units", "record.json", UnitRecord):
            self.units[UnitId(directory)] = unit
        for directory, run in _read_all(self.directory / "units", "run.json", Run):
            self.runs[UnitId(directory)] = run


@contextlib.contextmanager
def state_file_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Context in which an OSError becomes a KubeletxError that names the file and what to do.

    `path`: the file or directory that is used, unless the error names another one. `verb`: write, read or remove.
    """
    try:
        yield
    except OSError as error:
        raise _translated(error, path, verb) from error


def _translated(error: OSError, path: Path, verb: str) -> KubeletxError:
    words = error.strerror or str(error)
    where = error.filename or path
    if is_full(error):
        room = next(place for place in (path, *path.parents) if place.exists())
        return Unavailable(
            f"cannot {verb} {where}: {words} ({free_bytes(room)} bytes are free); make room on this disk",
            reason=STATE_FULL,
        )
    if error.errno == errno.EROFS:
        return PermissionDenied(f"cannot {verb} {where}: {words}; mount the file system of {path} writable")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDenied(f"cannot {verb} {where}: {words}; give the agent access to {path}")
    if error.errno in (errno.EIO, errno.ENOMEM, errno.ENFILE, errno.EMFILE):
        return Unavailable(
            f"cannot {verb} {where}: {words}; check the disk and the limits of the agent's process"
        )
    return Internal(f"cannot {verb} {where}: {words}")


_NO_RUN = Run()
_REMEMBERED = 1000
"""Number of removed units that are remembered, so that calls and events that still run do not store them again."""


def _read_all(parent: Path, name: str, kind: type[T]) -> Iterator[tuple[str, T]]:
    for path in parent.glob(f"*/{name}"):
        with contextlib.suppress(
            OSError, msgspec.MsgspecError, UnicodeDecodeError
        ):  # half removed, or of a newer version
            yield path.parent.name, msgspec.json.decode(path.read_bytes(), type=kind)


def _names(parent: Path) -> list[UnitId]:
    try:
        return [UnitId(name) for name in os.listdir(parent)]
    except FileNotFoundError:  # no machine has run here yet
        return []


def _write(path: Path, value: msgspec.Struct) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)  # emulators of other users enter it
    data = msgspec.json.encode(value)
    try:
        replace_unflushed(path, data)
    except FileNotFoundError:
        # A write of the runtime's object before this one, whose thread has not ended, took the unfinished file.
        replace_unflushed(path, data)


def _remove_tree(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
