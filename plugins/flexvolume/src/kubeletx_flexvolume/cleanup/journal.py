"""`CleanupJournal`: the unfinished clean-ups of this node, in one file that is replaced atomically.

The file is separate from the journals of the volumes: the clean-up goes on after those are gone, and after a restart of
the agent during which the storage cluster, its claims and PersistentVolumes were deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from kubeletx.api import Blocking, Unavailable
from kubeletx.linux.files import replace_file
from kubeletx.linux.json_files import read_json

from .sequence import VolumeCleanup

VERSION = 1


class _Content(msgspec.Struct, frozen=True):
    volumes: tuple[VolumeCleanup, ...] = ()
    version: int = VERSION


class CleanupJournal:
    """Reads and writes the file. `path`: in a directory that only root can write."""

    def __init__(self, path: Path, blocking: Blocking) -> None:
        self._path = path
        self._blocking = blocking

    async def load(self) -> tuple[VolumeCleanup, ...]:
        """Return the unfinished clean-ups; none if there is no file. Raises Unavailable if it cannot be read.

        A damaged file is set aside: clusters that are being deleted still exist, since records name them, and begin again.
        """
        content = await self._blocking(_read, self._path)
        return content.volumes if content is not None else ()

    async def save(self, volumes: Iterable[VolumeCleanup]) -> None:
        """Write the unfinished clean-ups; they are on disk when it returns. Raises Unavailable."""
        data = msgspec.json.encode(_Content(tuple(volumes)))
        try:
            await self._blocking(replace_file, self._path, data)
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror or error}") from error


def _read(path: Path) -> _Content | None:
    return read_json(
        path, _Content, VERSION, without="; unmount the volumes of deleted storage clusters by hand then"
    )
