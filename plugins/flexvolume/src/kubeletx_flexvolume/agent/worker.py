"""`VolumeWorker`: executes the steps of one volume, one after the other, until its journal asks for nothing more.

    mount, unmount, drop ─ change what is wanted ─► plan ─► journal on disk ─► step ─► plan ─► ... ─► settled

The worker's task is the lock of the volume. Callers change what is wanted and wait for the result. A caller whose
deadline expires, or whose client disconnects, only stops waiting: the step continues, and a repeated call waits for the
same work. A volume is not mounted for a pod while no caller waits, as a kubelet does not unmount what it does not know.
If no call is repeated for `callers.ABANDONED_SECONDS`, everything is undone.

Removals that fail are repeated with growing pauses, and at once when a caller asks for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Blocking, Clock, Conflict, Internal, KubeletxError, Unavailable
from kubeletx.api.backoff import Backoff

from ..backends.registry import Backends
from ..values import Holder, HolderKey, MountRequest, StorageVolume
from .callers import MountCallers
from .journal import Mark, Use, VolumeJournal
from .namespace import MountNamespace
from .plan import Step, StepKind, next_step
from .progress import REMOVALS, begun, failed, succeeded
from .steps import StepRunner
from .stored import JournalFiles, StoredJournal

log = structlog.get_logger(__name__)

FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0
RECOVERY_SECONDS: Final = 60.0


class AgentTools(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about this node, and services, that all its volumes share.

    `kubelet_roots`: root directories of kubelets as configured, with their real paths. `mount_seconds`,
    `unmount_seconds`: deadlines of a call. `recovery_seconds`: for the volumes of a former run.
    """

    node: str
    boot_id: str
    kubelet_roots: Mapping[str, str]
    mount_seconds: float
    unmount_seconds: float
    recovery_seconds: float = RECOVERY_SECONDS
    store: JournalFiles
    runner: StepRunner
    backends: Backends
    namespace: MountNamespace
    clock: Clock
    blocking: Blocking

    def is_mounted(self, path: str) -> bool:
        return self.namespace.find_mount(path) is not None


