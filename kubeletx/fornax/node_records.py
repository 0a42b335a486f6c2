"""Tables of the node under its cores: its revision ceiling and configuration; the cores that own it.

The row of the node is missing on a new node, and after the loss of the database.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table, delete, insert, select
from sqlalchemy.engine import Connection, RowMapping

from kubeletx.store import Store, checked, read_rows, upsert

from .cores import Core, Role

METADATA = MetaData()
NODE = Table(
    "fornax_node",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("ceiling", Integer, nullable=False),
    Column("configuration", LargeBinary, nullable=False),
)
CORES = Table(
    "fornax_cores",
    METADATA,
    Column("address", String, primary_key=True),
    Column("role", String, primary_key=True),
    Column("identifier", String, nullable=False),
)
_NODE = select(NODE)
_SAVE = upsert(NODE)
_CORES = select(CORES).order_by(CORES.c.address)


class StoredNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node as stored. `ceiling`: upper bound of all revisions that were sent.

    `configuration`: serialised NodeConfiguration that was applied last; empty: none.
    """

    ceiling: int
    configuration: bytes = b""


class NodeRecords:
    """Reads and writes the two tables. Writes are on disk when they return; all methods raise Unavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find_node(self) -> StoredNode | None:
        """Return the stored node; None for a new node."""
        rows = await self._store.read(lambda connection: read_rows(connection, _NODE, _node))
        return rows[0] if rows else None

    async def save_node(self, node: StoredNode) -> None:
        """Store the node."""
        row = {"id": 1, **msgspec.structs.asdict(node)}
        await self._store.write(lambda connection: connection.execute(_SAVE, row))

    async def list_cores(self) -> list[Core]:
        """Return the stored cores in order of address. A core may be both a seed and an owner."""
        return await self._store.read(lambda connection: read_rows(connection, _CORES, _core))

    async def save_cores(self, cores: Iterable[Core]) -> None:
        """Replace the stored cores."""
        rows = [{**msgspec.structs.asdict(core), "role": core.role.value} for core in cores]

        def write(connection: Connection) -> None:
            connection.execute(delete(CORES))
            if rows:
                connection.execute(insert(CORES), rows)

        await self._store.write(write)


def _node(row: RowMapping) -> StoredNode:
    return checked(StoredNode(ceiling=row["ceiling"], configuration=row["configuration"]))


def _core(row: RowMapping) -> Core:
    return checked(Core(address=row["address"], identifier=row["identifier"], role=Role(row["role"])))
