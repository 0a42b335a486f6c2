"""Journals on disk: `JournalFiles` are all of them, ``STATE/volumes/NAME.json``; `StoredJournal` is one worker's."""

from __future__ import annotations

from pathlib import Path

import structlog

from kubeletx.api import Blocking, Unavailable
from kubeletx.linux.json_files import JsonFiles

from ..values import file_stem
from .journal import VERSION, VolumeJournal
from .plan import Step, announce, is_covered
from .progress import REMOVALS

log = structlog.get_logger(__name__)


class JournalFiles(JsonFiles[VolumeJournal]):
    """Journals in `directory`, which must be private to the agent. All methods block.

    A damaged journal is set aside; what it described is found again in the mount table.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            VolumeJournal,
            version=VERSION,
            name=lambda journal: file_stem(journal.volume.name),
            without="; a volume that is not mounted then stays attached",
        )

    def load_all(self) -> tuple[VolumeJournal, ...]:
        """Return all journals, ordered by volume. Raises OSError, and Unavailable if one can be read later only.

        Such a journal, of a newer agent for example, must not be overwritten with what the mount table shows.
        """
        loaded = self.load()
        for problem in loaded.problems.values():
            raise problem
        return tuple(sorted(loaded.values.values(), key=lambda journal: journal.volume.name))

    def remove(self, name: str) -> bool:
        """Remove the journal and the lock file of a volume of which nothing is left. Raises OSError."""
        stem = file_stem(name)
        was_there = super().remove(stem)
        self.path(stem).with_suffix(".lock").unlink(missing_ok=True)
        return was_there


class StoredJournal:
    """The journal that is on disk. `present` None: there is none."""

    def __init__(
        self, name: str, store: JournalFiles, blocking: Blocking, *, present: VolumeJournal | None = None
    ) -> None:
        self._name = name
        self._store = store
        self._blocking = blocking
        self._present = present

    def is_same(self, journal: VolumeJournal) -> bool:
        """Return True if the disk has this journal; an empty one has no file."""
        return self._present == (None if journal.is_empty else journal)

    async def announce(self, journal: VolumeJournal, step: Step) -> None:
        """Write what the step may make, before the step is done. Raises Unavailable.

        A removal is done also if that fails, such as on a full disk.
        """
        if is_covered(self._present, step):
            return
        try:
            await self.write(announce(journal, step))
        except Unavailable as error:
            if step.kind not in REMOVALS:
                raise
            log.warning("Failed to write a journal", volume=self._name, err=str(error))

    async def write(self, journal: VolumeJournal) -> None:
        """Write the journal, or remove it if it is empty. Raises Unavailable."""
        try:
            if journal.is_empty:
                await self._blocking(self._store.remove, self._name)
            else:
                await self._blocking(self._store.put, journal)
        except OSError as error:
            problem = f"its journal cannot be written: {error.strerror}"
            raise Unavailable(f"volume {self._name}: {problem}; check the state directory") from error
        self._present = None if journal.is_empty else journal
