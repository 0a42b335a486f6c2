"""`SpecFiles`: stores sandbox and unit specs as files, for backends that cannot store a pod's labels themselves.

Every runtime must find the same object again by the same key, return labels in lists as they were given, and leave
nothing half created after a crash. containerd does all that; local processes or a small hypervisor do not. For these,
`SpecFiles` keeps one directory for each sandbox and, in it, one directory for each unit. The id is computed from the
key. A directory appears, and disappears, by a single rename::

    <state>/live/<sandbox id>/                   spec.json, and an empty file `stopped` after `stop_sandbox`
    <state>/live/<sandbox id>/<name>.<attempt>/  spec.json, and files of the plugin
    <state>/spare/                               directories that are being created or removed; emptied by `open`

Call all methods from the event loop. Slow work (specs are synced to the disk, and directories removed) is done with
`Host.blocking`; reading a few small files is done directly.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from .errors import NotFound
from .host import Host
from .identity import SandboxId, UnitId
from .observed import SandboxState, SandboxStatus, SandboxSummary, UnitState, UnitStatus, UnitSummary
from .specs import NamespaceMode, SandboxSpec, UnitSpec

Spec = TypeVar("Spec", SandboxSpec, UnitSpec)


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One sandbox as `SpecFiles` has stored it.

    `path`: the directory of the sandbox. `stopped`: True if `SpecFiles.stop_sandbox` was called for it.
    """

    id: SandboxId
    spec: SandboxSpec
    path: Path
    created_at_ns: int
    stopped: bool

    def status(self, ips: tuple[str, ...] = ()) -> SandboxStatus:
        """Build the sandbox's status for the agent; the state is READY until the sandbox was stopped.

        `ips`: the pod's addresses, primary first; empty for host network or no network.
        """
        summary = SandboxSummary(
            id=self.id,
            uid=self.spec.uid,
            name=self.spec.name,
            namespace=self.spec.namespace,
            attempt=self.spec.attempt,
            state=SandboxState.NOT_READY if self.stopped else SandboxState.READY,
            created_at_ns=self.created_at_ns,
            handler=self.spec.handler,
            labels=self.spec.labels,
            annotations=self.spec.annotations,
        )
        on_node = self.spec.namespaces.network is NamespaceMode.NODE
        return SandboxStatus(summary=summary, ips=ips, host_network=on_node)


class UnitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One unit as `SpecFiles` has stored it. `path`: the unit's directory, where the plugin may keep more files."""

    id: UnitId
    spec: UnitSpec
    path: Path
    created_at_ns: int
    sandbox: SandboxRecord

    @property
    def log_file(self) -> Path | None:
        """Path of the unit's log file; None if the unit has no log."""
        if not self.spec.log_path:
            return None
        return Path(self.sandbox.spec.log_directory) / self.spec.log_path

    def status(
        self,
        *,
        started_at_ns: int = 0,
        finished_at_ns: int = 0,
        exit_code: int | None = None,
        state: UnitState | None = None,
    ) -> UnitStatus:
        """Build the unit's status for the agent from its times and exit code, which the plugin gives.

        `state` None: EXITED if there is an exit code, else RUNNING if there is a start time, else CREATED. The
        status's reason is Completed for exit code 0, Error for any other, and empty without an exit code.
        """
        if state is None:
            begun = UnitState.RUNNING if started_at_ns else UnitState.CREATED
            state = begun if exit_code is None else UnitState.EXITED
        summary = UnitSummary(
            id=self.id,
            sandbox_id=self.sandbox.id,
            uid=self.sandbox.spec.uid,
            name=self.spec.name,
            attempt=self.spec.attempt,
            state=state,
            created_at_ns=self.created_at_ns,
            image=self.spec.image.requested,
            image_id=self.spec.image.ref,
            labels=self.spec.labels,
            annotations=self.spec.annotations,
        )
        return UnitStatus(
            summary=summary,
            started_at_ns=started_at_ns,
            finished_at_ns=finished_at_ns,
            exit_code=exit_code,
            reason="" if exit_code is None else "Error" if exit_code else "Completed",
            log_path=str(self.log_file or ""),
            image_ref=self.spec.image.ref,
        )


