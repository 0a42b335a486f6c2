"""`Revisions`: the node's revision, which grows by one with each change and never falls.

A number may be sent once it is not above the ceiling on disk. The ceiling is raised in blocks, so that a change seldom
waits for the disk. After a crash the revision is the ceiling: the numbers in between are lost, and the first message
to each core is a full state with that number. After a clean stop the revision continues where it was.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from .node_records import NodeRecords, StoredNode


class Revisions:
    """The revision and its ceiling. Only one task calls `prepare` and `take`."""

    def __init__(self, records: NodeRecords, *, block: int) -> None:
        self._records = records
        self._block = block
        self._stored = StoredNode(ceiling=0)
        self.current = 0
        """Number of the last change."""
        self._saving = asyncio.Lock()
        """The row is written as a whole: a second write may begin only with the result of the first."""

    async def load(self) -> bool:
        """Read the ceiling. Returns False on a new node, whose first number is 1. Raises Unavailable."""
        found = await self._records.find_node()
        if found is not None:
            self._stored = found
            self.current = found.ceiling
        return found is not None

    @property
    def configuration(self) -> bytes:
        """The stored NodeConfiguration; empty: none."""
        return self._stored.configuration

    async def prepare(self) -> int:
        """Return the next number once it may be sent; the number is the same until `take`. Raises Unavailable."""
        if self.current >= self._stored.ceiling:
            async with self._saving:
                await self._save(replace(self._stored, ceiling=self.current + self._block))
        return self.current + 1

    def take(self) -> None:
        """Use the number that `prepare` returned."""
        self.current += 1

    async def configure(self, configuration: bytes) -> None:
        """Store the serialised NodeConfiguration. On a new node this makes the node known. Raises Unavailable."""
        async with self._saving:
            await self._save(replace(self._stored, configuration=configuration))

    async def settle(self) -> None:
        """Lower the ceiling to the current number; nothing may be sent after that. Raises Unavailable."""
        async with self._saving:
            await self._save(replace(self._stored, ceiling=self.current))

    async def _save(self, node: StoredNode) -> None:
        await self._records.save_node(node)
        self._stored = node
