"""Models of what surrounds a volume: the kernel, a backend, and the attachment records, with failures on request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from kubeletx_flexvolume.agent.journal import VolumeJournal
from kubeletx_flexvolume.agent.operations import Operations
from kubeletx_flexvolume.agent.paths import TargetPath, global_directory
from kubeletx_flexvolume.agent.steps import StepRunner
from kubeletx_flexvolume.agent.stored import JournalFiles
from kubeletx_flexvolume.agent.worker import AgentTools
from kubeletx_flexvolume.backends.backend import AttachedSource, Backend, SourceType
from kubeletx_flexvolume.backends.registry import Backends
from kubeletx_flexvolume.values import Holder, HolderStatus, MountRequest, PodRef, StorageVolume

from kubeletx.api import Conflict, KubeletxError, Unavailable
from kubeletx.linux.mounts import MountPoint
from kubeletx.testing import FakeClock

ROOT = "/kubelet"
NODE, BOOT = "node-a", "boot-1"
DEVICE = "/dev/model0"


def volume(name: str = "pv-1", **changes: Any) -> StorageVolume:
    return msgspec.structs.replace(StorageVolume(name=name, backend="model", image=name), **changes)


def target(uid: str = "u1", name: str = "pv-1") -> TargetPath:
    return TargetPath(kubelet_root=ROOT, pod_uid=uid, name=name)


def request(uid: str = "u1", *, read_only: bool = False, of: StorageVolume | None = None) -> MountRequest:
    one = of or volume()
    pod = PodRef(namespace="default", name=f"pod-{uid}", uid=uid)
    return MountRequest(
        volume=one,
        pod=pod,
        target=target(uid, one.name).path,
        read_only=read_only,
        secrets={"key": b"hunter2"},
    )


def holder(uid: str = "u1", *, boot: str = BOOT, **changes: Any) -> Holder:
    made = Holder(
        node=NODE,
        boot_id=boot,
        pod_namespace="default",
        pod=f"pod-{uid}",
        pod_uid=uid,
        mount_dir=target(uid).path,
    )
    return msgspec.structs.replace(made, **changes)


def journal(**changes: Any) -> VolumeJournal:
    made = VolumeJournal(
        volume=volume(), boot_id=BOOT, kubelet_root=ROOT, global_dir=global_directory(ROOT, "pv-1")
    )
    return msgspec.structs.replace(made, **changes)


class Faults:
    """Errors and pauses of named calls, such as ``attach``. `log`: all calls, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.errors: dict[str, list[KubeletxError]] = {}
        self.permanent: dict[str, KubeletxError] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.entered: dict[str, asyncio.Event] = {}

    def fail(self, call: str, error: KubeletxError | None = None, *, forever: bool = False) -> None:
        error = error or Unavailable(f"{call} failed")
        if forever:
            self.permanent[call] = error
        else:
            self.errors.setdefault(call, []).append(error)

    def repair(self, call: str) -> None:
        self.permanent.pop(call, None)

    def pause(self, call: str) -> tuple[asyncio.Event, asyncio.Event]:
        """The call waits for the second event, and sets the first when it begins to wait."""
        self.entered[call], self.gates[call] = asyncio.Event(), asyncio.Event()
        return self.entered[call], self.gates[call]

    async def pass_(self, call: str) -> None:
        self.log.append(call)
        if call in self.gates:
            self.entered[call].set()
            await self.gates[call].wait()
        if self.errors.get(call):
            raise self.errors[call].pop(0)
        if call in self.permanent:
            raise self.permanent[call]


