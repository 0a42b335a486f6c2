"""`ListEditor`: reads and changes records that contain one list, with optimistic concurrency.

A change is a pure function from the present list to the wanted one. It is applied to what was read, and written with
the version that was read. If another writer was faster, everything is done again. If it is unknown whether a write was
done, the record is read again, and the function finds its own result there. A record with an empty list is deleted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Final, Generic, TypeVar

import structlog

from kubeletx.api import (
    AlreadyExists,
    Clock,
    Conflict,
    KubeletxError,
    NotFound,
    Record,
    Records,
    TimedOut,
    Unavailable,
)

from ..values import HolderKey
from .record import AttachmentEntry, entries_of, value_of, without

log = structlog.get_logger(__name__)

T = TypeVar("T")

TRIES: Final = 12
_LIST_TRIES: Final = 3
_FIRST_SECONDS: Final = 0.01
_CAP_SECONDS: Final = 1.0

Draw = Callable[[], float]
"""Type of the source of randomness: returns a number from 0 to 1."""


class ListEditor(Generic[T]):
    """Reads and changes the lists in the records of one kind."""

    def __init__(
        self,
        records: Records,
        clock: Clock,
        *,
        decode: Callable[[Record | None], tuple[T, ...]],
        encode: Callable[[Sequence[T]], dict[str, Any]],
        what: str,
        draw: Draw = random.random,
    ) -> None:
        """`decode`, `encode`: convert between a record's value and the list. `decode` of None: the empty list.

        `what`: word for a record of this kind in messages. `draw`: for the pauses after a conflict.
        """
        self.records = records
        self._clock = clock
        self._decode = decode
        self._encode = encode
        self._what = what
        self._draw = draw

    async def find(self, name: str) -> Record | None:
        try:
            return await self.records.get(name)
        except NotFound:
            return None

    async def items(self, name: str) -> tuple[T, ...]:
        """Return the list of a record; empty if the record does not exist."""
        return self._decode(await self.find(name))

    async def change(self, name: str, change: Callable[[tuple[T, ...]], tuple[T, ...]]) -> None:
        """Apply `change` to the list of a record. It may be called several times.

        Raises Conflict if other writers are always faster, and TimedOut if it stays unknown whether the change was
        written.
        """
        for attempt in range(TRIES):
            record = await self.find(name)
            before = self._decode(record)
            after = change(before)
            if after == before and (before or record is None):
                return
            if await self.write(name, record, after, is_last=attempt == TRIES - 1):
                return
            await self.pause(attempt)
        raise self.too_busy(name)

    async def write(
        self, name: str, record: Record | None, items: Sequence[T], *, is_last: bool = False
    ) -> bool:
        """Write the list over `record`, as it was read; returns False if the record must be read again.

        That is so if another writer was faster, or, unless `is_last`, if it is unknown whether the write was done.
        """
        try:
            await self._write(name, record, items)
        except (AlreadyExists, Conflict):
            return False
        except NotFound as error:
            if record is None:
                raise not_served(error) from error
            return False
        except TimedOut as error:
            if is_last:
                raise
            log.warning("Result of a write is unknown", record=f"{self._what} {name}", err=str(error))
            return False
        return True

    async def pause(self, attempt: int) -> None:
        """Wait for a random time before another attempt. `attempt`: number of attempts before this one."""
        await self._clock.sleep(min(_CAP_SECONDS, _FIRST_SECONDS * 2**attempt) * (0.5 + self._draw()))

    def too_busy(self, name: str) -> Conflict:
        """Return the error for a record that other writers change all the time."""
        return Conflict(f"{self._what} {name} was changed by others {TRIES} times meanwhile: try again")

    async def _write(self, name: str, record: Record | None, items: Sequence[T]) -> None:
        if record is None and items:
            stored = await self.records.create(name, self._encode(items))
        elif record is not None and items:
            stored = await self.records.replace(name, self._encode(items), expected_version=record.version)
        else:
            if record is not None:
                await self.records.delete(name, expected_version=record.version)
            return
        if self._decode(stored) != tuple(items):  # the API server drops the fields that a definition lacks
            raise Unavailable(
                f"the cluster does not store all of {self._what} {name}, since its definition is of an earlier version: "
                "apply the output of 'kubeletx-flexvolume manifests'"
            )


RecordEditor = ListEditor[AttachmentEntry]


def record_editor(records: Records, clock: Clock, *, draw: Draw = random.random) -> RecordEditor:
    """Make the editor of attachment records."""
    return ListEditor(records, clock, decode=entries_of, encode=value_of, what="attachment record", draw=draw)


async def strike(editor: RecordEditor, volume: str, gone: Sequence[AttachmentEntry]) -> None:
    """Remove entries from the records of a volume's image, and from its own record last."""
    keys = {one.key for one in gone}
    for name in (*sorted({image for one in gone for image in one.images}), volume):
        await remove_entries(editor, name, keys)


async def remove_entries(editor: RecordEditor, name: str, keys: Collection[HolderKey]) -> None:
    """Remove the entries with these keys from one record."""
    await editor.change(name, lambda entries: without(entries, keys))


def not_served(error: KubeletxError) -> Unavailable:
    """Return the error for a cluster without the custom resources."""
    return Unavailable(
        f"the cluster has no attachment records ({error}): apply the output of 'kubeletx-flexvolume manifests'"
    )


async def all_pages(records: Records) -> AsyncIterator[Sequence[Record]]:
    """Yield all records, page by page. A record may come twice if the list must begin again.

    Raises Conflict if the store forgets the list each time before its end.
    """
    for attempt in range(_LIST_TRIES):
        token, is_first = "", True
        try:
            while token or is_first:
                page = await records.list_page(token=token)
                yield page.records
                token, is_first = page.next_token, False
                await asyncio.sleep(0)
        except Conflict:
            if attempt == _LIST_TRIES - 1:
                raise
        except NotFound as error:
            raise not_served(error) from error
        else:
            return
