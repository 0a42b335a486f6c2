"""Backend ``fuse``: image files of a pool, served by a process in user space.

    image ─ qemu-storage-daemon ─ FUSE ─► STATE/fuse/VOLUME/.VOLUME ─ loop device ─► pods

It has the data path of storage whose client is a program and no kernel module. Each volume has a daemon, which
continues to run when the agent ends, and ends when the volume is detached. If a daemon is killed, reads and writes of
its volume fail; `find` reports that, and detaching the volume cleans up. Debian package: qemu-system-common. Source:
qemu-storage-daemon(1).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from kubeletx.api import Blocking, KubeletxError, Unavailable
from kubeletx.linux.files import private_directory, replace_file
from kubeletx.linux.mounts import MountPoint, find_mount

from ..commands import Commands
from ..values import StorageVolume, file_stem
from .backend import AttachedSource, FenceResult, device_source
from .daemons import daemons_of, end_daemon, is_running, pid_of
from .loop import LoopBackend
from .loop_devices import LoopDevices
from .pools import Pools

log = structlog.get_logger(__name__)

NAME: Final = "fuse"
_LOCKS: Final = Path("/proc/locks")
_PROGRAM: Final = "qemu-storage-daemon"
_PID_FILE: Final = "daemon.pid"
_START_SECONDS: Final = 15.0
_GRACE_SECONDS: Final = 5.0
_UNMOUNT_SECONDS: Final = 15.0


class FuseBackend(LoopBackend):
    """Image files of pools, exported by daemons. `directory`: for exports and PID files.

    `table`: returns the mounts of this process.
    """

    name = NAME

    def __init__(
        self,
        pools: Pools,
        devices: LoopDevices,
        commands: Commands,
        blocking: Blocking,
        *,
        directory: Path,
        boot_id: str,
        table: Callable[[], Sequence[MountPoint]],
    ) -> None:
        super().__init__(pools, devices, blocking, boot_id=boot_id)
        self._commands = commands
        self._directory = directory
        self._table = table

    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        export = self._export(volume.name)
        if not self._is_served(volume.name):
            await self.detach(volume)
            path = await self._blocking(self._pools.ensure_file, volume)
            if not read_only and await self._blocking(
                is_locked, path
            ):  # qemu's own locks let two processes write
                raise Unavailable(
                    f"volume {volume.name}: another process of this machine serves {path}; end its pods there"
                )
            await self._start(volume, path, read_only=read_only)
        device = await self._devices.attach(str(export), volume=volume.name, read_only=read_only)
        return device_source(device)

    async def find(self, volume: StorageVolume) -> AttachedSource | None:
        device = self._devices.find(str(self._export(volume.name)))
        if device is None:
            return None
        if not self._is_served(volume.name):
            raise Unavailable(
                f"volume {volume.name}: the qemu-storage-daemon of {device.device} has ended, and its reads and "
                "writes fail; delete its pods"
            )
        return device_source(device.device)

    async def detach(self, volume: StorageVolume, *, force: bool = False) -> None:
        export = self._export(volume.name)
        if (
            force
        ):  # a hanging daemon keeps the device's users in the kernel; without it they get errors and end
            await self._end(volume.name, grace_seconds=0)
        await self._devices.detach(str(export), volume=volume.name, force=force)
        await self._end(volume.name, grace_seconds=_GRACE_SECONDS)
        await self._unmount_export(volume.name)
        await self._blocking(_remove_files, export)

    async def end_orphans(self, names: Collection[str]) -> None:
        """End the daemons of volumes that are not among `names`, and remove their exports: their journals are lost.

        A failure is logged: the next start repeats it.
        """
        known = {file_stem(name) for name in names}
        for stem in sorted(await self._blocking(self._stems) - known):
            log.warning("Began to end an orphaned storage daemon", volume=stem)
            try:
                await self.detach(StorageVolume(name=stem, backend=NAME, image=stem))
            except KubeletxError as error:
                log.error("Failed to end an orphaned storage daemon", volume=stem, err=str(error))

    def _stems(self) -> set[str]:
        """Return the names of the directories of all exports, and of daemons that run."""
        daemons = daemons_of(_PROGRAM, self._directory).values()
        return {one.name for one in (*self._directory.glob("*"), *(daemon.parent for daemon in daemons))}

    async def _look_for_users(self, volume: StorageVolume) -> FenceResult:
        if await self._blocking(is_locked, self._pools.image_path(volume)):
            return FenceResult(fenced=False, why="a process of this machine serves its image")
        return FenceResult(fenced=True, why="no process of this machine serves its image")

    def identify(self, name: str, mount: MountPoint) -> StorageVolume | None:
        export = self._export(name)
        if self._devices.file_of(mount.source) != str(export):
            return None
        try:
            found = self._pools.image_at((export.parent / "source").read_text())
        except OSError:
            return None
        if found is None:
            return None
        return StorageVolume(name=name, backend=NAME, pool=found[0], image=found[1], fs_type=mount.fs_type)

    async def _start(self, volume: StorageVolume, path: str, *, read_only: bool) -> None:
        """Start the daemon; the program returns when the export can be used."""
        export = self._export(volume.name)
        await self._blocking(_make_files, export, path)
        # without the volume's lock, which the daemon would keep
        result = await self._commands.run(
            _daemon_command(path, export, read_only=read_only), seconds=_START_SECONDS
        )
        if result.exit_code != 0:
            raise result.problem(f"volume {volume.name}")

    async def _end(self, name: str, *, grace_seconds: float) -> None:
        pid = await self._blocking(_end_daemons, self._export(name), grace_seconds)
        if pid:
            raise Unavailable(f"volume {name}: qemu-storage-daemon, PID {pid}, does not end after SIGKILL")

    async def _unmount_export(self, name: str) -> None:
        """Unmount the export of a daemon that was killed; the mount fails every call until then."""
        export = str(self._export(name))
        while find_mount(self._table(), export) is not None:
            result = await self._commands.run(["umount", "-c", "-l", "--", export], seconds=_UNMOUNT_SECONDS)
            if result.exit_code != 0:
                raise result.problem(f"volume {name}")

    def _export(self, name: str) -> Path:
        stem = file_stem(name)
        return (
            self._directory / stem / f".{stem}"
        )  # no image has this name, so that no search asks a hanging export

    def _pid_file(self, name: str) -> Path:
        return self._export(name).with_name(_PID_FILE)

    def _is_served(self, name: str) -> bool:
        return is_running(self._pid_file(name), str(self._export(name)))


def _daemon_command(path: str, export: Path, *, read_only: bool) -> list[str]:
    file = {
        "driver": "file",
        "node-name": "file",
        "filename": path,
        "discard": "unmap",
        "read-only": read_only,
    }
    disk = {"driver": "raw", "node-name": "disk", "file": "file", "discard": "unmap", "read-only": read_only}
    served = {
        "type": "fuse",
        "id": "export",
        "node-name": "disk",
        "mountpoint": str(export),
        "writable": not read_only,
    }
    options = [word for part in (file, disk) for word in ("--blockdev", json.dumps(part))]
    pid_file = str(export.with_name(_PID_FILE))
    return [
        _PROGRAM,
        "--daemonize",
        "--pidfile",
        pid_file,
        *options,
        "--export",
        json.dumps(served),
    ]


def _make_files(export: Path, path: str) -> None:
    """Make the directory of an export, with an empty file on which the daemon mounts, and a note of the image."""
    private_directory(export.parent)
    export.touch(mode=0o600)
    replace_file(export.with_name("source"), os.fsencode(path))


def _remove_files(export: Path) -> None:
    directory = export.parent
    for name in (_PID_FILE, "source", export.name):
        (directory / name).unlink(missing_ok=True)
    if directory.exists():
        directory.rmdir()


def _end_daemons(export: Path, grace_seconds: float) -> int:
    """End all daemons of an export; return the PID of a daemon that does not end, or 0.

    A daemon has no PID file if the agent was killed while it started.
    """
    noted = pid_of(export.with_name(_PID_FILE))  # the daemon removes the file
    for pid in {noted, *daemons_of(_PROGRAM, export.parent)}:
        if not end_daemon(pid, str(export), grace_seconds=grace_seconds):
            return pid
    return 0


def is_locked(path: str, locks: Path = _LOCKS) -> bool:
    """Return True if a process of this machine has a lock on the file. Source: proc(5). Blocks.

    qemu locks each image that it serves, but for no exclusive use.
    """
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return False
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return any(wanted in line.split() for line in locks.read_text().split("\n"))
