"""Backend ``nbd``: exports of an NBD server, attached by the kernel with nbd-client(8).

    options server (host), port (default 10809); image is the name of the export

sysfs does not show the export of a device, so the backend notes the device of a volume in a file before it connects it,
with the boot ID: after a restart of the machine, another program may have connected that device.
A device that such a note names is not given to another volume. A disconnected device keeps its number, and fails all
reads and writes, until its last user has closed it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kubeletx.api import Blocking, Unavailable
from kubeletx.linux.files import private_directory, replace_file

from ..commands import Commands
from ..values import AccessMode, StorageVolume, file_stem
from .backend import (
    HOST,
    PORT,
    AttachedSource,
    Backend,
    check_one_writer,
    check_word,
    device_source,
    parameter,
    read_attribute,
)

NAME: Final = "nbd"
_SECONDS: Final = 30.0
_SYS_BLOCK: Final = Path("/sys/block")
_TIMEOUT: Final = "60"
"""Seconds after which the kernel fails reads and writes that the server does not answer."""


class NbdBackend(Backend):
    """Exports of NBD servers. `directory`: for notes on devices. `sys_block`: ``/sys/block``. `seconds`: deadline of nbd-client."""

    name = NAME
    parameters = frozenset({"server", "port"})
    unfenced = "the agent cannot cut a client off from an NBD server"

    def __init__(
        self,
        commands: Commands,
        blocking: Blocking,
        *,
        directory: Path,
        boot_id: str,
        sys_block: Path = _SYS_BLOCK,
        seconds: float = _SECONDS,
    ) -> None:
        self._commands = commands
        self._blocking = blocking
        self._directory = directory
        self._boot_id = boot_id
        self._sys_block = sys_block
        self._seconds = seconds
        self._choice = asyncio.Lock()

    def check(self, volume: StorageVolume) -> None:
        _server(volume)

    def check_modes(self, volume: StorageVolume, modes: Sequence[AccessMode]) -> None:
        check_one_writer(volume, modes)

    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        server, port = _server(volume)
        present = self._device(volume)
        if present:
            return device_source(present)
        async with self._choice:
            device = self._free_device(volume)
            await self._blocking(_write_note, self._note(volume), f"{device} {self._boot_id}")
        host = server.strip("[]")  # nbd-client looks the brackets of an IPv6 address up as a part of a name
        command = ["nbd-client", host, port, device, "-name", volume.image, "-timeout", _TIMEOUT]
        result = await self._commands.run(
            [*command, *(["-readonly"] if read_only else [])], seconds=self._seconds, volume=volume.name
        )
        if result.exit_code != 0:
            self._note(volume).unlink(missing_ok=True)
            raise result.problem(f"volume {volume.name}")
        return device_source(device)

    async def images(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        host, port = _server(volume)
        return (f"nbd {host.lower()} {int(port)} {volume.image}",)

    async def find(self, volume: StorageVolume) -> AttachedSource | None:
        device = self._device(volume)
        return device_source(device) if device else None

    async def detach(self, volume: StorageVolume, *, force: bool = False) -> None:
        device = self._device(volume)
        if device:
            # nbd-client would disconnect a mounted device, and what is not written yet would be lost
            if not force and await self._blocking(_is_mounted, device):
                raise _in_use(volume, device)
            command = ["nbd-client", "-d", device]
            result = await self._commands.run(
                command, seconds=self._seconds, volume="" if force else volume.name
            )
            if self._device(volume):
                raise (
                    _in_use(volume, device)
                    if result.exit_code == 0
                    else result.problem(f"volume {volume.name}")
                )
        self._note(volume).unlink(missing_ok=True)

    def _device(self, volume: StorageVolume) -> str:
        """Return the device that is connected for the volume; empty if there is none."""
        device = self._read_note(self._note(volume))
        return device if device and self._is_connected(device) else ""

    def _read_note(self, path: Path) -> str:
        """Return the device that was noted since the machine's start; empty if there is none. Raises Unavailable."""
        device, _, boot_id = os.fsdecode(read_attribute(path)).partition(" ")
        return device if boot_id in ("", self._boot_id) else ""  # notes of former versions have no boot ID

    def _is_connected(self, device: str) -> bool:
        return (self._sys_block / device.rpartition("/")[2] / "pid").exists()

    def _free_device(self, volume: StorageVolume) -> str:
        noted = {self._read_note(one) for one in self._directory.glob("*")}
        own = self._read_note(self._note(volume))
        for one in sorted(self._sys_block.glob("nbd*")):
            device = f"/dev/{one.name}"
            if not self._is_connected(device) and (device == own or device not in noted):
                return device
        raise Unavailable(
            f"volume {volume.name}: no nbd device is free; load module nbd with a larger nbds_max"
        )

    def _note(self, volume: StorageVolume) -> Path:
        return self._directory / file_stem(volume.name)


def _server(volume: StorageVolume) -> tuple[str, str]:
    check_word(volume, "image", volume.image)
    return parameter(volume, "server", HOST), parameter(volume, "port", PORT, "10809")


def _write_note(path: Path, text: str) -> None:
    private_directory(path.parent)
    replace_file(path, os.fsencode(text))


def _is_mounted(device: str) -> bool:
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _in_use(volume: StorageVolume, device: str) -> Unavailable:
    return Unavailable(
        f"volume {volume.name}: {device} is in use; stop the process that has it open or mounted"
    )
