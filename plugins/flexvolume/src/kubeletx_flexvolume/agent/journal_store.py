"""`JournalStore`: journals as files, ``STATE/volumes/NAME.json``. All methods block.

A file that cannot be read is renamed to ``NAME.json.damaged``; what it described is found again in the mount table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import structlog

from ..files import HALF_WRITTEN, file_stem, private_directory, replace_file
from .journal import VERSION, VolumeJournal

log = structlog.get_logger(__name__)

_DAMAGED: Final = ".damaged"


class JournalStore:
    """Journals below `directory`, which must be private to the agent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> None:
        """Make the directory. Raises OSError."""
        private_directory(self._directory)

    def load(self) -> tuple[VolumeJournal, ...]:
        """Return all journals, ordered by volume; damaged files are set aside. Raises OSError."""
        for path in self._directory.glob(f".*{HALF_WRITTEN}"):
            path.unlink()
        found = [self._read(path) for path in sorted(self._directory.glob("*.json"))]
        return tuple(sorted((one for one in found if one is not None), key=lambda one: one.volume.name))

    def write(self, journal: VolumeJournal) -> None:
        """Write the journal to disk. Raises OSError; then the former one is there."""
        replace_file(self._path(journal.volume.name), msgspec.json.encode(journal))

    def remove(self, volume: str) -> None:
        """Remove the journal and the lock file of a volume of which nothing is left. Raises OSError."""
        path = self._path(volume)
        path.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)

    def _path(self, volume: str) -> Path:
        return self._directory / f"{file_stem(volume)}.json"

    def _read(self, path: Path) -> VolumeJournal | None:
        try:
            journal = msgspec.json.decode(path.read_bytes(), type=VolumeJournal)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = str(error)
        else:
            if journal.version == VERSION and path == self._path(journal.volume.name):
                return journal
            problem = f"it has version {journal.version} and is of volume {journal.volume.name}"
        aside = path.with_name(f"{path.name}{_DAMAGED}")
        log.error("Set a damaged journal aside", path=str(aside), err=problem)
        path.replace(aside)
        return None
