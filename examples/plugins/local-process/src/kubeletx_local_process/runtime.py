"""The runtime: sandboxes and units are directories, what runs in them are process groups.

A key is turned into an id by a pure function, so that the same key finds the same directory again::

    <state>/sandboxes/<sandbox id>/spec.json                    being there is READY, `stopped` beside it is not
    <state>/units/<unit id>/{spec.json,supervisor,pid,exit}     see `processes.py`
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kubeletx.api import (
    FEATURES,
    Endpoint,
    EventKind,
    Host,
    InvalidPod,
    LogMode,
    NamespaceMode,
    NotFound,
    Process,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeVersion,
    SandboxId,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    Traits,
    UnitId,
    UnitSpec,
    UnitState,
    UnitStatus,
    UnitSummary,
)

from .processes import Child, modified_ns

T = TypeVar("T")

CAN = {"host-network", "host-pid", "host-ipc", "several-units"}
TRAITS = Traits(
    details=("process",),
    log_mode=LogMode.RAW_FILE,
    images=False,
    brings_pod_network=False,
    refuses=tuple(sorted(FEATURES - CAN)),
)


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down about a unit when it is created."""

    sandbox_id: SandboxId
    sandbox: SandboxSpec
    spec: UnitSpec


class ProcessRuntime:
    """A `kubeletx.api.Runtime`; its only extra capability is events."""

    def __init__(self, endpoint: Endpoint, settings: Any, host: Host) -> None:
        """The shape of every factory: no I/O here."""
        self._host = host
        self._sandboxes = host.state_directory / "sandboxes"
        self._units = host.state_directory / "units"
        self._watchers: dict[UnitId, asyncio.Task[None]] = {}
        self._events: asyncio.Queue[RuntimeEvent] = asyncio.Queue()

    async def open(self) -> None:
        """Make the directories and watch what runs already."""
        self._sandboxes.mkdir(parents=True, exist_ok=True)
        self._units.mkdir(exist_ok=True)
        for summary in await self.list_units({}):
            self._watch(summary.id)

    async def close(self) -> None:
        """Stop watching; the processes go on."""
        for watcher in list(self._watchers.values()):
            watcher.cancel()
        await asyncio.gather(*self._watchers.values(), return_exceptions=True)
        self._watchers.clear()

    def traits(self) -> Traits:
        """Processes that survive the agent, raw logs, no images, no isolation."""
        return TRAITS

    def capability(self, protocol: type[T]) -> T | None:
        """Events are the only one: `isinstance` finds them, since their method is here."""
        return self if isinstance(self, protocol) else None

    async def version(self) -> RuntimeVersion:
        """The word before ``://`` in containerID is ``process``."""
        return RuntimeVersion(name="process", version="0.1.0")

    async def health(self) -> RuntimeHealth:
        """The node itself is the backend, so it is there."""
        return RuntimeHealth(runtime_ready=True, network_ready=True)

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """A directory; (uid, attempt) decides its name."""
        sandbox_id = SandboxId(f"{hashlib.sha256(spec.uid.encode()).hexdigest()[:24]}-{spec.attempt}")
        write_once(self._sandboxes / sandbox_id, spec)
        return sandbox_id

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Kill what runs in it."""
        if (self._sandboxes / sandbox_id).is_dir():
            await asyncio.gather(*(self.stop_unit(unit_id, 0) for unit_id in self._units_of(sandbox_id)))
            (self._sandboxes / sandbox_id / "stopped").touch()

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Kill what runs in it, then remove units and directory."""
        await self.stop_sandbox(sandbox_id)
        for unit_id in self._units_of(sandbox_id):
            await self.remove_unit(unit_id)
        await self._host.blocking(shutil.rmtree, self._sandboxes / sandbox_id, ignore_errors=True)

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        """One directory each; one that goes meanwhile is left out."""
        found: list[SandboxSummary] = []
        for path in self._sandboxes.glob("*/spec.json"):
            with suppress(NotFound):
                found.append(self._sandbox(path.parent).summary)
        return [summary for summary in found if match.items() <= summary.labels.items()]

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        """Host network, so no address of its own."""
        return self._sandbox(self._sandboxes / sandbox_id)

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """A directory; (sandbox, name, attempt) decides its name."""
        self._sandbox(self._sandboxes / sandbox_id)
        if not isinstance(spec.detail, Process) or not (spec.detail.command or spec.detail.args):
            raise InvalidPod(
                field=f"container {spec.name}", problem="no command", fix="write the program to run"
            )
        unit_id = UnitId(f"{sandbox_id}.{spec.name}.{spec.attempt}")
        write_once(self._units / unit_id, Unit(sandbox_id=sandbox_id, sandbox=sandbox, spec=spec))
        return unit_id

    async def start_unit(self, unit_id: UnitId) -> None:
        """Start the process unless that was done before."""
        unit = read(self._units / unit_id, Unit)
        assert isinstance(unit.spec.detail, Process)
        await Child(self._units / unit_id).start(
            command=(*unit.spec.detail.command, *unit.spec.detail.args),
            environment={variable.name: variable.value for variable in unit.spec.environment},
            directory=unit.spec.detail.working_dir or "/",
            log=Path(unit.sandbox.log_directory) / unit.spec.log_path if unit.spec.log_path else None,
        )
        self._tell(EventKind.STARTED, unit_id)
        self._watch(unit_id)

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Signal the process group."""
        child = Child(self._units / unit_id)
        if child.is_running:
            detail = read(child.path, Unit).spec.detail
            signal_name = detail.stop_signal if isinstance(detail, Process) else ""
            await child.stop(signal_name or "SIGTERM", grace_seconds)

    async def remove_unit(self, unit_id: UnitId) -> None:
        """Remove the directory; kills first what should have ended."""
        await self.stop_unit(unit_id, 0)
        await self._host.blocking(shutil.rmtree, self._units / unit_id, ignore_errors=True)

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        """One directory each; one that goes meanwhile is left out."""
        found: list[UnitSummary] = []
        for path in self._units.glob("*/spec.json"):
            with suppress(NotFound):
                found.append(self._status(path.parent).summary)
        return [summary for summary in found if match.items() <= summary.labels.items()]

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Read from the unit's directory and /proc."""
        return self._status(self._units / unit_id)

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Starts and ends of processes."""
        while True:
            yield await self._events.get()

    def _units_of(self, sandbox_id: SandboxId) -> list[UnitId]:
        return [UnitId(path.name) for path in self._units.glob(f"{sandbox_id}.*")]

    def _watch(self, unit_id: UnitId) -> None:
        if unit_id not in self._watchers and Child(self._units / unit_id).is_running:
            self._watchers[unit_id] = asyncio.create_task(self._wait(unit_id), name=f"process-{unit_id}")

    async def _wait(self, unit_id: UnitId) -> None:
        await Child(self._units / unit_id).wait()
        self._watchers.pop(unit_id, None)
        self._tell(EventKind.STOPPED, unit_id)

    def _tell(self, kind: EventKind, unit_id: UnitId) -> None:
        try:
            unit = read(self._units / unit_id, Unit)
        except NotFound:
            return
        self._events.put_nowait(
            RuntimeEvent(kind=kind, uid=unit.sandbox.uid, sandbox_id=unit.sandbox_id, unit_id=unit_id)
        )

    def _sandbox(self, path: Path) -> SandboxStatus:
        spec = read(path, SandboxSpec)
        summary = SandboxSummary(
            id=SandboxId(path.name),
            uid=spec.uid,
            name=spec.name,
            namespace=spec.namespace,
            attempt=spec.attempt,
            state=SandboxState.NOT_READY if (path / "stopped").exists() else SandboxState.READY,
            created_at_ns=modified_ns(path / "spec.json"),
            labels=spec.labels,
            annotations=spec.annotations,
        )
        return SandboxStatus(summary=summary, host_network=spec.namespaces.network is NamespaceMode.NODE)

    def _status(self, path: Path) -> UnitStatus:
        unit, child = read(path, Unit), Child(path)
        state = UnitState.CREATED
        if child.started_at_ns:
            state = UnitState.RUNNING if child.is_running else UnitState.EXITED
        exit_code = child.exit_code if state is UnitState.EXITED else None
        summary = UnitSummary(
            id=UnitId(path.name),
            sandbox_id=unit.sandbox_id,
            uid=unit.sandbox.uid,
            name=unit.spec.name,
            attempt=unit.spec.attempt,
            state=state,
            created_at_ns=modified_ns(path / "spec.json"),
            labels=unit.spec.labels,
            annotations=unit.spec.annotations,
        )
        return UnitStatus(
            summary=summary,
            started_at_ns=child.started_at_ns,
            finished_at_ns=child.finished_at_ns if state is UnitState.EXITED else 0,
            exit_code=exit_code,
            reason="" if exit_code is None else "Error" if exit_code else "Completed",
            log_path=f"{unit.sandbox.log_directory}/{unit.spec.log_path}" if unit.spec.log_path else "",
        )


def write_once(path: Path, value: msgspec.Struct) -> None:
    """Write `value` as the directory's spec.json unless it is there; a crash leaves all or nothing."""
    if not (path / "spec.json").exists():
        path.mkdir(exist_ok=True)
        (path / "spec.tmp").write_bytes(msgspec.json.encode(value))
        (path / "spec.tmp").rename(path / "spec.json")


def read(path: Path, kind: type[T]) -> T:
    """The directory's spec.json; raises NotFound."""
    try:
        return msgspec.json.decode((path / "spec.json").read_bytes(), type=kind)
    except FileNotFoundError:
        raise NotFound(f"{path.parent.name.removesuffix('s')} {path.name} does not exist") from None
