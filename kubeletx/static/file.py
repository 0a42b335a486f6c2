"""Static pods from a directory of manifests, or from one manifest file.

    inotify ──► changed files ──► Looking ──► ManifestOwnership ──► sink
    every 20 s: list, compare signatures ──┘

A change costs one read, however many manifests there are. The list every `check_seconds` only compares signatures
(`FileSignature`). If the path is missing at the start, the source has no pods. If the path vanishes or becomes
unreadable later, its pods are kept and one warning is logged. If a file is invalid or unreadable, its pods are kept,
also across a restart of the agent (`memory`). Only the removal of a file removes its pods. The removal takes effect
when no other file was removed for a moment and the directory still exists: deleting a directory first removes its
files.
"""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Final

import structlog

from kubeletx.api import Clock, sleep_or
from kubeletx.pods.model.sources import FILE, PodSink

from .files import is_complete_at_once, is_gone, list_names
from .last_good import LastGoodManifests
from .local_objects import LocalObjects
from .looking import Looking, LookOutcome
from .manifest import ManifestReader, OnUnknown, ignore_unknown
from .manifest_ownership import ManifestOwnership
from .watch import PathWatch

log = structlog.get_logger(__name__)


class FileSource:
    """Pod source of ``--pod-manifest-path``: reads manifest files and delivers their pods.

    The agent runs `run` as a task.
    """

    def __init__(
        self,
        *,
        path: Path,
        sink: PodSink,
        reader: ManifestReader,
        clock: Clock,
        check_seconds: float = 20.0,
        memory: Path | None = None,
        on_unknown: OnUnknown = ignore_unknown,
        objects: LocalObjects | None = None,
    ) -> None:
        """`path`: directory of manifests, or one manifest file. `sink`: gets the pods (the pod manager).

        `check_seconds`: interval at which the path is listed again, in addition to inotify. `memory`: directory in
        which the last valid text of each manifest is stored for restarts of the agent; None: it is not stored.
        `on_unknown`: called with each pod that has unknown fields. `objects`: gets the config maps, secrets and claims
        of the manifests, if `reader` reads them.
        """
        self._objects = objects
        self._path = os.path.abspath(path)
        self._sink = sink
        self._clock = clock
        self._check_seconds = check_seconds
        self._claims = ManifestOwnership(sink, FILE, objects)
        self._looking = Looking(
            claims=self._claims,
            reader=reader,
            clock=clock,
            remembered=LastGoodManifests(memory) if memory is not None else None,
            on_unknown=on_unknown,
        )
        self._removals = Removals(clock)
        self._changed: set[str] = set()
        self._postponed: set[str] = set()
        self._wake = asyncio.Event()
        self._is_list_due = True
        self._is_synced = False
        self._outage: str | None = None
        self._watch = PathWatch(
            self._path, on_changed=self._on_changed, on_gone=self._on_gone, on_path=self._on_path
        )

    async def run(self) -> None:
        try:
            while True:
                list_at = self._clock.monotonic() + self._check_seconds
                await self._list()
                await self._follow(list_at)
        finally:
            self._watch.close()
            self._looking.close()

    async def _follow(self, list_at: float) -> None:
        """Handle changes of single files until all files must be listed again.

        This is at the monotonic time `list_at`, or when the watch reports a change of the path itself.
        """
        while not self._is_list_due:
            await self._work()
            seconds = list_at - self._clock.monotonic()
            if seconds <= 0:
                return
            removals_seconds = self._removals.seconds_left()
            if removals_seconds is not None:
                seconds = min(seconds, removals_seconds)
            if not self._changed and not self._is_list_due:
                await sleep_or(self._clock, seconds, self._wake)
                self._wake.clear()

    # --- callbacks of the watch ---------------------------------------------------------------------

    def _on_changed(self, path: str, is_created: bool) -> None:
        if is_created and not is_complete_at_once(path):
            return  # it is still being written; inotify reports its closing
        self._removals.discard(path)
        self._changed.add(path)
        self._wake.set()

    def _on_gone(self, path: str) -> None:
        self._changed.discard(path)
        self._postponed.discard(path)
        if path in self._claims:
            self._removals.add(path)
            self._wake.set()

    def _on_path(self) -> None:
        self._is_list_due = True
        self._wake.set()

    # --- all files ----------------------------------------------------------------------------------

    async def _list(self) -> None:
        """List all manifests and read manifests whose signature has changed."""
        self._is_list_due = False
        self._watch.arm()
        try:
            paths = self._paths()
        except (FileNotFoundError, NotADirectoryError) as err:
            if is_gone(self._path):
                self._begin_outage("is missing")
                self._set_synced([])
            else:
                await self._keep_behind_link(err.strerror or str(err))
            return
        except OSError as err:
            self._begin_outage(f"cannot be read: {err.strerror}")
            return
        self._end_outage()
        for path in paths:
            self._removals.discard(path)
        await self._look_at(paths)
        for path in self._claims.origins().difference(paths):
            self._removals.add(path)
        self._set_synced(paths)

    async def _keep_behind_link(self, problem: str) -> None:
        """Keep the pods if the path is a link without a target, such as to a file system that is not mounted yet.

        Before the source is synced, these are the pods of the stored manifests.
        """
        self._begin_outage(f"is a link that leads nowhere: {problem}")
        if not self._is_synced:
            self._set_synced(await self._looking.keep_remembered(self._path, problem))

    def _paths(self) -> list[str]:
        if not stat.S_ISDIR(os.stat(self._path).st_mode):
            return [self._path]
        return [os.path.join(self._path, name) for name in list_names(self._path)]

    def _set_synced(self, paths: list[str]) -> None:
        if not self._is_synced:
            self._is_synced = True
            self._looking.begin(paths)
            if self._objects is not None:
                self._objects.set_complete()
            self._sink.synced(FILE)

    def _begin_outage(self, problem: str) -> None:
        self._removals.clear()
        if problem == self._outage:
            return
        self._outage = problem
        if self._is_synced or problem != "is missing":
            pods = len(self._claims.origins())
            log.warning("Kept the pods of the manifest path", path=self._path, err=problem, manifests=pods)
        else:
            log.info("Manifest path did not exist yet", path=self._path)

    def _end_outage(self) -> None:
        if self._outage is not None:
            self._outage = None
            log.info("Found the manifest path", path=self._path)

    # --- single files -------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Read the files that changed, then remove the pods of removed files whose removal takes effect now."""
        changed, self._changed = sorted(self._changed), set()
        await self._look_at(changed)
        self._let_go()

    def _let_go(self) -> None:
        if self._removals.seconds_left() == 0.0 and is_gone(self._path):
            self._is_list_due = True
            return
        for path in self._removals.take():
            if is_gone(path) or os.path.isdir(path):
                self._looking.drop(path)
        if self._postponed and self._removals.seconds_left() is None:
            self._changed |= self._postponed
            self._postponed.clear()

    async def _look_at(self, paths: list[str]) -> None:
        for path in paths:
            match await self._looking.look(path, self._removals):
                case LookOutcome.GONE:
                    self._on_gone(path)
                case LookOutcome.POSTPONED:
                    self._postponed.add(path)
            await asyncio.sleep(0)  # the first pods start while the other files are read


