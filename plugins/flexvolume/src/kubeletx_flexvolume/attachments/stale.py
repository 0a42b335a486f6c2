"""`Scanner`: finds entries whose node is gone, was made again, or has restarted, and moves them to the garbage lists.

    list all records ─► facts about the nodes, read later than the records ─► garbage lists ─► records

The facts are read after the records, so that an entry is older than the facts that it is removed for. An entry that its
holder changes meanwhile stays. Records of images are treated the same, but only volumes are reported. Items of the
lists that can no longer apply are dropped, too: of nodes that have restarted since, and of nodes that have been gone for
a month.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from kubeletx.api import KubeletxError, Record

from .editing import all_pages
from .events import ENTRY_REMOVED
from .garbage import GarbageItem, age_of, item_of, items_of
from .proofs import StorageNode, proof_from_facts
from .record import AttachmentEntry, BriefEntry, Entries, entries_of, is_image_record, origins_of
from .stores import Stores

log = structlog.get_logger(__name__)

AT_ONCE: Final = 16
FORGET_AFTER: Final = timedelta(days=30)


class StaleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry whose holder is gone. `why`: the proof."""

    volume: str
    entry: AttachmentEntry
    why: str


class StaleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one scan. `is_dry`: nothing was changed. `problems`: what could not be looked up or changed."""

    records: int
    entries: int
    stale: tuple[StaleEntry, ...]
    problems: tuple[str, ...] = ()
    is_dry: bool = False


class Scanner:
    """Looks through all records of a store."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def scan(self, *, dry_run: bool = False) -> StaleReport:
        """Scan once.

        Raises the error if the records or the nodes cannot be listed; other failures are in the report.
        """
        known = await self._stores.nodes.all()
        candidates: dict[str, Record] = {}
        sizes: dict[str, int] = {}
        suspects = set[str]()
        problems: list[str] = []
        async for page in all_pages(self._stores.attachments):
            for record in page:
                origins = origins_of(record, problems)
                if not is_image_record(record.name):
                    sizes[record.name] = len(origins)
                gone = {origin.node for origin in origins if _is_suspect(origin, known)}
                if gone:
                    candidates[record.name] = record
                    suspects |= gone
        facts = await self._facts(suspects, problems)
        stale = [found for record in candidates.values() for found in _stale_in(record, facts, problems)]
        if not dry_run:
            await self._move(stale, facts, problems)
            await self._prune(problems)
        count, entries = len(sizes), sum(sizes.values())
        shown = tuple(one for one in stale if not is_image_record(one.volume))
        report = StaleReport(
            records=count, entries=entries, stale=shown, problems=tuple(problems), is_dry=dry_run
        )
        log.info(
            "Scanned attachment records", records=count, entries=entries, stale=len(shown), dry_run=dry_run
        )
        return report

    async def _facts(self, names: set[str], problems: list[str]) -> dict[str, StorageNode]:
        found: dict[str, StorageNode] = {}
        for name in sorted(names):
            try:
                found[name] = await self._stores.nodes.facts(name)
            except KubeletxError as error:
                problems.append(f"node {name}: {error}")
        return found

    async def _move(
        self, stale: Sequence[StaleEntry], facts: Mapping[str, StorageNode], problems: list[str]
    ) -> None:
        """Move entries to the lists of their nodes; a node that has restarted since has nothing left of them."""
        now = self._stores.clock.now()
        items = {
            one.item_key: one
            for one in (item_of(one.volume, one.entry, why=one.why, now=now) for one in stale)
        }
        await self._stores.lists.add(
            item for item in items.values() if not _is_over(item, facts[item.node], now)
        )
        by_volume: dict[str, list[StaleEntry]] = {}
        for one in stale:
            by_volume.setdefault(one.volume, []).append(one)
        turns = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name, found in by_volume.items():
                group.create_task(self._remove(name, found, turns, problems), name=f"stale entries of {name}")

    async def _remove(
        self, name: str, stale: Sequence[StaleEntry], turns: asyncio.Semaphore, problems: list[str]
    ) -> None:
        gone = [one.entry for one in stale]

        def change(entries: Entries) -> Entries:
            return tuple(entry for entry in entries if entry not in gone)

        async with turns:
            try:
                await self._stores.editor.change(name, change)
            except KubeletxError as error:
                problems.append(f"volume {name}: {error}")
                return
        if is_image_record(name):
            return
        for one in stale:
            message = f"Volume {name} is no longer attached for {one.entry}: {one.why}"
            await self._stores.events.of_volume(name, reason=ENTRY_REMOVED, message=message)

    async def _prune(self, problems: list[str]) -> None:
        """Drop items of garbage lists that can no longer apply."""
        known, now = await self._stores.nodes.all(), self._stores.clock.now()
        async for page in all_pages(self._stores.stale):
            for record in page:
                try:
                    facts = known.get(record.name, StorageNode(name=record.name, exists=False))
                    old = [one for one in items_of(record) if _is_over(one, facts, now)]
                    if old:
                        await self._stores.lists.remove(record.name, old)
                except KubeletxError as error:
                    problems.append(f"garbage list of node {record.name}: {error}")


def _is_suspect(origin: BriefEntry, known: Mapping[str, StorageNode]) -> bool:
    facts = known.get(origin.node)
    return facts is None or bool(proof_from_facts(origin, facts))


def _stale_in(record: Record, facts: Mapping[str, StorageNode], problems: list[str]) -> list[StaleEntry]:
    try:
        entries = entries_of(record)
    except KubeletxError as error:
        problems.append(str(error))
        return []
    found = []
    for entry in entries:
        why = proof_from_facts(entry, facts[entry.node]) if entry.node in facts else ""
        if why:
            found.append(StaleEntry(volume=record.name, entry=entry, why=why))
    return found


def _is_over(item: GarbageItem, facts: StorageNode, now: datetime) -> bool:
    """Return True if the item can no longer apply to its node."""
    if facts.exists:
        return bool(facts.boot_id) and facts.boot_id != item.boot_id
    age = age_of(item.noted_at, now)
    return age is not None and age >= FORGET_AFTER
