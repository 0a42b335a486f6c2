"""Facts about nodes: whether they exist, which boot they run, whether they are out of service.

In a cluster they come from the Node objects (`cluster`). Without a cluster, several agents share one machine and
one store of records; there each agent writes a record of its node at its start, before it takes any volume, and
refreshes it each minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol

import msgspec
import structlog

from kubeletx.api import AlreadyExists, Clock, Conflict, Internal, NotFound, Record, Records, Unavailable

from .editing import all_pages
from .garbage import age_of, rfc3339
from .proofs import StorageNode

log = structlog.get_logger(__name__)

ANNOUNCE_SECONDS: Final = 60.0
SILENT_SECONDS: Final = 180.0
"""Default of `RecordedNodes`."""
_TRIES: Final = 5


class NodeDirectory(Protocol):
    """Source of facts about nodes. All methods raise a KubeletxError if the facts cannot be read now."""

    async def facts(self, name: str) -> StorageNode:
        """Return the present facts about a node, never cached ones."""
        ...

    async def all(self) -> Mapping[str, StorageNode]:
        """Return the present facts about all nodes that exist, by name."""
        ...


class RecordedNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Value of a node's own record. `at`: RFC 3339 time of the last refresh."""

    boot_id: str = msgspec.field(name="bootID")
    at: str = ""


class RecordedNodes:
    """Facts from the records that the agents of this machine write. Implements `NodeDirectory`.

    A node without a record is an error and not a node that has gone: its agent may never have written one.
    """

    def __init__(self, records: Records, clock: Clock, *, silent_seconds: float = SILENT_SECONDS) -> None:
        """`silent_seconds`: time without a refresh of its record after which a node is not ready."""
        self._records = records
        self._clock = clock
        self._silent = timedelta(seconds=silent_seconds)

    async def announce(self, name: str, boot_id: str) -> None:
        """Write the record of this node."""
        for _ in range(_TRIES):
            value = msgspec.to_builtins(RecordedNode(boot_id=boot_id, at=rfc3339(self._clock.now())))
            try:
                found = await self._records.get(name)
            except NotFound:
                found = None
            try:
                if found is None:
                    await self._records.create(name, value)
                else:
                    await self._records.replace(name, value, expected_version=found.version)
            except (AlreadyExists, Conflict, NotFound):
                continue
            return
        raise Conflict(f"record of node {name} changes all the time: another agent uses this name")

    async def facts(self, name: str) -> StorageNode:
        try:
            return self._facts(await self._records.get(name))
        except NotFound as error:
            raise Unavailable(
                f"node {name} has no record: its agent has not run with these records"
            ) from error

    async def all(self) -> Mapping[str, StorageNode]:
        found: dict[str, StorageNode] = {}
        async for page in all_pages(self._records):
            for one in page:
                try:
                    found[one.name] = self._facts(one)
                except Internal as error:  # `facts` of this node raises it
                    log.warning("Failed to read the record of a node", node=one.name, err=str(error))
        return found

    def _facts(self, record: Record) -> StorageNode:
        try:
            value = record.as_type(RecordedNode)
        except msgspec.ValidationError as error:
            raise Internal(f"record of node {record.name} cannot be read: {error}") from error
        age = age_of(value.at, self._clock.now())
        is_ready = age is not None and age < self._silent
        return StorageNode(name=record.name, boot_id=value.boot_id, ready=is_ready)
