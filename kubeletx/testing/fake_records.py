"""`FakeRecords`: an implementation of `kubeletx.api.Records` in memory, for plugin tests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from kubeletx.api import AlreadyExists, Conflict, NotFound
from kubeletx.api.records import (
    PAGE_RECORDS,
    Record,
    RecordEvent,
    RecordGone,
    RecordPage,
    RecordPut,
    RecordsSynced,
    check_record_name,
    record_json,
)


class FakeRecords:
    """Implements `kubeletx.api.Records` in memory. `records`: the present records by name."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._versions = itertools.count(1)
        self._watches: set[asyncio.Queue[RecordEvent]] = set()

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        """Store a new record. Raises AlreadyExists."""
        text = record_json(name, value)
        if name in self.records:
            raise AlreadyExists(f"record {name} already exists")
        return self._put(name, text)

    async def get(self, name: str) -> Record:
        """Return the record. Raises NotFound."""
        check_record_name(name)
        if name not in self.records:
            raise NotFound(f"record {name} does not exist")
        return self.records[name]

    async def list_page(self, *, token: str = "", limit: int = PAGE_RECORDS) -> RecordPage:
        """Return up to `limit` records whose names come after `token`, sorted by name."""
        names = sorted(name for name in self.records if name > token)
        page = tuple(self.records[name] for name in names[:limit])
        return RecordPage(records=page, next_token=page[-1].name if len(names) > limit else "")

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        """Replace the value if the record has the expected version; returns the record as it is now.

        An equal value changes nothing. Raises NotFound, or Conflict if the record has another version.
        """
        text = record_json(name, value)
        before = await self._expect(name, expected_version)
        if msgspec.json.decode(text) == before.value:
            return before
        return self._put(name, text)

    async def delete(self, name: str, *, expected_version: str) -> None:
        """Delete the record. Raises NotFound, or Conflict if the record has another version."""
        await self._expect(name, expected_version)
        del self.records[name]
        self._tell(RecordGone(name))

    async def watch(self) -> AsyncGenerator[RecordEvent, None]:
        """Yield a `RecordPut` for each existing record, then `RecordsSynced`, then changes, without end."""
        queue: asyncio.Queue[RecordEvent] = asyncio.Queue()
        self._watches.add(queue)
        try:
            for record in [self.records[name] for name in sorted(self.records)]:
                yield RecordPut(record)
            yield RecordsSynced()
            while True:
                yield await queue.get()
        finally:
            self._watches.discard(queue)

    async def _expect(self, name: str, version: str) -> Record:
        record = await self.get(name)
        if record.version != version:
            raise Conflict(f"record {name} has changed: read it again")
        return record

    def _put(self, name: str, text: bytes) -> Record:
        record = Record(name=name, version=str(next(self._versions)), value=msgspec.json.decode(text))
        self.records[name] = record
        self._tell(RecordPut(record))
        return record

    def _tell(self, event: RecordEvent) -> None:
        for queue in self._watches:
            queue.put_nowait(event)
