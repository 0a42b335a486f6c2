"""The journal of a pod's volumes that volume drivers prepare: ``pods/<uid>/volumes.json``.

    PREPARING ─► READY ─► RELEASING ─► removed with its entry

An entry is on disk before the driver is called, so that the volume is released after a crash, and for a pod whose spec is
lost. It contains the request without its secrets. A file that cannot be read is set aside, and the entries are
rebuilt from the directories of the volumes. Pods without such volumes have no journal. All functions block.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import PodUid, ReadyVolume, VolumePod, VolumeRequest
from kubeletx.store.files import remove_file, write_file

from .. import layout
from ..files.held import hold_directory
from .sources import DRIVER_SOURCES

log = structlog.get_logger(__name__)

VERSION: Final = 1
MAX_BYTES: Final = 4 * 1024 * 1024
_SET_ASIDE: Final = "volumes.json.damaged"
_OWN: Final = frozenset(
    layout.source_directory(kind)
    for kind in (
        layout.EMPTY_DIR,
        layout.DOWNWARD_API,
        layout.PROJECTED,
        layout.CONFIG_MAP,
        layout.SECRET,
        layout.LOCAL,
    )
)


class EntryState(enum.Enum):
    """State of one volume. In every state its driver may have left something on the node."""

    PREPARING = "preparing"
    READY = "ready"
    RELEASING = "releasing"


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One volume of a pod. `driver`: name of the volume driver. `request`: without secrets.

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
        """Path of the volume on the node."""
        return (self.ready.path if self.ready is not None else "") or self.request.target


class PodJournal(msgspec.Struct, frozen=True, kw_only=True):
    """All entries of one pod, by volume name, in the order in which they were added."""

    entries: dict[str, JournalEntry] = {}
    version: int = VERSION

    def with_entry(self, entry: JournalEntry) -> PodJournal:
        """Return the journal with the entry added or replaced."""
        return PodJournal(entries={**self.entries, entry.request.name: entry})

    def without(self, name: str) -> PodJournal:
        """Return the journal without the volume `name`."""
        return PodJournal(entries={key: one for key, one in self.entries.items() if key != name})


def without_secrets(request: VolumeRequest) -> VolumeRequest:
    """Return the request as it may be stored."""
    return msgspec.structs.replace(request, secrets={}) if request.secrets else request


def read_journal(root_dir: Path, uid: PodUid) -> PodJournal:
    """Return the pod's journal; it is empty if the pod has none."""
    path = layout.journal_path(root_dir, uid)
    try:
        with hold_directory(path.parent, depth=1) as directory:
            data = directory.read(path.name, MAX_BYTES)
        journal = msgspec.json.decode(data, type=PodJournal)
    except FileNotFoundError:
        return PodJournal()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("Set a journal of volumes aside", pod_uid=uid, path=str(path), err=str(error))
        path.replace(path.with_name(_SET_ASIDE))
        return rebuild_journal(root_dir, uid)
    return journal


def write_journal(root_dir: Path, uid: PodUid, journal: PodJournal) -> None:
    """Write the pod's journal to disk, or remove it if it has no entries."""
    path = layout.journal_path(root_dir, uid)
    if journal.entries:
        write_file(path, msgspec.json.encode(journal), mode=0o600)
    else:
        remove_file(path)


def rebuild_journal(root_dir: Path, uid: PodUid) -> PodJournal:
    """Return a journal with the volumes of drivers that have a directory; their options are unknown."""
    entries = {}
    for base, is_block in (
        (layout.volumes_dir(root_dir, uid), False),
        (layout.devices_dir(root_dir, uid), True),
    ):
        for directory in _children(base):
            source, driver = _source_of(directory.name)
            for target in _children(directory) if source else ():
                request = VolumeRequest(
                    pod=VolumePod(uid=uid, name="", namespace=""),
                    name=target.name,
                    persistent_volume=target.name,
                    source=source,
                    driver=driver,
                    target=str(target),
                    is_block=is_block,
                )
                entries[target.name] = JournalEntry(request=request, driver="", state=EntryState.RELEASING)
    return PodJournal(entries=entries)


def _source_of(directory: str) -> tuple[str, str]:
    """Return source and driver of the volumes in a directory such as ``vendor~driver``.

    The source is empty for kinds that the agent prepares without a driver.
    """
    if directory in _OWN:
        return "", ""
    kinds = {layout.source_directory(source): source for source in (*DRIVER_SOURCES, layout.NFS)}
    if directory in kinds:
        return kinds[directory], ""
    return layout.FLEX_VOLUME, directory.replace("~", "/", 1)


def _children(path: Path) -> list[Path]:
    try:
        return sorted(one for one in path.iterdir() if not one.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return []
