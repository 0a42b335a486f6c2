"""The journal of a pod's volumes that volume drivers prepare: ``pods/<uid>/volumes.json``.

    PREPARING ─► READY ─► RELEASING ─► removed with its entry

An entry is on disk before the driver is called, so that the volume is released after a crash, and for a pod whose spec
is lost. It contains the request without its secrets. A damaged file is set aside, and the entries are rebuilt from the
directories of the volumes; so are volumes of a pod whose journal is gone, or volumes of another program, such
as a kubelet. A file of a newer version stays, and blocks its pod. Pods without such volumes have no journal. All
functions block.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import PodUid, ReadyVolume, Unavailable, VolumePod, VolumeRequest
from kubeletx.api.names import Event
from kubeletx.linux.files import remove_file, replace_file
from kubeletx.linux.json_files import read_json

from .. import layout
from .table import DRIVER_SOURCES

VERSION: Final = 1
_WITHOUT: Final = "; the volumes are then released without their options"
_OWN: Final = frozenset(map(layout.source_directory, layout.OWN))


class EntryState(enum.Enum):
    """State of one volume. In every state its driver may have left something on the node."""

    PREPARING = "preparing"
    READY = "ready"
    RELEASING = "releasing"


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One volume of a pod. `request`: without secrets. `driver`: name of the volume driver; empty if it was rebuilt.

    `ready`: result of the driver; None until it has prepared the volume. `boot_id`: of the kernel under which it was
    prepared. `is_mount`: the volume's path was a mount point then. `has_group`: the pod's fsGroup was applied.
    `since`: time of the last change of `state`, in seconds since the epoch.
    """

    request: VolumeRequest
    driver: str
    state: EntryState = EntryState.PREPARING
    ready: ReadyVolume | None = None
    boot_id: str = ""
    is_mount: bool = False
    has_group: bool = False
    since: float = 0.0

    @property
    def path(self) -> str:
        return (self.ready.path if self.ready is not None else "") or self.request.target


class PodJournal(msgspec.Struct, frozen=True, kw_only=True):
    """All entries of one pod, by volume name, in the order in which they were added."""

    entries: dict[str, JournalEntry] = {}
    version: int = VERSION

    def with_entry(self, entry: JournalEntry) -> PodJournal:
        """Return the journal with the entry added or replaced; a rebuilt entry of its target, too."""
        target = entry.request.target
        others = {
            key: other
            for key, other in self.entries.items()
            if other.driver or other.request.target != target
        }
        return PodJournal(entries={**others, entry.request.name: entry})

    def without(self, name: str) -> PodJournal:
        """Return the journal without the volume `name`."""
        return PodJournal(entries={key: entry for key, entry in self.entries.items() if key != name})


def without_secrets(request: VolumeRequest) -> VolumeRequest:
    """Return the request as it may be stored."""
    return msgspec.structs.replace(request, secrets={}) if request.secrets else request


def read_journal(root_dir: Path, uid: PodUid, is_served: Callable[[str, str], bool]) -> PodJournal:
    """Return the pod's journal; it is empty if the pod has none, and no volumes of drivers.

    `is_served`: returns True if there is a driver for a source and a driver's name; of a pod without a journal only
    such volumes are returned. Raises Unavailable if the file cannot be read now, or is of a newer version.
    """
    path = layout.journal_path(root_dir, uid)
    was_there = os.path.lexists(path)
    try:
        journal = read_json(path, PodJournal, VERSION, without=_WITHOUT)
    except Unavailable as error:
        raise Unavailable(error.message, reason=Event.FAILED_MOUNT) from error
    if journal is not None:
        return journal
    rebuilt = rebuild_journal(root_dir, uid)
    return rebuilt if was_there else _served(rebuilt, is_served)


def has_volumes(root_dir: Path, uid: PodUid, is_served: Callable[[str, str], bool]) -> bool:
    """Return True if the pod has a journal, or volumes of drivers that are there."""
    path = layout.journal_path(root_dir, uid)
    return os.path.lexists(path) or bool(_served(rebuild_journal(root_dir, uid), is_served).entries)


def write_journal(root_dir: Path, uid: PodUid, journal: PodJournal) -> None:
    """Write the pod's journal to disk, or remove it if it has no entries. Raises OSError."""
    path = layout.journal_path(root_dir, uid)
    if journal.entries:
        replace_file(path, msgspec.json.encode(journal), mode=0o600)
    else:
        remove_file(path)


def rebuild_journal(root_dir: Path, uid: PodUid) -> PodJournal:
    """Return a journal with the volumes of drivers that have a directory; their options are unknown."""
    entries: dict[str, JournalEntry] = {}
    for base, is_block in (
        (layout.volumes_dir(root_dir, uid), False),
        (layout.devices_dir(root_dir, uid), True),
    ):
        for directory in _children(base):
            source, driver = _source_of(directory.name)
            for target in _children(directory) if source else ():
                name = target.name if target.name not in entries else f"{directory.name}/{target.name}"
                request = VolumeRequest(
                    pod=VolumePod(uid=uid, name="", namespace=""),
                    name=name,
                    persistent_volume=target.name,
                    source=source,
                    driver=driver,
                    target=str(target),
                    is_block=is_block,
                )
                entries[name] = JournalEntry(request=request, driver="", state=EntryState.RELEASING)
    return PodJournal(entries=entries)


def _served(journal: PodJournal, is_served: Callable[[str, str], bool]) -> PodJournal:
    entries = journal.entries.items()
    return PodJournal(
        entries={
            key: entry for key, entry in entries if is_served(entry.request.source, entry.request.driver)
        }
    )


def _source_of(directory: str) -> tuple[str, str]:
    """Return source and driver of the volumes in a directory such as ``vendor~driver``.

    The source is empty for kinds that the agent prepares without a driver.
    """
    if directory in _OWN:
        return "", ""
    kinds = {layout.source_directory(source): source for source in (*DRIVER_SOURCES, layout.NFS)}
    if directory in kinds:
        return kinds[directory], ""
    return layout.FLEX_VOLUME, directory.replace("~", "/")


def _children(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if not entry.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return []
