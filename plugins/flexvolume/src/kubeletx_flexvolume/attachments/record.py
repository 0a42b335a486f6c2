"""Values of attachment records: the entries of one volume, and the JSON object in which they are stored.

    {"attachments": [ENTRY, ...], "nodes": "n1", "pods": "default/web-0", "mode": "ReadWrite", "device": ..., ...}

A record is named by its volume. The same entry is in the records of its image, which are named by its identity: so two
volumes of one image are noticed, on whatever nodes they are. The entry is in the volume's record first, and leaves it
last; so an entry that is found there shows all others.

Only the list counts. The other fields summarize it for the columns of ``kubectl get``; they are computed at each write
and never read. An entry also has what another node, or this one without its journal, needs to detach the volume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import structlog

from kubeletx.api import Internal, Record

from ..values import IMAGE_RECORD, AccessMode, Holder, HolderKey, StorageVolume

log = structlog.get_logger(__name__)

Entries = tuple["AttachmentEntry", ...]
MAX_ENTRIES = 300
"""Maximum number of entries of one record, so that its value stays below `kubeletx.api.records.MAX_VALUE_BYTES`."""


class AttachmentEntry(Holder, frozen=True, kw_only=True, rename="camel"):
    """One entry of a record: the holder, the UID of its Node object, and where the volume is.

    `node_uid`: empty without a cluster. `parameters`: of the volume; they contain no secrets. `modes`: access modes
    that the volume had for this holder.
    """

    node_uid: str = msgspec.field(default="", name="nodeUID")
    volume_name: str = ""
    modes: tuple[AccessMode, ...] = ()
    backend: str = ""
    image: str = ""
    pool: str = ""
    cluster: str = ""
    parameters: dict[str, str] = {}

    @property
    def holder(self) -> Holder:
        """Part of the entry that mount and unmount use."""
        return Holder(**{name: getattr(self, name) for name in Holder.__struct_fields__})

    def volume(self, name: str) -> StorageVolume:
        """Return what is known of the volume, enough to find, detach and fence it.

        `name`: of its record, for an entry of an earlier version.
        """
        return StorageVolume(
            name=self.volume_name or name,
            backend=self.backend,
            image=self.image,
            pool=self.pool,
            cluster=self.cluster,
            parameters=self.parameters,
        )


class BriefEntry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Node and boot at which an entry was made, and the storage cluster of its volume."""

    node: str
    boot_id: str = msgspec.field(name="bootID")
    node_uid: str = msgspec.field(default="", name="nodeUID")
    cluster: str = ""


class _Brief(msgspec.Struct, frozen=True, gc=False):
    attachments: tuple[BriefEntry, ...]


def origins_of(record: Record, problems: list[str] | None = None) -> tuple[BriefEntry, ...]:
    """Return the origins of the entries of a record; none if it cannot be read.

    That is added to `problems`; without them, it is logged.
    """
    try:
        return msgspec.convert(record.value, _Brief).attachments
    except msgspec.ValidationError as error:
        if problems is not None:
            problems.append(f"attachment record {record.name} cannot be read: {error}")
        else:
            log.warning("Failed to read an attachment record", volume=record.name, err=str(error))
        return ()


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    attachments: Entries


def image_record(identity: str) -> str:
    """Return the name of the record of an image. `identity`: see `Backend.images`."""
    return hashlib.sha256(identity.encode()).hexdigest()[:40] + IMAGE_RECORD


def is_image_record(name: str) -> bool:
    """Return True for the name of an image's record; other records are of volumes."""
    return name.endswith(IMAGE_RECORD)


def entry_of(volume: StorageVolume, holder: Holder, *, node_uid: str = "") -> AttachmentEntry:
    """Make the entry of `holder` for a volume."""
    return AttachmentEntry(
        **{name: getattr(holder, name) for name in Holder.__struct_fields__},
        node_uid=node_uid,
        volume_name=volume.name,
        backend=volume.backend,
        image=volume.image,
        pool=volume.pool,
        cluster=volume.cluster,
        parameters=volume.parameters,
    )


def entries_of(record: Record | None) -> Entries:
    """Return the entries of a record; none if it does not exist. Raises Internal if the record cannot be read."""
    if record is None:
        return ()
    try:
        return record.as_type(_Value).attachments
    except msgspec.ValidationError as error:
        raise Internal(
            f"attachment record {record.name} cannot be read: {error}; correct it, or delete it once the volume is "
            "attached to no node"
        ) from error


def value_of(entries: Sequence[AttachmentEntry]) -> dict[str, Any]:
    """Return the JSON object to store for these entries, with its summary."""
    value: dict[str, Any] = {
        "attachments": [plain(entry, "since") for entry in entries],
        "nodes": _joined(entry.node for entry in entries),
        "pods": _joined(f"{entry.pod_namespace}/{entry.pod}" for entry in entries),
        "mode": "ReadOnly" if all(entry.read_only for entry in entries) else "ReadWrite",
        "device": _joined(entry.device for entry in entries),
        "status": _joined(entry.status.value for entry in entries),
    }
    return value


def plain(value: msgspec.Struct, *moments: str) -> dict[str, Any]:
    """Convert an entry to JSON values. `moments`: fields with a time, which are left out if they are empty."""
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    for field in moments:
        if not made[field]:
            del made[field]
    return made


def with_entry(entries: Sequence[AttachmentEntry], entry: AttachmentEntry) -> Entries:
    """Return the entries with `entry`; it replaces an entry with the same key."""
    if any(one.key == entry.key for one in entries):
        return tuple(entry if one.key == entry.key else one for one in entries)
    return *entries, entry


def without(entries: Sequence[AttachmentEntry], keys: Iterable[HolderKey]) -> Entries:
    """Return the entries whose keys are not in `keys`."""
    gone = set(keys)
    return tuple(entry for entry in entries if entry.key not in gone)


def find_entry(entries: Sequence[AttachmentEntry], key: HolderKey) -> AttachmentEntry | None:
    """Return the entry with this key; None if there is none."""
    return next((entry for entry in entries if entry.key == key), None)


def _joined(words: Iterable[str]) -> str:
    """Join the different words in their order; after three, only say how many more there are."""
    different = [word for word in dict.fromkeys(words) if word]
    more = len(different) - 3
    return ",".join(different[:3]) + (f" +{more}" if more > 0 else "")
