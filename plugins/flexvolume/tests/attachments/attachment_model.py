"""Nodes of one storage, for tests: each has a `RecordBook` over the same records, and pieces that a test can change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from kubeletx_flexvolume.attachments.decision import BreakPolicy
from kubeletx_flexvolume.attachments.editing import record_editor
from kubeletx_flexvolume.attachments.garbage import GarbageLists
from kubeletx_flexvolume.attachments.modes import VolumeLookup
from kubeletx_flexvolume.attachments.node import LocalVolume, NodeContext, VolumeGuard
from kubeletx_flexvolume.attachments.proofs import StorageNode
from kubeletx_flexvolume.attachments.reconcile import Reconciler
from kubeletx_flexvolume.attachments.record import AttachmentEntry, Entries, entry_of, value_of
from kubeletx_flexvolume.attachments.record_book import RecordBook
from kubeletx_flexvolume.attachments.stores import Stores
from kubeletx_flexvolume.backends.backend import AttachedSource, Backend, FenceResult, SourceType
from kubeletx_flexvolume.values import AccessMode, Holder, HolderStatus, StorageVolume

from kubeletx.api import Record, TimedOut, Unavailable
from kubeletx.kube.types.meta import ObjectReference
from kubeletx.testing import FakeClock, FakeRecords

T = TypeVar("T")
RWO, RWOP = AccessMode.READ_WRITE_ONCE, AccessMode.READ_WRITE_ONCE_POD
ROX, RWX = AccessMode.READ_ONLY_MANY, AccessMode.READ_WRITE_MANY


def volume(name: str = "pv-1", *modes: AccessMode, **more: Any) -> StorageVolume:
    """A volume on loop devices."""
    return StorageVolume(name=name, backend="loop", image=f"{name}.img", access_modes=modes, **more)


def holder(node: str = "n1", pod: str = "web-0", **more: Any) -> Holder:
    """A pod of namespace default; its UID and mount directory follow from its name unless they are given."""
    uid = more.pop("pod_uid", f"{pod}-uid")
    values = {"boot_id": f"{node}-boot", "mount_dir": f"/pods/{uid}/v", **more}
    return Holder(node=node, pod_namespace="default", pod=pod, pod_uid=uid, **values)


def entry(node: str = "n1", pod: str = "web-0", **more: Any) -> AttachmentEntry:
    """The entry of such a pod for `volume()`."""
    node_uid = more.pop("node_uid", f"{node}-uid")
    return entry_of(more.pop("volume", volume()), holder(node, pod, **more), node_uid=node_uid)


class LocalDouble:
    """Volumes of a node. `dropped`: (name, why, force) of each drop. `hangs`, `fails`: names of volumes."""

    def __init__(self) -> None:
        self.present: dict[str, LocalVolume] = {}
        self.dropped: list[tuple[str, str, bool]] = []
        self.hangs: set[str] = set()
        self.fails: set[str] = set()
        self.book: RecordBook | None = None

    def volumes(self) -> list[LocalVolume]:
        return [self.present[name] for name in sorted(self.present)]

    def find(self, name: str) -> LocalVolume | None:
        return self.present.get(name)

    def mount(self, of: StorageVolume, *holders: Holder, device: str = "/dev/loop0") -> None:
        """Make the volume present, used by these holders."""
        mounted = tuple(msgspec.structs.replace(one, status=HolderStatus.MOUNTED) for one in holders)
        self.present[of.name] = LocalVolume(volume=of, holders=mounted, device=device)

    async def drop(self, volume: StorageVolume, *, why: str, force: bool = False) -> None:
        self.dropped.append((volume.name, why, force))
        if volume.name in self.hangs:
            await asyncio.Event().wait()
        if volume.name in self.fails:
            raise Unavailable(f"volume {volume.name} is busy")
        gone = self.present.pop(volume.name, None)
        if gone is not None and self.book is not None:
            for one in gone.holders:
                await self.book.release(gone.volume, one)


class NodesDouble:
    """Facts about nodes, which a test changes. `silent`: look-ups fail; `unlisted`: nodes that `all` leaves out.

    `asked`: number of look-ups.
    """

    def __init__(self, *names: str) -> None:
        self.known = {
            name: StorageNode(name=name, uid=f"{name}-uid", boot_id=f"{name}-boot", ready=True)
            for name in names
        }
        self.silent = False
        self.unlisted: set[str] = set()
        self.asked = 0

    def change(self, name: str, **changes: Any) -> None:
        self.known[name] = msgspec.structs.replace(self.known[name], **changes)

    async def facts(self, name: str) -> StorageNode:
        self._answer()
        return self.known.get(name) or StorageNode(name=name, exists=False)

    async def all(self) -> Mapping[str, StorageNode]:
        self._answer()
        return {name: facts for name, facts in self.known.items() if name not in self.unlisted}

    def _answer(self) -> None:
        self.asked += 1
        if self.silent:
            raise Unavailable("the API server does not answer")


class PodsDouble:
    """Facts about pods: `given_up` and `stateful` have their names."""

    def __init__(self) -> None:
        self.given_up: set[str] = set()
        self.stateful: set[str] = set()

    async def is_given_up(self, holder: Holder) -> bool:
        return holder.pod in self.given_up

    async def is_stateful(self, holder: Holder) -> bool:
        return holder.pod in self.stateful


class StorageDouble(Backend):
    """A backend. `found`: names of volumes with a device here; `result`: answer of `fence`; `fenced`: its calls.

    `has_images`: it identifies images.
    """

    name = "loop"

    def __init__(self) -> None:
        self.has_images = False
        self.found: set[str] = set()
        self.result = FenceResult(fenced=False, why="this storage cannot cut off a node")
        self.fenced: list[tuple[str, str]] = []
        self.silent = False

    def check(self, volume: StorageVolume) -> None:
        raise AssertionError("the agent checks options before it asks the records")

    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        raise AssertionError("records never attach")

    async def find(self, volume: StorageVolume) -> AttachedSource | None:
        if self.silent:
            raise Unavailable("losetup does not answer")
        present = volume.name in self.found
        return AttachedSource(type=SourceType.DEVICE, source="/dev/loop7") if present else None

    async def images(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        return (f"loop {volume.pool}/{volume.image}",) if self.has_images else ()

    async def fence(self, volume: StorageVolume, holder: Holder) -> FenceResult:
        self.fenced.append((volume.name, holder.node))
        return self.result

    async def detach(self, volume: StorageVolume, *, force: bool = False) -> None:
        raise AssertionError("records never detach")


class EventsDouble:
    """Events: (name of the object, reason, message)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    async def of_volume(self, name: str, *, reason: str, message: str) -> None:
        self.seen.append((name, reason, message))

    async def of_object(self, subject: ObjectReference, *, reason: str, message: str) -> None:
        self.seen.append((f"{subject.namespace}/{subject.name}", reason, message))


