"""`StoreMemory`: remembers in a file which store has the entries of this node, also while the agent is stopped.

If the records are lost and made again, or the agent is started with other records, entries are missing although no lock
was broken. The identity of the store tells both cases apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeletx.api import BoundedThreadPool, Unavailable, WhenFull

from ..files import replace_file

FILE_NAME: Final = "records-store"
"""Name of the file in the agent's state directory."""


class StoreMemory:
    """Reads and writes the file, on a thread of its own."""

    def __init__(self, path: Path) -> None:
        """`path`: in a directory that only root can write; the directory must exist."""
        self._path = path
        self._pool = BoundedThreadPool("store of records", threads=1, when_full=WhenFull.WAIT, owner="file")

    async def load(self) -> str:
        """Return the identity of the store; empty if none was remembered. Raises Unavailable."""
        try:
            return (await self._pool.run(self._path.read_bytes)).decode(errors="replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be read: {error.strerror or error}") from error

    async def save(self, identity: str) -> None:
        """Write the identity; it is on disk when it returns. Raises Unavailable."""
        try:
            await self._pool.run(replace_file, self._path, identity.encode())
        except OSError as error:
            raise Unavailable(f"{self._path} cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """End the thread."""
        self._pool.close()
