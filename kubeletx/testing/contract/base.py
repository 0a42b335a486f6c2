"""Fixtures and helpers that all test classes of the runtime contract share."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import pytest_asyncio

from kubeletx.api import (
    KubeletxError,
    LogMode,
    Nic,
    Process,
    Runtime,
    SandboxId,
    SandboxSpec,
    SupportsImages,
    SupportsLogStream,
    UnitId,
    UnitSpec,
    UnitState,
    UnitStatus,
)
from kubeletx.pods.logs.format import log_path as agent_log_path

from ..specs import sandbox_spec as make_sandbox_spec
from ..specs import unit_spec as make_unit_spec
from .calls import CheckedRuntime, PluginCalls, PluginFault
from .failures import explained
from .shared import Maker, NewObject, SuiteBase

T = TypeVar("T")

PATIENCE_SECONDS = 20.0
LOOK_EVERY_SECONDS = 0.02

RUN = "trap 'exit 0' TERM; sleep 1000 & wait"
EXIT = "echo hello; echo oops >&2; exit 7"
IGNORE = "trap '' TERM; while :; do sleep 0.2; done"
CHATTER = "trap 'exit 0' TERM; while :; do echo tick; sleep 0.1; done"
FORK = (
    "(trap '' TERM; while :; do echo tick; sleep 0.1; done) & trap 'exit 0' TERM; while :; do sleep 0.2; done"
)

_numbers = itertools.count(1)


class Pod:
    """The sandbox of one test, with helpers for its units (containers or machines)."""

    def __init__(self, runtime: Runtime, spec: SandboxSpec, sandbox_id: SandboxId) -> None:
        """`spec`: the spec from which the sandbox was made. `sandbox_id`: the id of the sandbox."""
        self.runtime, self.spec, self.id = runtime, spec, sandbox_id

    async def create(self, spec: UnitSpec) -> UnitId:
        """Pull the unit's image if the runtime has an image store, then create the unit; returns the unit's id.

        The unit's log path is the path that the agent uses, such as ``main/0.log``.
        """
        spec = await with_image(self.runtime, spec, self.spec)
        return await self.runtime.create_unit(self.id, self.with_log_path(spec), self.spec)

    async def start(self, spec: UnitSpec) -> UnitId:
        """Create a unit with `create` and start it; returns its id."""
        unit_id = await self.create(spec)
        await self.runtime.start_unit(unit_id)
        return unit_id

    async def wait_state(self, unit_id: UnitId, *states: UnitState) -> UnitStatus:
        """Wait until the unit is in one of `states`, and return its status.

        Fails the test after `PATIENCE_SECONDS`.
        """

        async def look() -> UnitStatus | None:
            status = await self.runtime.unit_status(unit_id)
            return status if status.summary.state in states else None

        return await eventually(look, f"unit {unit_id} in one of {[s.value for s in states]}")

    def with_log_path(self, spec: UnitSpec) -> UnitSpec:
        """Return `spec` with the log path of the agent; unchanged if it has no log path."""
        if not spec.log_path:
            return spec
        path = agent_log_path(spec.name, spec.attempt, self.runtime.traits().log_mode)
        return msgspec.structs.replace(spec, log_path=path)

    def log_path(self, spec: UnitSpec) -> Path:
        """Return the path at which the unit's log file is expected."""
        return Path(self.spec.log_directory) / self.with_log_path(spec).log_path

    async def wait_output(self, unit_id: UnitId, spec: UnitSpec, text: str) -> None:
        """Wait until the unit has printed `text`. Reads the log file, or the stream of log mode STREAM."""
        mode, path, read = self.runtime.traits().log_mode, self.log_path(spec), bytearray()

        async def look() -> bool | None:
            if mode is LogMode.STREAM:
                stream = supported(self.runtime, SupportsLogStream).log_stream(unit_id)
                read.extend(b"".join([data async for _, data in stream]))
            elif path.exists():
                read[:] = path.read_bytes()
            return text.encode() in read or None

        await eventually(look, lambda: f"{text!r} in the output of the unit; it has {bytes(read[-300:])!r}")


