"""`CleanupJournal`: the unfinished clean-ups of this node, in one file that is replaced atomically.

The file is separate from the journals of the volumes: the clean-up goes on after those are gone, and after a restart of
the agent during which the storage cluster, its claims and PersistentVolumes were deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import structlog

from kubeletx.api import Blocking, Internal, Unavailable

from ..files import replace_file
from .sequence import VolumeCleanup

log = structlog.get_logger(__name__)


class _Content(msgspec.Struct, frozen=True):
    volumes: tuple[VolumeCleanup, ...] = ()


class CleanupJournal:
    """Reads and writes the file. `path`: in a directory that only root can write, and that must exist."""

    def __init__(self, path: Path, blocking: Blocking) -> None:
        self._path = path
        self._blocking = blocking

    async def load(self) -> tuple[VolumeCleanup, ...]:
        """Return the unfinished clean-ups; none if there is no file. Raises Internal if it cannot be read."""
        try:
            data = await self._blocking(self._path.read_bytes)
            return msgspec.json.decode(data, type=_Content).volumes
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror or error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Internal(
                f"{self._path} is no journal of clean-ups: {error}; remove it, and unmount the volumes of deleted storage "
                "clusters by hand"
            ) from error

    async def save(self, volumes: Iterable[VolumeCleanup]) -> None:
        """Write the unfinished clean-ups; they are on disk when it returns. Raises Unavailable."""
        data = msgspec.json.encode(_Content(tuple(volumes)))
        try:
            await self._blocking(replace_file, self._path, data)
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror or error}") from error