class VolumeWorker:
    """The owner of one volume's journal. `stored`: the journal that is on disk; None: there is none."""

    def __init__(
        self, journal: VolumeJournal, tools: AgentTools, *, stored: VolumeJournal | None = None
    ) -> None:
        self.journal = journal
        self.step: Step | None = None
        """The step that runs now."""
        self._tools = tools
        self._stored = StoredJournal(journal.volume.name, tools.store, tools.blocking, present=stored)
        self._callers = MountCallers()
        self._calls = 0
        self._blocked: dict[Step, KubeletxError] = {}
        self._retry_at = 0.0
        self._backoff = Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS)
        self._is_settled = False
        self._wake = asyncio.Event()
        self._change = asyncio.Event()

    @property
    def name(self) -> str:
        return self.journal.volume.name

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the worker for a call that begins soon."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._wake.set()

    async def mount(self, request: MountRequest, holder: Holder) -> None:
        """Wait until the volume is mounted for the holder.

        Raises the error of the step that failed, after the undoing.
        """
        key = holder.key
        self._callers.begin(key)
        try:
            while self.journal.is_forced and not self.journal.is_empty:
                self._raise_if_stuck()
                await self._changed()
            self._want(request, holder)
            while True:
                use = self.journal.find(key)
                if use is not None and use.is_mounted:
                    return
                error = self._callers.failure(key)
                if error is not None and (use is None or self._is_settled):
                    raise self._with_undo(error, use)
                await self._changed()
        finally:
            self._callers.end(key, self._tools.clock.monotonic())
            self._wake.set()

    async def unmount(self, mount_dir: str) -> None:
        """Wait until the volume is unmounted there, and detached if no other pod of this node uses it.

        The entry in its record is released later if the records do not answer now.
        """
        with self.in_use():
            self._leave(*(use.key for use in self._uses_at(mount_dir)))
            while self._uses_at(mount_dir):
                if self._is_left_at(mount_dir):
                    self._raise_if_stuck()
                elif self._is_settled:  # only the entry in its record is left
                    return
                await self._changed()

    async def drop(self, why: str, *, force: bool) -> None:
        """Wait until nothing of the volume is left on this node, nor in its record for this node."""
        with self.in_use():
            forced = force or self.journal.is_forced
            self.journal = msgspec.structs.replace(self.journal, is_forced=forced, why=why)
            self._leave(*(use.key for use in self.journal.uses))
            while not (self.journal.is_empty and self._is_settled):
                if self.journal.staying:
                    raise Conflict(f"volume {self.name}: {self.journal.staying[0].holder} mounts it again")
                self._raise_if_stuck()
                await self._changed()

    def state(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "device": "" if self.journal.source is None else self.journal.source.source,
            "step": "" if self.step is None else self.step.kind.name.lower(),
            "problems": [str(error) for error in self._blocked.values()],
            "pods": [
                {
                    "pod": f"{use.holder.pod_namespace}/{use.holder.pod}",
                    "path": use.holder.mount_dir,
                    "isMounted": use.is_mounted,
                    "isWanted": use.is_wanted,
                }
                for use in self.journal.uses
            ],
        }

    def add_use(self, use: Use) -> None:
        self.journal = self.journal.with_use(use)
        self._is_settled = False
        self._wake.set()

    async def settled(self) -> None:
        """Wait until all that can be done now is done."""
        while not self._is_settled:
            await self._changed()

    async def run(self) -> None:
        """Execute steps until nothing of the volume is left and no caller waits."""
        while True:
            self._leave_abandoned()
            step = self._next_step()
            if step is not None:
                self._is_settled = False
                await self._execute(step)
            elif not await self._settle():
                return
            self._notify()

    def _next_step(self) -> Step | None:
        return next_step(self.journal, blocked=self._blocked.keys(), awaited=self._callers.awaited)

    async def _execute(self, step: Step) -> None:
        try:
            await self._stored.announce(self.journal, step)
            if self._next_step() != step:  # a caller has changed what is wanted
                return
            self.step = step
            await self._run_step(step)
        except KubeletxError as error:
            self._note_failure(step, error)
        except Exception as error:  # root of the step: the worker must not end, as it has the volume's lock
            log.exception("Failed to execute a step of a volume", volume=self.name, step=step.kind.name)
            problem = f"{step.kind.value} failed: {type(error).__name__}; see the agent's log"
            self._note_failure(step, Internal(f"volume {self.name}: {problem}"))
        finally:
            self.step = None

    async def _run_step(self, step: Step) -> None:
        self.journal = begun(self.journal, step)
        outcome = await self._tools.runner.run(step, self.journal, self._callers.request(step.key))
        if step.kind is StepKind.CONFIRM:  # the mount counts as completed when that is on disk
            await self._stored.write(succeeded(self.journal, step, outcome))
        self.journal = succeeded(self.journal, step, outcome)
        if step.kind in REMOVALS:
            self._backoff.reset()
            self._blocked.clear()

    def _note_failure(self, step: Step, error: KubeletxError) -> None:
        self.journal = failed(self.journal, step, is_refused=isinstance(error, Conflict))
        if step.kind in REMOVALS:
            self._blocked[step] = error
            self._retry_at = self._tools.clock.monotonic() + self._backoff.next()
            log.warning("Failed to remove a volume", volume=self.name, step=step.kind.name, err=str(error))
        elif step.key is not None:
            self._callers.fail(step.key, error)
            log.warning("Failed to mount a volume", volume=self.name, step=step.kind.name, err=str(error))

    async def _settle(self) -> bool:
        """Bring the disk up to date and wait for the next task. Return False if the worker is not needed any more."""
        before = self.journal
        try:
            if before.is_empty or not self._stored.is_same(before):
                await self._stored.write(before)
        except KubeletxError as error:
            log.warning("Failed to write a journal", volume=self.name, err=str(error))
            self._retry_at = self._tools.clock.monotonic() + self._backoff.next()
        if self.journal != before or self._wake.is_set():  # a caller has changed what is wanted
            self._wake.clear()
            return True
        self._is_settled = True
        self._notify()
        if before.is_empty and self._stored.is_same(before) and not self._calls:
            return False
        await self._woken()
        return True

    async def _woken(self) -> None:
        """Wait for a caller, or until a step is due again or a mount is abandoned."""
        clock = self._tools.clock
        due = self._callers.next_due
        times = [] if due is None else [due]
        if self._blocked or not self._stored.is_same(self.journal):
            times.append(self._retry_at)
        cancel = clock.call_at(min(times), self._wake.set) if times else None
        try:
            await self._wake.wait()
            self._wake.clear()
        finally:
            if cancel is not None:
                cancel()
        if self._blocked and clock.monotonic() >= self._retry_at:
            self._blocked.clear()

    def _want(self, request: MountRequest, holder: Holder) -> None:
        """Add the use to the journal, or let a present one stay."""
        self._check_same(request.volume)
        use = self.journal.find(holder.key)
        if use is None:
            use = Use(holder=holder)
        elif use.holder.read_only != holder.read_only:
            raise Conflict(
                f"volume {self.name}: it is mounted with another access on {holder.mount_dir}; unmount it first"
            )
        elif use.is_mounted and self._tools.is_mounted(holder.mount_dir):
            return
        else:
            use = msgspec.structs.replace(use, is_wanted=True, is_mounted=False)
            if use.bound is Mark.YES and not self._tools.is_mounted(holder.mount_dir):
                use = msgspec.structs.replace(use, bound=Mark.MAY)
        self._callers.want(holder.key, request)
        journal = self.journal.with_use(use)
        self.journal = msgspec.structs.replace(journal, volume=request.volume, is_forced=False, why="")
        self._is_settled = False
        self._wake.set()

    def _check_same(self, volume: StorageVolume) -> None:
        """Raise Conflict if the journal is of a volume with the same name, but another image."""
        known = self.journal.volume
        if known.is_block != volume.is_block and not self.journal.is_empty:
            raise Conflict(
                f"volume {self.name}: pods of this node have its device, so that it cannot be mounted; delete them"
                if known.is_block
                else f"volume {self.name}: pods of this node have it mounted, so that no pod can have its device; "
                "delete them"
            )
        if known.backend and _identity(known) != _identity(volume):
            raise Conflict(
                f"volume {self.name}: this node has it as image {known.image} of pool {known.pool} ({known.backend}), "
                f"and not {volume.image} of {volume.pool} ({volume.backend}); give each volume a name with option name"
            )

    def _leave(self, *keys: HolderKey) -> None:
        """Let the uses leave, and repeat blocked removals now."""
        if keys:
            self.journal = self.journal.leave(*keys)
        for key in self._callers.awaited & set(keys):
            self._callers.fail(key, Unavailable(f"volume {self.name}: it was unmounted meanwhile"))
        self._blocked.clear()
        self._is_settled = False
        self._wake.set()

    def _leave_abandoned(self) -> None:
        now = self._tools.clock.monotonic()
        for key in self._callers.without_caller():
            use = self.journal.find(key)
            if use is None or use.is_mounted or not use.is_wanted:
                self._callers.settle(key)
            elif self._callers.is_due(key, now):
                self._callers.settle(key)
                log.warning("Undid a mount that no call waits for", volume=self.name, pod=str(use.holder))
                self._leave(key)

    def _uses_at(self, mount_dir: str) -> list[Use]:
        return [use for use in self.journal.uses if use.holder.mount_dir == mount_dir]

    def _is_left_at(self, mount_dir: str) -> bool:
        """Return True if the kernel has a mount there, or a device that no other pod uses."""
        if any(use.bound is not Mark.NO for use in self._uses_at(mount_dir)):
            return True
        is_here = self.journal.mounted is not Mark.NO or self.journal.attached is not Mark.NO
        return is_here and not self.journal.staying

    def _with_undo(self, error: KubeletxError, use: Use | None) -> KubeletxError:
        """Return the error of a mount; if its undoing failed too, with these errors added."""
        if use is None or not self._blocked:
            return error
        undo = "; ".join(str(one) for one in self._blocked.values())
        return Unavailable(f"{error}; undoing the mount failed too, and is repeated: {undo}")

    def _raise_if_stuck(self) -> None:
        """Raise the error of a blocked removal if nothing else can be done now."""
        if self._is_settled and self._blocked:
            steps = sorted(self._blocked, key=lambda step: step.kind is StepKind.RELEASE)
            raise self._blocked[steps[0]]

    async def _changed(self) -> None:
        await self._change.wait()

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


def _identity(volume: StorageVolume) -> tuple[str, str, str]:
    return volume.backend, volume.pool, volume.image
