"""Keeps the time of each node condition's last transition in the database, over restarts of the agent.

A kubelet reads these times from the Node in the API server (pkg/kubelet/nodestatus); a node without a cluster
has no such Node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import structlog
from sqlalchemy import Column, MetaData, String, Table, delete, insert, select
from sqlalchemy.engine import Connection

from kubeletx.api import Unavailable
from kubeletx.kube.types.node import NodeCondition
from kubeletx.store import Store

log = structlog.get_logger(__name__)

METADATA = MetaData()
CONDITIONS = Table(
    "node_conditions",
    METADATA,
    Column("type", String, primary_key=True),
    Column("status", String, nullable=False),
    Column("since", String, nullable=False),
)

Times = Mapping[str, tuple[str, datetime]]
"""Status and time of the last transition of each node condition, by the condition's type."""


class ConditionTimes:
    """Stores the last transition times of the node's conditions, and reads what an earlier agent process stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[str, datetime]] = {}

    async def load(self) -> Times:
        """Read the stored times.

        If the database cannot be read, the result is empty, so that the agent starts nevertheless.
        """
        try:
            self._known = await self._store.read(_read)
        except Unavailable as error:
            log.warning("Failed to read the times of the node's conditions", err=str(error))
        return dict(self._known)

    def note(self, conditions: Sequence[NodeCondition]) -> None:
        """Store the transition times of the current conditions, if they differ from the stored ones."""
        times = {
            condition.type: (condition.status, condition.last_transition_time)
            for condition in conditions
            if condition.last_transition_time is not None
        }
        if times != self._known:
            self._known = times
            self._store.write_later(lambda connection: _write(connection, times))


def _read(connection: Connection) -> dict[str, tuple[str, datetime]]:
    rows = connection.execute(select(CONDITIONS.c.type, CONDITIONS.c.status, CONDITIONS.c.since))
    return {row.type: (row.status, datetime.fromisoformat(row.since)) for row in rows}


def _write(connection: Connection, times: Times) -> None:
    connection.execute(delete(CONDITIONS))
    rows = [
        {"type": type_, "status": status, "since": at.isoformat()} for type_, (status, at) in times.items()
    ]
    if rows:
        connection.execute(insert(CONDITIONS), rows)
