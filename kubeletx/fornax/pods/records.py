"""Table of the pods that cores created on this node.

A row is written before the pod starts and deleted after nothing of it is left. All other writes only change a row with
the same UID, so that a late write cannot bring a deleted pod back. The database file has mode 0600; secrets are only in
their own column.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from sqlalchemy import (
    Boolean,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    bindparam,
    delete,
    select,
)
from sqlalchemy.engine import RowMapping

from kubeletx.api import PodUid
from kubeletx.kube.types.core import PodStatus
from kubeletx.store import Store, checked, moment_of, read_rows, upsert

from .machine import ENDING, PodState

POD_METADATA = MetaData()
_PODS = Table(
    "fornax_pods",
    POD_METADATA,
    Column("pod_id", String, primary_key=True),
    Column("uid", String, nullable=False),
    Column("state", String, nullable=False),
    Column("rests", Boolean, nullable=False),
    Column("is_daemon", Boolean, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("spec", LargeBinary, nullable=False),
    Column("status", LargeBinary),
    Column("config", LargeBinary, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("ports", LargeBinary, nullable=False),
    Column("cluster_domain", String, nullable=False),
    Column("created_at", String, nullable=False),
)
_ALL = select(_PODS).order_by(_PODS.c.created_at, _PODS.c.pod_id)
_KEYS = select(_PODS.c.pod_id, _PODS.c.uid)
_INSERT = upsert(_PODS)
_SAME = (_PODS.c.pod_id == bindparam("of_id")) & (_PODS.c.uid == bindparam("of_uid"))
_UPDATE_STATE = _PODS.update().where(_SAME).values(state=bindparam("new_state"), rests=bindparam("new_rests"))
_NOTE_STATE = _UPDATE_STATE.where(_PODS.c.state.not_in([state.name for state in ENDING]))
_UPDATE_REPORT = (
    _PODS.update().where(_SAME).values(revision=bindparam("new_revision"), status=bindparam("new_status"))
)
_DELETE = delete(_PODS).where(_SAME)

_encoder = msgspec.json.Encoder()
_status_decoder = msgspec.json.Decoder(PodStatus | None)


class PodRow(msgspec.Struct, frozen=True, kw_only=True):
    """Row of one pod. The repr shows no contents.

    `spec`: serialised Pod of the core, with the host ports. `config`, `secret`: serialised PodCreate with the config
    maps or the secrets of the pod only. `ports`: host ports that the pod occupies. `rests`: the pod is to stand by
    while it has no sessions. `cluster_domain`: DNS domain of the cluster; empty: none. `revision`: of its last report;
    0: none. `status`: as last reported.
    """

    pod_id: str
    uid: PodUid
    state: PodState
    rests: bool
    spec: bytes
    created_at: datetime
    is_daemon: bool = False
    config: bytes = b""
    secret: bytes = b""
    ports: tuple[int, ...] = ()
    cluster_domain: str = ""
    revision: int = 0
    status: PodStatus | None = None

    def __repr__(self) -> str:
        return f"PodRow({self.pod_id}, uid={self.uid}, state={self.state.name}, revision={self.revision})"


class CorePodRecords:
    """Reads and writes the table. `insert`, `set_state` and `delete` return when the change is on disk.

    They raise Unavailable if the database cannot be written.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self) -> list[PodRow]:
        """Return all rows, the oldest first. Rows that are invalid are left out. Raises Unavailable."""
        return await self._store.read(lambda connection: read_rows(connection, _ALL, _from_row))

    async def list_keys(self) -> list[tuple[str, PodUid]]:
        """Return identifier and UID of all rows. Raises Unavailable."""
        return await self._store.read(
            lambda connection: [(pod_id, PodUid(uid)) for pod_id, uid in connection.execute(_KEYS)]
        )

    async def insert(self, row: PodRow) -> None:
        """Store a new pod; it replaces a row of the same identifier."""
        values = {
            **msgspec.structs.asdict(row),
            "state": row.state.name,
            "ports": _encoder.encode(row.ports),
            "status": _encoder.encode(row.status),
            "created_at": row.created_at.isoformat(),
        }
        await self._store.write(lambda connection: connection.execute(_INSERT, values))

    async def set_state(self, pod_id: str, uid: PodUid, state: PodState, *, rests: bool) -> None:
        """Store the state of the pod."""
        values = {"of_id": pod_id, "of_uid": uid, "new_state": state.name, "new_rests": rests}
        await self._store.write(lambda connection: connection.execute(_UPDATE_STATE, values))

    def note_state(self, pod_id: str, uid: PodUid, state: PodState, *, rests: bool) -> None:
        """Store the state of the pod soon; for states that the runtime shows again after a crash.

        The write may be later than one of `set_state`, so it does not change a state that ends the pod.
        """
        values = {"of_id": pod_id, "of_uid": uid, "new_state": state.name, "new_rests": rests}
        self._store.write_later(lambda connection: connection.execute(_NOTE_STATE, values))

    def note_report(self, pod_id: str, uid: PodUid, revision: int, status: PodStatus | None) -> None:
        """Store the revision and the status of the last report soon."""
        values = {
            "of_id": pod_id,
            "of_uid": uid,
            "new_revision": revision,
            "new_status": _encoder.encode(status),
        }
        self._store.write_later(lambda connection: connection.execute(_UPDATE_REPORT, values))

    async def delete(self, pod_id: str, uid: PodUid) -> None:
        """Delete the row of the pod; another pod of this identifier keeps its row."""
        values = {"of_id": pod_id, "of_uid": uid}
        await self._store.write(lambda connection: connection.execute(_DELETE, values))


def _from_row(row: RowMapping) -> PodRow:
    return checked(
        PodRow(
            pod_id=row["pod_id"],
            uid=PodUid(row["uid"]),
            state=PodState[row["state"]],
            rests=row["rests"],
            is_daemon=row["is_daemon"],
            revision=row["revision"],
            spec=row["spec"],
            status=_status_decoder.decode(row["status"] or b"null"),
            config=row["config"],
            secret=row["secret"],
            ports=msgspec.json.decode(row["ports"], type=tuple[int, ...]),
            cluster_domain=row["cluster_domain"],
            created_at=moment_of(row["created_at"]),
        )
    )
