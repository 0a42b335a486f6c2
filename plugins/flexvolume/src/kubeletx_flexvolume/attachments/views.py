"""Work and output of the commands: rows of entries, the report of a scan, the release by an administrator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import click
import msgspec

from kubeletx.api import Internal, NotFound, Record, Records

from .editing import all_pages, strike
from .events import LOCK_BROKEN
from .garbage import item_of, items_of
from .record import AttachmentEntry, entries_of, is_image_record
from .stale import StaleReport
from .stores import Stores

Row = dict[str, str]
COLUMNS = ("volume", "node", "pod", "mode", "device", "status", "since", "reason")


async def entry_rows(
    records: Records, volumes: Sequence[str], problems: list[str] | None = None
) -> list[Row]:
    """Return a row for each entry of these volumes; no volumes: of all.

    `problems`: gets the errors of records that cannot be read. Raises NotFound for a volume without a record.
    """
    if volumes:
        found = [await _record(records, name) for name in volumes]
    else:
        by_name = {
            one.name: one
            async for page in all_pages(records)
            for one in page
            if not is_image_record(one.name)
        }
        found = [by_name[name] for name in sorted(by_name)]
    rows = []
    for record in found:
        try:
            rows += [_row(record.name, entry) for entry in entries_of(record)]
        except Internal as error:
            if problems is None:
                raise
            problems.append(str(error))
    return rows


async def panel_rows(stores: Stores) -> list[list[str]]:
    """Return a row of `COLUMNS` for each item of the garbage lists, with status Stale, then for each entry of all volumes."""
    stale = [
        {**_row(one.volume_name, one), "status": "Stale", "since": one.noted_at, "reason": one.removed_for}
        async for page in all_pages(stores.stale)
        for record in page
        for one in items_of(record)
    ]
    rows = [*stale, *await entry_rows(stores.attachments, ())]
    return [[row[name] for name in COLUMNS] for row in rows]


def print_rows(rows: Sequence[Mapping[str, str]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print the columns of the rows as a table, or all fields as JSON."""
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    lines = [[name.upper() for name in columns], *([row[name] or "-" for name in columns] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_report(report: StaleReport, *, as_json: bool) -> None:
    """Print the stale entries that a scan found."""
    rows = [{**_row(one.volume, one.entry), "reason": one.why} for one in report.stale]
    print_rows(rows, ("volume", "node", "pod", "since", "reason"), as_json=as_json)
    stale = _number(len(report.stale), "stale entry", "stale entries")
    entries = _number(report.entries, "entry", "entries")
    records = _number(report.records, "record", "records")
    verb = "found" if report.is_dry else "removed"
    click.echo(f"{verb} {stale} of {entries} in {records}", err=as_json)


async def release_volume(stores: Stores, volume: str, node: str) -> int:
    """Remove the entries of a node from a record, and return how many there were. Raises NotFound if there are none."""
    entries = await stores.editor.items(volume)
    gone = [entry for entry in entries if entry.node == node]
    if not gone:
        others = ", ".join(sorted({entry.node for entry in entries})) or "none"
        raise NotFound(f"volume {volume} has no entry of node {node}; nodes with entries: {others}")
    why = f"an administrator has released it on {os.uname().nodename}"
    now = stores.clock.now()
    try:
        await stores.lists.add(item_of(volume, one, why=why, now=now) for one in gone)
    except Internal as error:  # the node also notices that its entry is gone
        click.echo(f"Warning: {error}", err=True)

    await strike(stores.editor, volume, gone)
    message = f"Volume {volume} is no longer attached for {gone[0]}: {why}"
    await stores.events.of_volume(volume, reason=LOCK_BROKEN, message=message)
    return len(gone)


async def _record(records: Records, volume: str) -> Record:
    try:
        return await records.get(volume)
    except NotFound as error:
        raise NotFound(f"volume {volume} has no attachment record: no pod has it attached") from error


def _number(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _row(volume: str, entry: AttachmentEntry) -> Row:
    return {
        "volume": volume,
        "node": entry.node,
        "pod": f"{entry.pod_namespace}/{entry.pod}",
        "podUID": entry.pod_uid,
        "mode": "ReadOnly" if entry.read_only else "ReadWrite",
        "device": entry.device,
        "status": entry.status.value,
        "since": entry.since,
        "reason": entry.reason,
        "bootID": entry.boot_id,
        "mountDir": entry.mount_dir,
        "backend": entry.backend,
        "cluster": entry.cluster,
    }
