"""Backend ``rbd``: images of a Ceph cluster, mapped by the kernel with rbd(8).

    options pool, image; monitors (hosts, separated by commas; default: ceph.conf), user (default: admin)
    secret key ``key``: the user's key; without one, rbd uses its keyring

Recorded contract: the kernel of the tests has no rbd, so they check the commands that are run, not a device. The key
goes to rbd through a file in memory. A hanging unmap is interrupted and then killed. A holder is fenced by adding the
addresses of all clients that have the image open to the cluster's blocklist.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kubeletx.api import NotFound, Unavailable
from kubeletx.linux.mounts import MountPoint
from kubeletx.linux.programs import STDIN_FILE, ProgramResult

from ..commands import Commands
from ..values import AccessMode, Holder, StorageVolume
from .backend import (
    HOSTS,
    WORD,
    AttachedSource,
    Backend,
    FenceResult,
    check_one_writer,
    check_word,
    device_source,
    parameter,
    read_attribute,
)

NAME: Final = "rbd"
SECRET_KEY: Final = "key"
_SECONDS: Final = 15.0
_SYS_DEVICES: Final = Path("/sys/bus/rbd/devices")
_MISSING: Final = 2
_MIB: Final = 1 << 20
_ADDRESS: Final = re.compile(r"[0-9A-Za-z\[][-0-9A-Za-z.:/\[\]]{0,150}")
_BLOCK_SECONDS: Final = "157784760"
"""Five years. Ceph's default is an hour, after which the holder could write again. A restarted node has another address."""


class RbdBackend(Backend):
    """Images of Ceph. `sys_devices`: directory of the kernel's rbd devices."""

    name = NAME
    parameters = frozenset({"monitors", "user"})

    def __init__(
        self, commands: Commands, sys_devices: Path = _SYS_DEVICES, *, seconds: float = _SECONDS
    ) -> None:
        self._commands = commands
        self._sys_devices = sys_devices
        self._seconds = seconds

    def check(self, volume: StorageVolume) -> None:
        check_word(volume, "pool", volume.pool)
        check_word(volume, "image", volume.image)
        _client(volume)

    def check_modes(self, volume: StorageVolume, modes: Sequence[AccessMode]) -> None:
        check_one_writer(volume, modes)

    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        self.check(volume)
        present = self._device(volume)
        if present:
            return device_source(present)
        key = secrets.get(SECRET_KEY)
        if volume.size_bytes:
            await self._ensure_image(volume, key)
        result = await self._rbd(
            volume, ["map", *(["--read-only"] if read_only else [])], _image(volume), key=key
        )
        if result.exit_code == _MISSING:
            raise NotFound(
                f"volume {volume.name}: image {_image(volume)} does not exist; make it, or give option size"
            )
        if result.exit_code != 0:
            raise result.problem(f"volume {volume.name}")
        return device_source(result.out.strip())

    async def images(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        """Return pool and image. The monitors do not count: one cluster has several lists of them."""
        return (f"rbd {_image(volume)}",)

    async def find(self, volume: StorageVolume) -> AttachedSource | None:
        device = self._device(volume)
        return device_source(device) if device else None

    async def detach(self, volume: StorageVolume, *, force: bool = False) -> None:
        device = self._device(volume)
        if not device:
            return
        command = ["rbd", "unmap", *(["-o", "force"] if force else []), device]
        result = await self._commands.run(command, seconds=self._seconds, volume="" if force else volume.name)
        if self._device(volume):
            raise result.problem(f"volume {volume.name}")

    async def fence(self, volume: StorageVolume, holder: Holder) -> FenceResult:
        self.check(volume)
        if self._device(volume):
            return FenceResult(fenced=False, why=f"it is attached to this machine as {self._device(volume)}")
        clients = await self._clients(volume)
        if not clients:
            return FenceResult(
                fenced=False, why="no client has the image open, and the holder's address is unknown"
            )
        for address in clients:
            command = ["ceph", *_client(volume), "osd", "blocklist", "add", address, _BLOCK_SECONDS]
            result = await self._commands.run(command, seconds=self._seconds)
            if result.exit_code != 0:
                return FenceResult(fenced=False, why=str(result.problem(f"volume {volume.name}")))
        return FenceResult(fenced=True, why=f"Ceph refuses the clients {', '.join(clients)}")

    def identify(self, name: str, mount: MountPoint) -> StorageVolume | None:
        for device, pool, image in self._present():
            if device == mount.source:
                return StorageVolume(name=name, backend=NAME, pool=pool, image=image, fs_type=mount.fs_type)
        return None

    async def _ensure_image(self, volume: StorageVolume, key: bytes | None) -> None:
        """Make the image if it is missing."""
        result = await self._rbd(volume, ["info"], _image(volume), key=key)
        if result.exit_code == _MISSING:
            command = ["create", "--size", f"{_mib(volume.size_bytes)}M"]
            result = await self._rbd(volume, command, _image(volume), key=key)
        if result.exit_code != 0:
            raise result.problem(f"volume {volume.name}")

    async def _clients(self, volume: StorageVolume) -> list[str]:
        """Return the addresses of the clients that have the image open."""
        result = await self._rbd(volume, ["status", "--format", "json"], _image(volume), is_locked=False)
        if result.exit_code != 0:
            raise result.problem(f"volume {volume.name}")
        try:
            return _addresses(json.loads(result.out))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Unavailable(f"volume {volume.name}: {result.name} printed no list of watchers") from error

    async def _rbd(
        self,
        volume: StorageVolume,
        verb: list[str],
        image: str,
        *,
        key: bytes | None = None,
        is_locked: bool = True,
    ) -> ProgramResult:
        secret = [] if key is None else ["--keyfile", STDIN_FILE]
        command = ["rbd", verb[0], *_client(volume), *secret, *verb[1:], image]
        return await self._commands.run(
            command, seconds=self._seconds, volume=volume.name if is_locked else "", secret=key or b""
        )

    def _device(self, volume: StorageVolume) -> str:
        """Return the device of the image; empty if it is not mapped here."""
        wanted = (volume.pool, volume.image)
        return next((device for device, pool, image in self._present() if (pool, image) == wanted), "")

    def _present(self) -> list[tuple[str, str, str]]:
        """Return device, pool and image of each mapped image."""
        found = []
        try:
            names = sorted(os.listdir(self._sys_devices))  # a glob ignores errors since Python 3.13
        except FileNotFoundError:  # the kernel's module is not loaded
            names = []
        for name in names:
            fields = (self._sys_devices / name / field for field in ("pool", "name"))
            pool, image = (read_attribute(field).decode().strip() for field in fields)
            if pool and image:  # otherwise it has disappeared meanwhile
                found.append((f"/dev/rbd{name}", pool, image))
        return found


def _addresses(status: Any) -> list[str]:
    """Return the addresses of all watchers. Raises ValueError if one is not an address, which is not passed on."""
    watchers = status["watchers"]
    found = watchers.values() if isinstance(watchers, dict) else watchers
    addresses = sorted({one["address"] for one in found})
    if not all(_ADDRESS.fullmatch(address) for address in addresses):
        raise ValueError(addresses)
    return addresses


def _client(volume: StorageVolume) -> list[str]:
    user = parameter(volume, "user", WORD, "admin")
    monitors = parameter(volume, "monitors", HOSTS, "none")
    return ["--id", user, *(["-m", monitors] if "monitors" in volume.parameters else [])]


def _image(volume: StorageVolume) -> str:
    return f"{volume.pool}/{volume.image}"


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // _MIB)