class ModelBook:
    """Attachment records in memory, one holder or several of one node."""

    def __init__(self, faults: Faults) -> None:
        self.entries: dict[str, list[Holder]] = {}
        self._faults = faults

    async def take(self, volume: StorageVolume, holder: Holder) -> Holder:
        await self._faults.pass_("take")
        present = self.entries.setdefault(volume.name, [])
        other = next((one for one in present if one.node != holder.node), None)
        if other is not None:
            raise Conflict(f"volume {volume.name} is in use by {other}")
        if not any(one.key == holder.key for one in present):
            present.append(holder)
        return holder

    async def note(self, volume: StorageVolume, holder: Holder, *, device: str, status: HolderStatus) -> None:
        await self._faults.pass_("note")
        if not await self.holds(volume, holder):
            raise Conflict(f"volume {volume.name} has no entry of {holder}")

    async def release(self, volume: StorageVolume, holder: Holder) -> None:
        await self._faults.pass_("release")
        left = [one for one in self.entries.get(volume.name, []) if one.key != holder.key]
        self.entries[volume.name] = left

    async def holds(self, volume: StorageVolume, holder: Holder) -> bool:
        return any(one.key == holder.key for one in self.entries.get(volume.name, []))


class ModelBackend(Backend):
    """A backend with at most one device for each volume."""

    name = "model"
    unfenced = "a model"

    def __init__(self, faults: Faults, type: SourceType = SourceType.DEVICE) -> None:
        self.attached: set[str] = set()
        self.secrets: dict[str, bytes] = {}
        self.mount_options: tuple[str, ...] = ()
        self._type = type
        self._faults = faults

    def check(self, volume: StorageVolume) -> None:
        """All options are right."""

    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        await self._faults.pass_("attach")
        self.attached.add(volume.name)
        self.secrets = dict(secrets)
        return AttachedSource(type=self._type, source=DEVICE, mount_options=self.mount_options)

    async def images(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        return (f"model {volume.image}",)

    async def find(self, volume: StorageVolume) -> AttachedSource | None:
        return AttachedSource(type=self._type, source=DEVICE) if volume.name in self.attached else None

    async def detach(self, volume: StorageVolume, *, force: bool = False) -> None:
        await self._faults.pass_("force detach" if force else "detach")
        self.attached.discard(volume.name)

    def identify(self, name: str, mount: MountPoint) -> StorageVolume | None:
        return volume(name) if mount.source == DEVICE else None


class ModelDevice:
    """The model's device, and its content."""

    def __init__(self, faults: Faults) -> None:
        self.is_blank = True
        self._faults = faults

    async def look(self, fs_type: str, *, read_only: bool) -> str:
        await self._faults.pass_("look")
        return "" if self.is_blank else fs_type

    async def make(self, fs_type: str, *, force: bool = False) -> None:
        await self._faults.pass_("format")
        self.is_blank = False


class ModelMounts:
    """A mount namespace, and the mounts of all volumes in it, by path. The value is the entry of the mount table."""

    def __init__(self, faults: Faults) -> None:
        self.mounted: dict[str, MountPoint] = {}
        self._faults = faults

    def table(self, word: str = "") -> tuple[MountPoint, ...]:
        return tuple(self.mounted.values())

    def find_mount(self, path: str) -> MountPoint | None:
        return self.mounted.get(path)

    def make_directory(self, kubelet_root: str, path: str) -> None:
        return

    check_directory = make_file = remove = make_directory

    async def mount(self, source: str, directory: str, *, read_only: bool, **_: Any) -> bool:
        await self._faults.pass_("mount")
        self.add(directory, source, read_only)
        return not read_only

    async def mount_directory(self, source: str, directory: str) -> bool:
        return await self.mount(source, directory, read_only=False)

    async def make_writable(self, directory: str) -> None:
        await self._faults.pass_("remount")

    async def bind(self, directory: str, target: str, *, read_only: bool, **_: Any) -> None:
        await self._faults.pass_("bind")
        if directory not in self.mounted:
            raise Unavailable(f"nothing is mounted on {directory}")
        self.add(target, self.mounted[directory].source, read_only)

    async def bind_device(self, device: str, target: str) -> None:
        await self._faults.pass_("bind device")
        self.add(target, device, read_only=False)

    async def stop_writers(self, directory: str) -> None:
        await self._faults.pass_("stop writers")

    async def unmount(self, path: str, *, lazy: bool = False) -> None:
        what = "unmount" if "/plugins/" in path else "unbind"
        await self._faults.pass_(f"lazy {what}" if lazy else what)
        self.mounted.pop(path, None)

    def add(self, path: str, source: str, read_only: bool) -> None:
        options = ("ro",) if read_only else ("rw",)
        self.mounted[path] = MountPoint(
            target=path, root="/", device="7:0", fs_type="ext4", source=source, options=options
        )


class Node:
    """A node with one agent on models. `restart` makes a new agent on what the old one has left.

    `seconds`: deadline of a call, in real time.
    """

    def __init__(self, state: Path, *, type: SourceType = SourceType.DEVICE, seconds: float = 30.0) -> None:
        self.seconds = seconds
        self.recovery_seconds = 60.0
        self.faults = Faults()
        self.book = ModelBook(self.faults)
        self.backend = ModelBackend(self.faults, type)
        self.device = ModelDevice(self.faults)
        self.mounts = ModelMounts(self.faults)
        self.clock = FakeClock()
        self.store = JournalFiles(state)
        self.backends = Backends((self.backend,))
        self.boot_id = BOOT
        self.is_one_device = False
        """All volumes have one image: the device of a volume is that of the others."""
        self.operations = self._operations()

    @property
    def is_clean(self) -> bool:
        """True if nothing of any volume is left: neither kernel nor records nor journals have anything."""
        entries = [one for held in self.book.entries.values() for one in held]
        return not (self.mounts.mounted or self.backend.attached or entries or self.store.load_all())

    async def mount(self, uid: str = "u1", **changes: Any) -> None:
        one = request(uid, **changes)
        await self.operations.mount(one, target(uid, one.volume.name))

    async def unmount(self, uid: str = "u1", name: str = "pv-1") -> None:
        await self.operations.unmount(target(uid, name))

    async def reach(self, step: str, work: Awaitable[None]) -> tuple[asyncio.Task[None], asyncio.Event]:
        """Start a call until it waits in a step. Returns it, and the event for which it waits."""
        entered, gate = self.faults.pause(step)
        task = call(work)
        await entered.wait()
        return task, gate

    async def interrupt(self, step: str, work: Awaitable[None]) -> None:
        """End a call in a step, which never ends."""
        task, _ = await self.reach(step, work)
        task.cancel()
        await asyncio.wait((task,))
        self.faults.gates.clear()

    async def restart(self, *, boot_id: str = BOOT) -> None:
        """End the agent without a word to its volumes, as SIGKILL does, and start another one."""
        await self.operations.close(0)
        self.start(boot_id=boot_id)
        await self.operations.recover()

    def start(self, *, boot_id: str = BOOT) -> None:
        """Start an agent, which has not recovered yet."""
        if boot_id != self.boot_id:
            self.mounts.mounted.clear()
            self.backend.attached.clear()
        self.boot_id = boot_id
        self.operations = self._operations()

    def _operations(self) -> Operations:
        runner = StepRunner(
            book=self.book,
            backends=self.backends,
            mounts=lambda _: self.mounts,  # type: ignore[arg-type, return-value]
            device=lambda *_: self.device,  # type: ignore[arg-type, return-value]
            namespace=self.mounts,  # type: ignore[arg-type]
            blocking=at_once,
            users=lambda device: self.operations.users(device) if self.is_one_device else (),
        )
        tools = AgentTools(
            node=NODE,
            boot_id=self.boot_id,
            kubelet_roots={ROOT: ROOT},
            mount_seconds=self.seconds,
            unmount_seconds=self.seconds,
            recovery_seconds=self.recovery_seconds,
            store=self.store,
            runner=runner,
            backends=self.backends,
            namespace=self.mounts,  # type: ignore[arg-type]
            clock=self.clock,
            blocking=at_once,
        )
        self.tools = tools
        return Operations(tools)


async def at_once(function: Callable[..., Any], /, *args: Any) -> Any:
    """Call the function on the event loop's thread."""
    await asyncio.sleep(0)
    return function(*args)


def call(work: Awaitable[None], name: str = "call") -> asyncio.Task[None]:
    """Start a call that is awaited later."""

    async def run() -> None:
        await work

    return asyncio.create_task(run(), name=name)