QUIET_SECONDS: Final = 0.2
"""Seconds without another removal after which the removals take effect."""
LONGEST_SECONDS: Final = 2.0
"""Seconds since the first removal after which the removals take effect in any case."""


class Removals:
    """Collects removed files until their removals take effect, all at the same time.

    If the whole directory is deleted, its files are removed first. The delay gives time to detect this, so that the pods
    are kept.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paths: dict[str, None] = {}
        self._first_at = self._last_at = 0.0

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def add(self, path: str) -> None:
        """Add a removed file. This delays the effect of all pending removals again, up to `LONGEST_SECONDS`."""
        if path in self._paths:
            return
        self._last_at = self._clock.monotonic()
        if not self._paths:
            self._first_at = self._last_at
        self._paths[path] = None

    def discard(self, path: str) -> None:
        """Cancel the removal of a file that exists again."""
        self._paths.pop(path, None)

    def clear(self) -> None:
        """Cancel all pending removals."""
        self._paths.clear()

    def seconds_left(self) -> float | None:
        """Return the seconds until the pending removals take effect; 0.0 if they may take effect now.

        Returns None if there are no pending removals.
        """
        if not self._paths:
            return None
        believed_at = min(self._last_at + QUIET_SECONDS, self._first_at + LONGEST_SECONDS)
        return max(0.0, believed_at - self._clock.monotonic())

    def take(self) -> list[str]:
        """Return the files whose removal takes effect now, sorted, and forget them; empty if it is too early."""
        if self.seconds_left() != 0.0:
            return []
        paths = sorted(self._paths)
        self._paths.clear()
        return paths
