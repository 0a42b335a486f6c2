"""`FakeRuntime`: a complete runtime in memory, for tests and benchmarks.

It implements the whole runtime contract and passes its test suite. Tests can make it simulate the faults of real
runtimes::

    runtime = FakeRuntime(clock=clock)
    runtime.script("create_sandbox", error=Unavailable("no answer"), times=2)     # fails twice, then works
    stuck = runtime.script("stop_unit", hang=True)                                # hangs until stuck.release()
    runtime.script("create_unit", error=TimedOut("late"), after_effect=True)      # takes effect, but raises
    runtime.backend.exit_unit(runtime.backend.find_unit("web"), 1)                # a process dies
    runtime.backend.kill()                                                        # the daemon dies

`journal` and `counts` show which calls it received. To simulate a restart of the agent, make a new
FakeRuntime with the same `backend`. Without scripts and latency a call takes a few microseconds, so tests and
benchmarks may have 5,000 pods.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kubeletx.api import (
    CAPABILITIES,
    Channel,
    Clock,
    Conflict,
    ExecResult,
    ImageAuth,
    ImageFilesystem,
    ImageSpec,
    ImageStatus,
    LogMode,
    NotFound,
    PullProgress,
    Resources,
    RuntimeCondition,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeVersion,
    SandboxId,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    Session,
    StoreId,
    StoreInfo,
    StreamRequest,
    SupportsCriPassthrough,
    SupportsLogReopen,
    SupportsLogStream,
    TimedOut,
    Traits,
    Unavailable,
    UnitId,
    UnitSpec,
    UnitState,
    UnitStats,
    UnitStatus,
    UnitSummary,
)

from .clock import FakeClock
from .fake_backend import FakeBackend, FakeUnit
from .fake_machine_calls import FakeMachineCalls
from .sessions import FakeSession

T = TypeVar("T")
S = TypeVar("S", SandboxSummary, UnitSummary)

KILLED = 137

ExecHandler = Callable[[UnitId, Sequence[str], FakeSession], Awaitable[int]]
"""Function that simulates a command in a unit: (unit's id, words of the command, session) → exit code."""


class FakeRuntime(FakeMachineCalls):
    """A `Runtime` in memory that has every capability except `SupportsCriPassthrough`."""

    def __init__(
        self,
        name: str = "fake",
        *,
        clock: Clock | None = None,
        backend: FakeBackend | None = None,
        traits: Traits | None = None,
        without: Iterable[type] = (),
        latency: Mapping[str, float] | None = None,
        exec_handler: ExecHandler | None = None,
        shuffle: random.Random | None = None,
    ) -> None:
        """`backend` None: a new one. `clock` None: the backend's, or for a new backend a self-advancing `FakeClock`.

        `without`: protocols of capabilities that the runtime is not to have. It has the log capabilities that
        belong to `traits.log_mode`. `latency`: seconds on the clock that calls take, by method name.
        `exec_handler`: simulates commands; None: `run_fake_command`. `shuffle`: source of randomness that
        shuffles lists of sandboxes and units, to show code that depends on their order; None: no shuffling.
        """
        ticking = clock or (backend.clock if backend else FakeClock(auto_advance=True))
        super().__init__(name, clock=ticking, backend=backend or FakeBackend(clock=ticking), latency=latency)
        self.declared = traits or Traits(details=("process", "machine", "custom"))
        self.runtime_ready = True
        self.network_ready = True
        self.handlers: tuple[str, ...] = ()
        self.pod_cidrs: tuple[str, ...] = ()
        self.is_open = False
        self._exec_handler = exec_handler or run_fake_command
        self._shuffle = shuffle
        absent = {*without, SupportsCriPassthrough}
        if self.declared.log_mode is not LogMode.FILE:
            absent.add(SupportsLogReopen)
        if self.declared.log_mode is not LogMode.STREAM:
            absent.add(SupportsLogStream)
        self.capabilities: set[type] = set(CAPABILITIES) - absent

    # --- connection ---

    async def open(self) -> None:
        """Set `is_open`. Raises Unavailable if the backend was killed and not revived."""
        await self._call("open", "", lambda: None)
        self.is_open = True

    async def close(self) -> None:
        """Clear `is_open`; units keep running in the backend."""
        self.is_open = False

    def traits(self) -> Traits:
        """Return the traits given to the constructor."""
        return self.declared

    def capability(self, protocol: type[T]) -> T | None:
        """Return this object if it has the capability `protocol`; None if that capability was excluded."""
        return self if protocol in self.capabilities and isinstance(self, protocol) else None

    async def version(self) -> RuntimeVersion:
        """Return the name ``fake`` and a fixed version."""
        return await self._call(
            "version", "", lambda: RuntimeVersion(name="fake", version="1.0", api_version="v1")
        )

    async def health(self) -> RuntimeHealth:
        """Return the attributes `runtime_ready`, `network_ready` and `handlers`, which a test may set."""
        return await self._call("health", "", self._health)

    def _health(self) -> RuntimeHealth:
        return RuntimeHealth(
            runtime_ready=self.runtime_ready,
            network_ready=self.network_ready,
            handlers=self.handlers,
            conditions=(
                RuntimeCondition(type="RuntimeReady", ok=self.runtime_ready, reason="Scripted"),
                RuntimeCondition(type="NetworkReady", ok=self.network_ready, reason="Scripted"),
            ),
        )

    async def set_pod_cidrs(self, cidrs: Sequence[str]) -> None:
        """Keep the ranges in attribute `pod_cidrs`."""
        await self._call("set_pod_cidrs", "", lambda: setattr(self, "pod_cidrs", tuple(cidrs)))

    # --- sandboxes ---

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Create a ready sandbox, unless one with the same pod UID and attempt exists; returns the sandbox's id."""
        return await self._call("create_sandbox", spec.uid, lambda: self.backend.add_sandbox(spec))

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Kill the units in the sandbox and set its state to NOT_READY; succeeds if the sandbox does not exist."""
        await self._call("stop_sandbox", sandbox_id, lambda: self._stop_sandbox(sandbox_id))

    def _stop_sandbox(self, sandbox_id: SandboxId) -> None:
        if sandbox_id in self.backend.sandboxes:
            self.backend.fail_sandbox(sandbox_id)

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove the sandbox and its units; succeeds if the sandbox does not exist."""
        await self._call("remove_sandbox", sandbox_id, lambda: self.backend.drop_sandbox(sandbox_id))

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        """Return the sandboxes whose labels contain every pair of `match`."""
        return await self._call(
            "list_sandboxes", "", lambda: self._shuffled(self.backend.find_sandboxes(match))
        )

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        """Return the status of one sandbox. Raises NotFound."""
        return await self._call("sandbox_status", sandbox_id, lambda: self.backend.sandbox_status(sandbox_id))

    # --- units ---

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Create the unit, unless one with the same sandbox, name and attempt exists; returns the unit's id.

        Raises NotFound if the sandbox does not exist or the image is not in the store, and Conflict if the
        sandbox is not ready.
        """
        return await self._call("create_unit", spec.name, lambda: self._create_unit(sandbox_id, spec))

    def _create_unit(self, sandbox_id: SandboxId, spec: UnitSpec) -> UnitId:
        sandbox = self.backend.sandbox(sandbox_id)
        if (spec.name, spec.attempt) not in sandbox.units:
            if sandbox.summary.state is not SandboxState.READY:
                raise Conflict(f"sandbox {sandbox_id} is not ready")
            if self.declared.images and self.backend.find_image(spec.image) is None:
                raise NotFound(f"image {spec.image.ref or spec.image.requested!r} is not in the store")
        return self.backend.add_unit(sandbox_id, spec)

    async def start_unit(self, unit_id: UnitId) -> None:
        """Start a created unit, or a machine that is off; does nothing if the unit runs.

        Raises Conflict for a unit that is not a machine and has exited.
        """
        await self._call("start_unit", unit_id, lambda: self._start_unit(unit_id))

    def _start_unit(self, unit_id: UnitId) -> None:
        unit = self.backend.unit(unit_id)
        if unit.summary.state.is_alive:
            return
        if unit.summary.state is UnitState.EXITED and not unit.is_machine:
            raise Conflict(f"unit {unit_id} has exited")
        self.backend.start_unit(unit_id)

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Send the stop signal, wait at most `grace_seconds` on the clock, then kill the unit.

        The unit's `Behaviour` decides how it reacts. Succeeds if the unit does not run or does not exist.
        """
        script = await self._enter("stop_unit", unit_id)
        unit = self.backend.units.get(unit_id)
        if unit is not None and unit.summary.state.is_alive:
            await self._stop(unit_id, unit, grace_seconds)
        await self.scripts.play(script, after_effect=True)

    async def _stop(self, unit_id: UnitId, unit: FakeUnit, grace_seconds: float) -> None:
        behaviour = unit.behaviour
        obeys = not behaviour.ignores_stop and behaviour.stop_seconds < max(grace_seconds, 1e-9)
        wait = behaviour.stop_seconds if obeys else grace_seconds
        if wait > 0:
            await self.clock.sleep(wait)
        if unit_id in self.backend.units:
            self.backend.exit_unit(
                unit_id, behaviour.stop_exit_code if obeys and grace_seconds > 0 else KILLED
            )

    async def remove_unit(self, unit_id: UnitId) -> None:
        """Remove the unit in any state; succeeds if the unit does not exist."""
        await self._call("remove_unit", unit_id, lambda: self.backend.drop_unit(unit_id))

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        """Return the units whose labels contain every pair of `match`."""
        return await self._call("list_units", "", lambda: self._shuffled(self.backend.find_units(match)))

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Return the status of one unit. Raises NotFound."""
        return await self._call("unit_status", unit_id, lambda: self.backend.unit_status(unit_id))

    # --- images ---

    async def store_info(self) -> StoreInfo:
        """Return the store's id, and one file system whose used bytes are the total size of the images."""
        return await self._call("store_info", "", self._store_info)

    def _store_info(self) -> StoreInfo:
        used = sum(image.size_bytes for image in self.backend.images.values())
        filesystem = ImageFilesystem(mountpoint="/", used_bytes=used, at_ns=self.backend.now_ns())
        return StoreInfo(id=StoreId(f"fake:{self.name}"), filesystems=(filesystem,))

    async def list_images(self) -> Sequence[ImageStatus]:
        """Return all images of the store."""
        return await self._call("list_images", "", lambda: list(self.backend.images.values()))

    async def find_image(self, image: ImageSpec) -> ImageStatus | None:
        """Return the image; None if it is not in the store."""
        return await self._call("find_image", image.requested, lambda: self.backend.find_image(image))

    async def pull_image(
        self,
        image: ImageSpec,
        auth: ImageAuth | None,
        sandbox: SandboxSpec | None,
        progress: Callable[[PullProgress], None] | None = None,
    ) -> str:
        """Put the image into the store; returns the image's reference.

        Raises NotFound if the backend has a `registry` without this image.
        """
        return await self._call("pull_image", image.requested, lambda: self._pull(image, progress))

    def _pull(self, image: ImageSpec, progress: Callable[[PullProgress], None] | None) -> str:
        registry = self.backend.registry
        if registry is not None and image.requested not in registry:
            raise NotFound(f"image {image.requested!r} is not in the registry")
        size = 1 << 20 if registry is None else registry[image.requested]
        status = self.backend.find_image(image) or self.backend.add_image(image.requested, size_bytes=size)
        if progress is not None:
            progress(PullProgress(done_bytes=size, total_bytes=size, message="done"))
        return status.ref

    async def remove_image(self, image: ImageSpec) -> None:
        """Remove the image with all its tags; succeeds if the image does not exist."""
        await self._call("remove_image", image.requested, lambda: self._remove_image(image))

    def _remove_image(self, image: ImageSpec) -> None:
        status = self.backend.find_image(image)
        if status is not None:
            del self.backend.images[status.id]

    # --- events, stats, logs ---

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """Return the stream of events from this call on; it ends when the backend is killed."""
        self.counts["events"] += 1
        if not self.backend.alive:
            raise Unavailable(f"runtime {self.name} does not answer")
        return self.backend.subscribe()

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Return the usage of the units that run or are frozen and match, as their `Behaviour` says.

        A hibernated unit uses no memory.

        `match`: labels and values that a unit must have.
        """
        return await self._call("list_unit_stats", "", lambda: self._stats(match))

    def _stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        now_ns = self.backend.now_ns()
        return [
            UnitStats(
                id=unit_id,
                uid=unit.summary.uid,
                name=unit.summary.name,
                at_ns=now_ns,
                cpu_usage_nano_cores=unit.behaviour.cpu_nano_cores,
                cpu_usage_core_ns=unit.behaviour.cpu_nano_cores * (now_ns - unit.started_at_ns) // 10**9,
                memory_working_set_bytes=_memory_of(unit),
                memory_usage_bytes=_memory_of(unit),
            )
            for unit_id, unit in self.backend.units.items()
            if _is_measured(unit) and match.items() <= unit.summary.labels.items()
        ]

    async def reopen_log(self, unit_id: UnitId) -> None:
        """Create the unit's log file if it is missing. Nothing else is needed, since every write opens it by name."""
        await self._call("reopen_log", unit_id, lambda: self._reopen(unit_id))

    def _reopen(self, unit_id: UnitId) -> None:
        unit = self._alive(unit_id)
        if unit.log_path:
            Path(unit.log_path).touch()

    async def log_stream(self, unit_id: UnitId) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the unit's output since the last call, all of it as stdout, then end."""
        unit = self.backend.unit(unit_id)
        data = bytes(unit.log)
        unit.log.clear()
        if data:
            yield "stdout", data

    # --- streams ---

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run `exec_handler` to its end and return its output and exit code.

        Raises Conflict if the unit does not run, and TimedOut after `timeout_seconds` (0: no limit).
        """
        await self._enter("exec_sync", unit_id)
        self._alive(unit_id)
        session = FakeSession()
        await session.close_stdin()
        try:
            async with asyncio.timeout(timeout_seconds or None):
                exit_code = await self._exec_handler(unit_id, command, session)
        except TimeoutError as error:
            raise TimedOut(f"command {list(command)} ran longer than {timeout_seconds} s") from error
        session.finish(exit_code)
        output: dict[Channel, bytes] = {Channel.STDOUT: b"", Channel.STDERR: b""}
        async for channel, data in session.output():
            output[channel] += data
        return ExecResult(stdout=output[Channel.STDOUT], stderr=output[Channel.STDERR], exit_code=exit_code)

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> Session:
        """Start `exec_handler` in a task and return the session with its streams.

        Raises Conflict if the unit does not run.
        """
        await self._enter("exec", unit_id)
        self._alive(unit_id)
        session = FakeSession()
        if not request.stdin:
            await session.close_stdin()
        session.task = asyncio.get_running_loop().create_task(
            self._run_exec(unit_id, request.command, session), name=f"fake-exec-{unit_id}"
        )
        return session

    async def _run_exec(self, unit_id: UnitId, command: Sequence[str], session: FakeSession) -> None:
        session.finish(await self._exec_handler(unit_id, command, session))

    async def attach(self, unit_id: UnitId, request: StreamRequest) -> Session:
        """Return a session that echoes its input, as a process running ``cat`` would."""
        await self._enter("attach", unit_id)
        self._alive(unit_id)
        return FakeSession(echo=True)

    async def port_forward(self, sandbox_id: SandboxId, port: int) -> Session:
        """Return a session that echoes its input, as an echo server in the pod would.

        Raises Conflict if the sandbox is not ready.
        """
        await self._enter("port_forward", sandbox_id)
        if self.backend.sandbox(sandbox_id).summary.state is not SandboxState.READY:
            raise Conflict(f"sandbox {sandbox_id} is not ready")
        return FakeSession(echo=True)

    # --- resize, standby, checkpoint ---

    async def update_resources(self, unit_id: UnitId, resources: Resources) -> None:
        """Set the unit's resources; `unit_status` shows the new values at once."""
        await self._call(
            "update_resources", unit_id, lambda: setattr(self._alive(unit_id), "resources", resources)
        )

    async def freeze(self, unit_id: UnitId) -> None:
        """Change the unit's state from RUNNING to PAUSED; does nothing if it is PAUSED.

        Raises Conflict in other states.
        """
        await self._move("freeze", unit_id, {UnitState.RUNNING}, UnitState.PAUSED)

    async def thaw(self, unit_id: UnitId) -> None:
        """Change the unit's state from PAUSED or SUSPENDED to RUNNING; does nothing if it is RUNNING.

        Raises Conflict in other states.
        """
        await self._move("thaw", unit_id, {UnitState.PAUSED, UnitState.SUSPENDED}, UnitState.RUNNING)

    async def hibernate(self, unit_id: UnitId) -> None:
        """Change the unit's state from RUNNING or PAUSED to SUSPENDED; does nothing if it is SUSPENDED.

        Raises Conflict in other states.
        """
        await self._move("hibernate", unit_id, {UnitState.RUNNING, UnitState.PAUSED}, UnitState.SUSPENDED)

    async def checkpoint(self, unit_id: UnitId, path: str, timeout_seconds: float) -> None:
        """Write a small file to `path`. Raises Conflict if the unit does not run."""
        await self._call("checkpoint", unit_id, lambda: self._checkpoint(unit_id, path))

    def _checkpoint(self, unit_id: UnitId, path: str) -> None:
        self._alive(unit_id)
        Path(path).write_bytes(b"checkpoint of " + unit_id.encode() + b"\n")

    def _shuffled(self, listed: list[S]) -> list[S]:
        if self._shuffle is not None:
            self._shuffle.shuffle(listed)
        return listed


async def run_fake_command(_unit_id: UnitId, command: Sequence[str], session: FakeSession) -> int:
    """Simulate a command in a unit and return its exit code; 127 for an unknown command.

    Known are ``true``, ``false``, ``echo``, ``cat``, ``sleep``, ``sh -c "exit N"`` and
    ``sh -c "echo TEXT >&2"``.
    """
    match list(command):
        case ["true"]:
            return 0
        case ["false"]:
            return 1
        case ["echo", *words]:
            session.send(Channel.STDOUT, " ".join(words).encode() + b"\n")
            return 0
        case ["cat"]:
            while data := await session.read_stdin():
                session.send(Channel.STDOUT, data)
            return 0
        case ["sleep", seconds]:
            await asyncio.sleep(float(seconds))
            return 0
        case ["sh", "-c", script] if script.startswith("exit "):
            return int(script.removeprefix("exit "))
        case ["sh", "-c", script] if script.startswith("echo ") and script.endswith(" >&2"):
            session.send(Channel.STDERR, script[5:-4].encode() + b"\n")
            return 0
    session.send(Channel.STDERR, f"fake: {command[0] if command else ''}: not found\n".encode())
    return 127


def _is_measured(unit: FakeUnit) -> bool:
    return unit.summary.state is UnitState.RUNNING or (unit.summary.state.is_alive and not unit.is_machine)


def _memory_of(unit: FakeUnit) -> int:
    return unit.behaviour.memory_bytes if unit.summary.state is not UnitState.SUSPENDED else 0