class ContractBase(SuiteBase):
    """Base class of the runtime contract's test classes, with the fixtures that plugin authors define or override."""

    @pytest.fixture
    def make_runtime(self) -> Callable[[], Runtime]:
        """Function that returns a new runtime object at each call, not opened yet. You must override this.

        All these runtimes must use the same backend, since a second call simulates a restart of the agent.
        """
        # A fixture cannot be abstract: pytest would leave a class with one uncollected and say nothing.
        raise NotImplementedError("override the fixture make_runtime in your subclass of RuntimeContract")

    @pytest.fixture
    def new_runtime(self, make_runtime: Callable[[], Runtime], maker: Maker) -> NewRuntime:
        """The function of `make_runtime`, with time limits for all calls of the runtimes that it returns.

        Skips the test if an earlier test of the class could not open the runtime.
        """
        return NewRuntime(make_runtime, Runtime, maker, CheckedRuntime)

    @pytest_asyncio.fixture
    async def runtime(self, new_runtime: NewRuntime) -> AsyncIterator[Runtime]:
        """The runtime under test, opened; closed after the test."""
        runtime = await new_runtime.opened()
        yield runtime
        with explained("the runtime closes after the test", new_runtime.calls):
            await runtime.close()

    @pytest.fixture
    def sandbox_spec(self, tmp_path: Path) -> SandboxSpec:
        """Spec of a sandbox whose pod no other test uses. Its log directory is a temporary directory of the test."""
        logs = tmp_path / "pod-logs"
        logs.mkdir()
        name = f"contract-{os.getpid()}-{next(_numbers)}"
        return make_sandbox_spec(name, log_directory=str(logs))

    @pytest.fixture
    def unit_spec(self) -> UnitSpec:
        """Spec of a unit named ``main`` that runs until it gets the stop signal. Override it to change the image."""
        return make_unit_spec("main", command=("sh", "-c", RUN), log_path="main.log")

    @pytest.fixture
    def exiting_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """Spec of a unit that prints ``hello`` to stdout and ``oops`` to stderr, and exits with code 7."""
        return running(unit_spec, "exits", EXIT)

    @pytest.fixture
    def stubborn_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """Spec of a unit that ignores the stop signal."""
        return running(unit_spec, "stubborn", IGNORE)

    @pytest.fixture
    def chatty_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """Spec of a unit that prints ``tick`` repeatedly."""
        return running(unit_spec, "chatty", CHATTER)

    @pytest.fixture
    def forking_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """Spec of a unit with a child process that prints ``tick`` repeatedly and ignores the stop signal."""
        return running(unit_spec, "forking", FORK)

    @pytest.fixture
    def interactive_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """Spec of a unit that has a stdin and prints everything that it reads from it (``cat``)."""
        spec = running(unit_spec, "interactive", "exec cat")
        if not isinstance(spec.detail, Process):
            return spec
        return msgspec.structs.replace(spec, detail=msgspec.structs.replace(spec.detail, stdin=True))

    @pytest.fixture
    def echo_server(self, unit_spec: UnitSpec) -> tuple[UnitSpec, int]:
        """Spec of a unit that sends back what it receives on a port, and that port.

        The default needs an image with busybox.
        """
        return running(unit_spec, "server", "exec nc -ll -p 7777 -e cat"), 7777

    @pytest.fixture
    def extra_nic(self) -> Nic:
        """Network interface that tests attach to a unit. Override it if your runtime needs the name of a network."""
        return Nic(name="eth9")

    @pytest.fixture
    def missing_image(self) -> str:
        """An image reference that cannot be pulled."""
        return "localhost:1/no/such-image:v0"

    @pytest_asyncio.fixture
    async def pod(self, runtime: Runtime, sandbox_spec: SandboxSpec) -> AsyncIterator[Pod]:
        """A sandbox made from `sandbox_spec`; it is removed after the test."""
        pod = Pod(runtime, sandbox_spec, await runtime.create_sandbox(sandbox_spec))
        yield pod
        with explained("the sandbox is stopped and removed after the test", calls_of(runtime)):
            await sweep(runtime, pod.id)


