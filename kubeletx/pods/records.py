"""Records of pods in the state database: the last spec and status of each, written in batches.

If they are lost, only history is lost: restart counts that the runtime no longer has, last states, the start time.
After a restart of the agent, a pod is shown from these records as long as its source has not delivered it or its
runtime does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container

import msgspec
import structlog
from sqlalchemy import Column, LargeBinary, MetaData, String, Table, bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection, RowMapping

from kubeletx.api import PodUid, Unavailable
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.store import Store, read_rows

log = structlog.get_logger(__name__)

POD_TABLES = MetaData()
_pods = Table(
    "pods",
    POD_TABLES,
    Column("uid", String, primary_key=True),
    Column("source", String, nullable=False),
    Column("pod", LargeBinary, nullable=False),
    Column("status", LargeBinary),
)


class PodRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Stored spec and status of one pod. `status`: None if none was ever published."""

    uid: PodUid
    source: str
    pod: Pod
    status: PodStatus | None = None


_encoder = msgspec.json.Encoder()
_pod_decoder = msgspec.json.Decoder(Pod)
_status_decoder = msgspec.json.Decoder(PodStatus)


class PodRecords:
    """Stored specs and statuses of pods.

    Changes are collected and written in batches; the manager calls `flush`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pods: dict[PodUid, tuple[str, Pod]] = {}
        self._statuses: dict[PodUid, PodStatus] = {}
        self._gone: set[PodUid] = set()
        self._dirty = asyncio.Event()

    def note_pod(self, uid: PodUid, source: str, pod: Pod) -> None:
        """Keep the newest spec for the next `flush`."""
        self._gone.discard(uid)
        self._pods[uid] = (source, pod)
        self._dirty.set()

    def note_status(self, uid: PodUid, status: PodStatus) -> None:
        """Keep the newest status for the next `flush`."""
        self._statuses[uid] = status
        self._dirty.set()

    def forget(self, uid: PodUid) -> None:
        """Delete the records of a pod that is gone."""
        self._pods.pop(uid, None)
        self._statuses.pop(uid, None)
        self._gone.add(uid)
        self._dirty.set()

    def prune(self, known: Container[PodUid]) -> None:
        """Delete the rows of all pods that are not in `known`: an agent killed while a pod ended may have left its row.

        `known`: UIDs of all pods that exist on this node or that a source still wants. Rows of pods that are added
        after this call are kept, since they are written after the deletion.
        """
        self._store.write_later(lambda connection: _prune(connection, known))

    async def wait_dirty(self) -> None:
        """Wait until there are changes to `flush`."""
        await self._dirty.wait()

    def flush(self) -> None:
        """Queue all changes since the last call as one write of the store; return before it is written."""
        self._dirty.clear()
        if not (self._pods or self._statuses or self._gone):
            return
        pods: list[dict[str, object]] = [
            {"uid": uid, "source": source, "pod": _encoder.encode(pod)}
            for uid, (source, pod) in self._pods.items()
        ]
        statuses: list[dict[str, object]] = [
            {"of": uid, "status": _encoder.encode(status)} for uid, status in self._statuses.items()
        ]
        gone: list[dict[str, object]] = [{"of": uid} for uid in self._gone]
        self._pods, self._statuses, self._gone = {}, {}, set()
        self._store.write_later(lambda connection: _write(connection, pods, statuses, gone))

    async def load(self) -> dict[PodUid, PodRecord]:
        """Read all records. Leave out unreadable rows; return no records if the database cannot be read.

        Pods without a record are then recovered from the runtimes' labels and their sources.
        """
        try:
            return await self._store.read(_load)
        except Unavailable as error:
            log.warning("Failed to read the records of pods", err=str(error))
            return {}


def _write(
    connection: Connection,
    pods: list[dict[str, object]],
    statuses: list[dict[str, object]],
    gone: list[dict[str, object]],
) -> None:
    if pods:
        statement = insert(_pods)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["uid"],
                set_={"source": statement.excluded.source, "pod": statement.excluded.pod},
            ),
            pods,
        )
    if statuses:
        connection.execute(_pods.update().where(_pods.c.uid == bindparam("of")), statuses)
    if gone:
        connection.execute(delete(_pods).where(_pods.c.uid == bindparam("of")), gone)


def _prune(connection: Connection, known: Container[PodUid]) -> None:
    gone = [{"of": uid} for uid in connection.scalars(select(_pods.c.uid)) if PodUid(uid) not in known]
    if gone:
        connection.execute(delete(_pods).where(_pods.c.uid == bindparam("of")), gone)
        log.info("Removed records of pods that are gone", records=len(gone))


def _load(connection: Connection) -> dict[PodUid, PodRecord]:
    return {record.uid: record for record in read_rows(connection, select(_pods), _from_row)}


def _from_row(row: RowMapping) -> PodRecord:
    uid, source, status = row["uid"], row["source"], row["status"]
    if not (isinstance(uid, str) and isinstance(source, str)):
        raise TypeError(f"{uid!r} from {source!r} is not a pod")
    return PodRecord(
        uid=PodUid(uid),
        source=source,
        pod=_pod_decoder.decode(row["pod"]),
        status=_status_decoder.decode(status) if status else None,
    )
