"""``metadata.json`` of an instance: its pod, the session service, endpoints, application and sessions.

    change of a session or of the pod's addresses ─► `changed` ─► 0.1 s ─► written if the content is different

The delay collects the changes of a session that opens in one write, and keeps writes out of the way of a wake. The
file is replaced atomically. It is not flushed to the disk, since it is made again at the agent's start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import Blocking, Clock, PodUid, Unavailable
from kubeletx.api.names import APPLICATION, APPLICATION_DATA
from kubeletx.kube.types.core import Pod
from kubeletx.linux.files import replace_unflushed

from .model import Session

log = structlog.get_logger(__name__)

FILE: Final = "metadata.json"
DELAY_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 5.0


class PodEndpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An address and port of the pod. `protocol`: TCP, UDP or SCTP."""

    name: str
    protocol: str
    address: str
    port: int


class ApplicationEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The application that the instance runs. `data`: custom text of the pod's annotation."""

    name: str
    data: str


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A session that has not ended. `data`: its custom data; if it is no text, `data_base64` has it instead.

    `clients`: names of the clients that have joined.
    """

    id: str
    application: str
    state: str
    data: str | None = None
    data_base64: bytes | None = None
    clients: tuple[str, ...] = msgspec.field(default_factory=tuple)


class InstanceMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Content of the file. `service`: where the session service listens. `node`: name of the node."""

    pod_id: str
    pod_uid: PodUid
    service: str
    node: str
    endpoints: tuple[PodEndpoint, ...]
    application: ApplicationEntry
    sessions: tuple[SessionEntry, ...]

    def encode(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"


class KnownPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and where it reaches the session service. `addresses`: of the pod, the main one first."""

    pod: Pod
    service: str
    addresses: tuple[str, ...] = ()


def compose(known: KnownPod, node: str, sessions: Iterable[Session]) -> InstanceMetadata:
    """Return the metadata of an instance; `sessions`: its sessions that have not ended."""
    pod, entries = known.pod, sorted(sessions, key=lambda session: session.id)
    notes = pod.metadata.annotations
    name = notes.get(APPLICATION) or next((one.application for one in entries if one.application), "")
    return InstanceMetadata(
        pod_id=pod.ref,
        pod_uid=pod.uid,
        service=known.service,
        node=node,
        endpoints=tuple(
            PodEndpoint(
                name=port.name, protocol=port.protocol or "TCP", address=address, port=port.container_port
            )
            for address in known.addresses
            for container in pod.spec.containers
            for port in container.ports
        ),
        application=ApplicationEntry(name=name, data=notes.get(APPLICATION_DATA, "")),
        sessions=tuple(map(_entry, entries)),
    )


def _entry(session: Session) -> SessionEntry:
    entry = SessionEntry(
        id=session.id,
        application=session.application,
        state=session.state.value,
        clients=tuple(client.name for client in session.clients),
    )
    try:
        return msgspec.structs.replace(entry, data=session.data.decode())
    except UnicodeDecodeError:
        return msgspec.structs.replace(entry, data_base64=session.data)


class MetadataFiles:
    """Keeps the metadata files of all instances up to date."""

    def __init__(
        self,
        *,
        node: str,
        directory: Callable[[PodUid], Path],
        sessions_of: Callable[[PodUid], Sequence[Session]],
        blocking: Blocking,
        clock: Clock,
    ) -> None:
        """`directory`: of one instance's files. `sessions_of`: its sessions that have not ended."""
        self._node = node
        self._directory = directory
        self._sessions_of = sessions_of
        self._blocking = blocking
        self._clock = clock
        self._pods: dict[PodUid, KnownPod] = {}
        self._written: dict[PodUid, InstanceMetadata] = {}
        self._changed: set[PodUid] = set()
        self._news = asyncio.Event()
        self._failed: set[PodUid] = set()
        """Pods whose files could not be written last time; the first one is logged."""

    def __contains__(self, uid: PodUid) -> bool:
        return uid in self._pods

    def put(self, pod: Pod, service: str, addresses: tuple[str, ...] = ()) -> None:
        """Set the facts of a pod; its file is written soon if that changes it.

        `service`: where the pod reaches the session service. `addresses`: empty: those of before.
        """
        before = self._pods.get(pod.uid)
        if not addresses and before is not None:
            addresses = before.addresses
        known = KnownPod(pod=pod, service=service, addresses=addresses)
        if known != before:
            self._pods[pod.uid] = known
            self.changed(pod.uid)

    def changed(self, uid: PodUid) -> None:
        """Write the pod's file soon, since one of its sessions has changed."""
        self._changed.add(uid)
        self._news.set()

    def forget(self, uid: PodUid) -> None:
        """Drop a pod that is gone; its directory is removed with it."""
        self._pods.pop(uid, None)
        self._written.pop(uid, None)
        self._failed.discard(uid)

    async def write(self, uid: PodUid) -> None:
        """Write the pod's file now if its content has changed. Raises Unavailable if it cannot."""
        known = self._pods.get(uid)
        if known is None:
            return
        metadata = compose(known, self._node, self._sessions_of(uid))
        if metadata == self._written.get(uid):
            return
        is_written = await self._blocking(_write, self._directory(uid) / FILE, metadata.encode())
        if is_written and uid in self._pods:
            self._written[uid] = metadata

    async def run(self) -> None:
        """Write changed files until cancelled. A file that cannot be written is tried again, such as on a full disk."""
        while True:
            await self._news.wait()
            await self._clock.sleep(RETRY_SECONDS if self._failed else DELAY_SECONDS)
            self._news.clear()
            changed, self._changed = self._changed, set()
            for uid in changed:
                await self._try_to_write(uid)

    async def _try_to_write(self, uid: PodUid) -> None:
        try:
            await self.write(uid)
        except Unavailable as error:
            if not self._failed:
                log.warning("Failed to write the metadata of an instance", pod_uid=uid, err=str(error))
            self._failed.add(uid)
            self.changed(uid)
        else:
            self._failed.discard(uid)


def _write(path: Path, data: bytes) -> bool:
    """Write the file if its content is different, and return True; False: the pod has no directory (any more).

    Raises Unavailable if it cannot be written.
    """
    try:
        try:
            if path.read_bytes() == data:
                return True
        except FileNotFoundError:
            if not path.parent.is_dir():
                return False
        replace_unflushed(path, data, 0o644)
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror or error}") from error
    return True
