"""`GarbageLists`: for each node, entries that were removed from records while the node may still have the device.

A list is a record named by its node. An agent that breaks a lock adds the entry to the list of its node before it
changes the attachment record: if it crashes in between, the list has an item too many, which the node's agent
recognizes (`reconcile.decide`), and never one too few.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Clock, Internal, Record, Records

from ..values import HolderKey
from .editing import Draw, ListEditor
from .record import AttachmentEntry, is_image_record, plain

log = structlog.get_logger(__name__)

MAX_ITEMS: Final = 250
"""Maximum length of a list, so that its record stays below the limit for values; the oldest items are dropped."""
IN_USE_SECONDS: Final = 3600.0
"""Seconds after which an item whose entry is in the record counts as never removed."""


class GarbageItem(AttachmentEntry, frozen=True, kw_only=True, rename="camel"):
    """One entry that was removed from the record of `volume_name`. `removed_for`: why; `noted_at`: RFC 3339."""

    volume_name: str
    removed_for: str = ""
    noted_at: str = ""

    @property
    def item_key(self) -> tuple[str, HolderKey]:
        return self.volume_name, self.key


Items = tuple[GarbageItem, ...]


class _List(msgspec.Struct, frozen=True, kw_only=True):
    attachments: Items


def item_of(name: str, entry: AttachmentEntry, *, why: str, now: datetime) -> GarbageItem:
    """Make the item for an entry of the record `name`."""
    return GarbageItem(
        **{
            **{field: getattr(entry, field) for field in AttachmentEntry.__struct_fields__},
            "volume_name": entry.volume_name if is_image_record(name) else name,
        },
        removed_for=why,
        noted_at=rfc3339(now),
    )


def rfc3339(moment: datetime) -> str:
    """Format a time as the records have it: UTC, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def age_of(text: str, now: datetime) -> timedelta | None:
    """Return the age of a time in a record; None if it is no time with a zone."""
    try:
        return now - datetime.fromisoformat(text)
    except (ValueError, TypeError):  # TypeError: a time without a zone
        return None


def is_outdated(item: GarbageItem, now: datetime) -> bool:
    """Return True if the item is older than `IN_USE_SECONDS`, or does not say how old it is."""
    age = age_of(item.noted_at, now)
    return age is None or age >= timedelta(seconds=IN_USE_SECONDS)


class GarbageLists:
    """Reads and changes the garbage lists of all nodes."""

    def __init__(self, records: Records, clock: Clock, *, draw: Draw = random.random) -> None:
        """`records`: records of the kind `STALE`, see `stores`."""
        self._editor: ListEditor[GarbageItem] = ListEditor(
            records, clock, decode=items_of, encode=_value, what="garbage list of node", draw=draw
        )

    async def of(self, node: str) -> Items:
        """Return the list of a node; empty if it has none. Raises Internal if it cannot be read."""
        return await self._editor.items(node)

    async def add(self, items: Iterable[GarbageItem]) -> None:
        """Add items to the lists of their nodes; an item with the same key is replaced."""
        by_node: dict[str, list[GarbageItem]] = {}
        for item in items:
            by_node.setdefault(item.node, []).append(item)
        for node, new in by_node.items():
            await self._editor.change(node, partial(_with_items, new=new))

    async def remove(self, node: str, items: Sequence[GarbageItem]) -> None:
        """Remove these items, unless they were changed meanwhile."""
        await self._editor.change(node, lambda present: tuple(one for one in present if one not in items))


def items_of(record: Record | None) -> Items:
    """Return the items of a list; none if the record does not exist. Raises Internal if it cannot be read."""
    if record is None:
        return ()
    try:
        return record.as_type(_List).attachments
    except msgspec.ValidationError as error:
        raise Internal(f"garbage list of node {record.name} cannot be read: {error}; correct it") from error


def _value(items: Sequence[GarbageItem]) -> dict[str, Any]:
    return {"attachments": [plain(item, "since", "notedAt") for item in items], "count": len(items)}


def _with_items(present: Items, new: Sequence[GarbageItem]) -> Items:
    keys = {one.item_key for one in new}
    items = (*(one for one in present if one.item_key not in keys), *new)
    if len(items) > MAX_ITEMS:
        log.warning(
            "Dropped the oldest items of a garbage list", node=new[0].node, items=len(items) - MAX_ITEMS
        )
    return items[-MAX_ITEMS:]
