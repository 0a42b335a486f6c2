"""`StoredJournal`: the journal of one volume on disk, as its worker uses it."""

from __future__ import annotations

import structlog

from kubeletx.api import Blocking, Unavailable

from .journal import VolumeJournal
from .journal_store import JournalStore
from .plan import Step, announce, is_covered
from .progress import REMOVALS

log = structlog.get_logger(__name__)


class StoredJournal:
    """The journal that is on disk. `present` None: there is none."""

    def __init__(
        self, name: str, store: JournalStore, blocking: Blocking, *, present: VolumeJournal | None = None
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
                await self._blocking(self._store.write, journal)
        except OSError as error:
            problem = f"its journal cannot be written: {error.strerror}"
            raise Unavailable(f"volume {self._name}: {problem}; check the state directory") from error
        self._present = None if journal.is_empty else journal
