"""`Backends`: the backends of one agent, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from kubeletx.api import Blocking, Clock, InvalidConfig

from ..commands import Commands
from ..mount_table import MountEntry
from ..values import StorageVolume
from . import directory, fuse, loop, nbd, nfs, rbd
from .backend import Backend
from .identify import Identifies
from .loop_devices import LoopDevices
from .pools import Pool, Pools


class CheckedBackend(Backend, Protocol):
    """A backend that checks a volume's options before anything is done."""

    def check(self, volume: StorageVolume) -> None:
        """Raise InvalidConfig if the options cannot work."""
        ...


class Backends:
    """Backends by name. `parameters`: names of the options that only the backend of that name has."""

    def __init__(
        self, backends: Mapping[str, CheckedBackend], parameters: Mapping[str, frozenset[str]] = {}
    ) -> None:
        self._backends = backends
        self._parameters = parameters

    def get(self, name: str) -> CheckedBackend:
        """Return the backend. Raises InvalidConfig."""
        if name not in self._backends:
            known = ", ".join(sorted(self._backends))
            raise InvalidConfig(
                obj="volume",
                field="option backend",
                problem=f"{name!r} is unknown",
                fix=f"use one of {known}",
            )
        return self._backends[name]

    def parameters_of(self, name: str) -> frozenset[str]:
        """Return the names of the options that only this backend has."""
        return self._parameters.get(name, frozenset())

    def identify(self, name: str, mount: MountEntry) -> StorageVolume | None:
        """Return the volume that a mount shows; None if no backend recognizes it."""
        found = (one.identify(name, mount) for one in self._backends.values() if isinstance(one, Identifies))
        return next((volume for volume in found if volume is not None), None)

    def by_name(self) -> dict[str, CheckedBackend]:
        """Return all backends by name."""
        return dict(self._backends)


class BackendParts(msgspec.Struct, frozen=True, kw_only=True):
    """Services of the agent for backends. `state_directory`: parent of the directories that backends make.

    `table`: returns the mounts of the agent's own mount namespace, where pools and devices are.
    """

    pools: Mapping[str, Pool]
    commands: Commands
    clock: Clock
    blocking: Blocking
    boot_id: str
    state_directory: Path
    table: Callable[[], Sequence[MountEntry]]


def build_backends(parts: BackendParts) -> Backends:
    """Return all backends."""
    pools, devices = Pools(parts.pools, parts.boot_id), LoopDevices(parts.commands, parts.clock)
    backends: dict[str, CheckedBackend] = {
        loop.NAME: loop.LoopBackend(pools, devices, parts.blocking, boot_id=parts.boot_id),
        directory.NAME: directory.DirectoryBackend(pools, parts.blocking, parts.table),
        fuse.NAME: fuse.FuseBackend(
            pools,
            devices,
            parts.commands,
            parts.blocking,
            directory=parts.state_directory / fuse.NAME,
            boot_id=parts.boot_id,
            table=parts.table,
        ),
        nfs.NAME: nfs.NfsBackend(),
        rbd.NAME: rbd.RbdBackend(parts.commands),
        nbd.NAME: nbd.NbdBackend(parts.commands, parts.blocking, directory=parts.state_directory / nbd.NAME),
    }
    parameters = {
        loop.NAME: loop.PARAMETERS,
        directory.NAME: directory.PARAMETERS,
        fuse.NAME: fuse.PARAMETERS,
        nfs.NAME: nfs.PARAMETERS,
        rbd.NAME: rbd.PARAMETERS,
        nbd.NAME: nbd.PARAMETERS,
    }
    return Backends(backends, parameters)