class SpecFiles:
    """Store of the sandboxes and units of one runtime, as files below `Host.state_directory`."""

    def __init__(self, host: Host) -> None:
        """`host`: its `state_directory` is used. No file is read or written before `open`."""
        self._host = host
        self._live, self._spare = host.state_directory / "live", host.state_directory / "spare"

    def open(self) -> None:
        """Create the top directories, and delete objects that were being created or removed when the agent crashed."""
        import shutil

        shutil.rmtree(self._spare, ignore_errors=True)
        for path in (self._live, self._spare):
            path.mkdir(parents=True, exist_ok=True)

    async def add_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Store a sandbox and return its id. Does nothing more if a sandbox with the same uid and attempt is stored."""
        sandbox_id = SandboxId(f"{hashlib.sha256(spec.uid.encode()).hexdigest()[:24]}-{spec.attempt}")
        await self._add(self._live / sandbox_id, spec)
        return sandbox_id

    async def add_unit(self, sandbox_id: SandboxId, spec: UnitSpec) -> UnitId:
        """Store a unit of the sandbox and return the unit's id. Raises NotFound if the sandbox does not exist.

        If the sandbox already has a unit with the same name and attempt, nothing is written.
        """
        path = self.sandbox(sandbox_id).path / f"{spec.name}.{spec.attempt}"
        await self._add(path, spec)
        return UnitId(f"{sandbox_id}.{path.name}")

    def sandbox(self, sandbox_id: SandboxId) -> SandboxRecord:
        """Return the stored sandbox. Raises NotFound."""
        path = self._live / sandbox_id
        spec, created_at_ns = _read(path, SandboxSpec, f"sandbox {sandbox_id}")
        stopped = (path / "stopped").exists()
        return SandboxRecord(
            id=sandbox_id, spec=spec, path=path, created_at_ns=created_at_ns, stopped=stopped
        )

    def unit(self, unit_id: UnitId) -> UnitRecord:
        """Return the stored unit. Raises NotFound."""
        sandbox_id, _, name = unit_id.partition(".")
        path = self._live / sandbox_id / (name or "-")
        spec, created_at_ns = _read(path, UnitSpec, f"unit {unit_id}")
        sandbox = self.sandbox(SandboxId(sandbox_id))
        return UnitRecord(id=unit_id, spec=spec, path=path, created_at_ns=created_at_ns, sandbox=sandbox)

    def sandboxes(self) -> list[SandboxRecord]:
        """List all stored sandboxes, in no particular order."""
        return [self.sandbox(SandboxId(path.name)) for path in self._live.glob("*/")]

    def units(self, sandbox_id: SandboxId | None = None) -> list[UnitRecord]:
        """List the stored units of one sandbox, in no particular order; empty if the sandbox does not exist.

        `sandbox_id` None: the units of all sandboxes.
        """
        paths = self._live.glob(f"{sandbox_id or '*'}/*/")
        return [self.unit(UnitId(f"{path.parent.name}.{path.name}")) for path in paths]

    def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Mark the sandbox as stopped, so that its state is NOT_READY; does nothing if it does not exist."""
        with suppress(FileNotFoundError):
            (self._live / sandbox_id / "stopped").touch()

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove the stored sandbox with all its units; does nothing if it does not exist."""
        await self._remove(self._live / sandbox_id)

    async def remove_unit(self, unit_id: UnitId) -> None:
        """Remove the stored unit and all files in its directory; does nothing if it does not exist."""
        with suppress(NotFound):  # removed before: the call is idempotent
            await self._remove(self.unit(unit_id).path)

    async def _add(self, path: Path, spec: SandboxSpec | UnitSpec) -> None:
        new = self._spare / os.urandom(8).hex()
        await self._host.blocking(_write, new, path, msgspec.json.encode(spec))

    async def _remove(self, path: Path) -> None:
        import shutil

        spare = self._spare / os.urandom(8).hex()
        with suppress(FileNotFoundError):
            path.rename(spare)  # noqa: ASYNC240 - one quick call
            await self._host.blocking(shutil.rmtree, spare, ignore_errors=True)


def _write(new: Path, path: Path, data: bytes) -> None:
    if path.exists():
        return
    new.mkdir()
    with (new / "spec.json").open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        new.rename(path)
    except OSError:  # ENOTEMPTY: a concurrent call with the same key has created the directory first
        if not path.exists():
            raise


def _read(path: Path, kind: type[Spec], what: str) -> tuple[Spec, int]:
    try:
        with (path / "spec.json").open("rb") as file:
            return msgspec.json.decode(file.read(), type=kind), os.fstat(file.fileno()).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{what} does not exist") from None