class NewRuntime(NewObject[Runtime]):
    """Makes runtimes under test with the author's function `make_runtime`."""

    async def opened(self) -> Runtime:
        """Return a new runtime that is open."""
        runtime = self()
        try:
            with explained("the runtime opens", self.calls, "open"):
                await runtime.open()
        except BaseException:
            self.give_up()
            raise
        return runtime


def calls_of(runtime: Runtime) -> PluginCalls | None:
    """Return the recorded calls of a runtime under test; None for a runtime that is not checked."""
    return runtime.calls if isinstance(runtime, CheckedRuntime) else None


@contextlib.asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Context manager that fails the test if the block takes longer than `seconds`. `what`: what it waits for."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise PluginFault(f"waited {seconds:g} s for {what}") from error


def running(spec: UnitSpec, name: str, script: str) -> UnitSpec:
    """Return a copy of `spec` with the name `name`, whose process runs the shell script `script`.

    If the unit is not a process, only the name is changed.
    """
    if not isinstance(spec.detail, Process):
        return msgspec.structs.replace(spec, name=name)
    detail = msgspec.structs.replace(spec.detail, command=("sh", "-c", script), args=())
    return msgspec.structs.replace(spec, name=name, detail=detail, log_path=f"{name}.log")


def supported(runtime: Runtime, protocol: type[T]) -> T:
    """Return the runtime's implementation of `protocol`, one of its capabilities.

    Skips the test if the runtime does not have it, since capabilities are optional.
    """
    capability = runtime.capability(protocol)
    if capability is None:
        pytest.skip(f"{protocol.__name__} is not declared")
    return capability


def needs_processes(runtime: Runtime) -> None:
    """Skip the test if units of this runtime are not processes."""
    if "process" not in runtime.traits().details:
        pytest.skip("the runtime declares no detail `process`")


def needs_feature(runtime: Runtime, feature: str) -> None:
    """Skip the test if the runtime declares that it refuses `feature`, one of `kubeletx.api.FEATURES`."""
    if feature in runtime.traits().refuses:
        pytest.skip(f"the runtime refuses {feature}")


async def with_image(runtime: Runtime, spec: UnitSpec, sandbox: SandboxSpec) -> UnitSpec:
    """Pull the unit's image unless it exists, and return `spec` with the image's reference.

    Returns `spec` unchanged if the runtime has no image store.
    """
    images = runtime.capability(SupportsImages)
    if images is None or not runtime.traits().images:
        return spec
    stored = await images.find_image(spec.image)
    ref = stored.ref if stored else await images.pull_image(spec.image, None, sandbox)
    return msgspec.structs.replace(spec, image=msgspec.structs.replace(spec.image, ref=ref))


async def eventually(
    look: Callable[[], Awaitable[T | None]],
    what: str | Callable[[], str],
    *,
    seconds: float | None = None,
) -> T:
    """Call `look` repeatedly until it returns something other than None, and return that.

    Fails the test after `seconds`; None: `PATIENCE_SECONDS`. `what`: the awaited state, for the failure message, or a function that returns it.
    """
    seconds = PATIENCE_SECONDS if seconds is None else seconds
    deadline = asyncio.get_running_loop().time() + seconds
    while (result := await look()) is None:
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"waited {seconds:g} s for {what if isinstance(what, str) else what()}")
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    return result


async def sweep(runtime: Runtime, sandbox_id: SandboxId) -> None:
    """Stop and remove a sandbox at the end of a test.

    Errors are ignored, since the test may have broken the runtime.
    """
    with contextlib.suppress(KubeletxError):
        await runtime.stop_sandbox(sandbox_id)
        await runtime.remove_sandbox(sandbox_id)