class IdentityDouble:
    """The identity of the store. `silent`: the store does not answer."""

    def __init__(self) -> None:
        self.text, self.silent = "first", False

    async def __call__(self) -> str:
        if self.silent:
            raise Unavailable("the API server does not answer")
        return self.text

    async def close(self) -> None:
        return


class TroubledRecords(FakeRecords):
    """Records whose writes meet trouble.

    `before`: called before the next write only. `lose_answers`: number of writes that are done, and then time out;
    `lose_writes`: number of writes that time out, and are not done. `writes`: number of attempts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], Any] | None = None
        self.lose_answers = self.lose_writes = self.writes = 0

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        await self.trouble()
        return self._answer(await super().create(name, value))

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        await self.trouble()
        return self._answer(await super().replace(name, value, expected_version=expected_version))

    async def delete(self, name: str, *, expected_version: str) -> None:
        await self.trouble()
        await super().delete(name, expected_version=expected_version)
        self._answer(None)

    async def trouble(self) -> None:
        self.writes += 1
        before, self.before = self.before, None
        if before is not None:
            await before()
        if self.lose_writes:
            self.lose_writes -= 1
            raise TimedOut("no answer within 30 s")

    def _answer(self, result: T) -> T:
        if self.lose_answers:
            self.lose_answers -= 1
            raise TimedOut("no answer within 30 s")
        return result


class StorageModel:
    """Records that several nodes share. `nodes_facts`, `pods`, `storage`, `events` are shared, too."""

    def __init__(self, *names: str) -> None:
        self.clock = FakeClock(auto_advance=True)
        self.records = TroubledRecords()
        self.stale = TroubledRecords()
        self.editor = record_editor(self.records, self.clock, draw=lambda: 0.0)
        self.lists = GarbageLists(self.stale, self.clock, draw=lambda: 0.0)
        self.nodes = NodesDouble(*names)
        self.pods: PodsDouble | None = PodsDouble()
        self.storage = StorageDouble()
        self.events = EventsDouble()
        self.identity = IdentityDouble()

    @property
    def stores(self) -> Stores:
        return Stores(
            attachments=self.records,
            stale=self.stale,
            editor=self.editor,
            lists=self.lists,
            nodes=self.nodes,
            volumes=VolumeLookup(None, self.clock),
            events=self.events,
            pods=self.pods,  # type: ignore[arg-type]  # a double
            client=None,
            own_nodes=None,
            identity=self.identity,
            close=self.identity.close,
            clock=self.clock,
        )

    async def entries(self, name: str = "pv-1") -> Entries:
        return await self.editor.items(name)

    async def holders(self, name: str = "pv-1") -> list[str]:
        """NODE/POD of the present entries."""
        return [f"{one.node}/{one.pod}" for one in await self.entries(name)]

    async def put(self, *entries: AttachmentEntry, name: str = "pv-1") -> None:
        """Write a record."""
        await self.records.create(name, value_of(entries))


class NodeModel:
    """One node: `book`, its `local` volumes, and what the book looks at."""

    def __init__(
        self,
        model: StorageModel,
        name: str = "n1",
        policy: BreakPolicy = BreakPolicy.SAFE,
        *,
        boot_id: str = "",
    ) -> None:
        self.model, self.name, self.boot_id = model, name, boot_id or f"{name}-boot"
        self.local = LocalDouble()
        self.guard = VolumeGuard()
        self.guard.pending = {}
        self.refused = ""
        self.context = NodeContext(
            node=name,
            boot_id=self.boot_id,
            stores=model.stores,
            local=lambda: self.local,
            backends={"loop": model.storage},
            policy=policy,
            refuses=lambda _: self.refused,
            guard=self.guard,
        )
        self.book = RecordBook(self.context)
        self.local.book = self.book

    def holder(self, pod: str = "web-0", **more: Any) -> Holder:
        return holder(self.name, pod, **more)

    def reconciler(self, memory: Path, *, drop_seconds: float = 60.0) -> Reconciler:
        """Make its reconciler. `memory`: file in which it remembers the store."""
        return Reconciler(
            self.context, self.book, memory=memory, blocking=asyncio.to_thread, drop_seconds=drop_seconds
        )

    async def take(self, of: StorageVolume | None = None, pod: str = "web-0", **more: Any) -> Holder:
        return await self.book.take(of or volume(), self.holder(pod, **more))
