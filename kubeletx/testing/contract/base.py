"""Fixtures and helpers that all parts of the contract suite share."""

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
    Nic,
    Process,
    Runtime,
    SandboxId,
    SandboxSpec,
    SupportsImages,
    UnitId,
    UnitSpec,
    UnitState,
    UnitStatus,
)

from ..specs import sandbox_spec as make_sandbox_spec
from ..specs import unit_spec as make_unit_spec

T = TypeVar("T")

PATIENCE_SECONDS = 20.0
LOOK_EVERY_SECONDS = 0.02

RUN = "trap 'exit 0' TERM; sleep 1000 & wait"
EXIT = "echo hello; echo oops >&2; exit 7"
IGNORE = "trap '' TERM; while :; do sleep 0.2; done"
CHATTER = "trap 'exit 0' TERM; while :; do echo tick; sleep 0.1; done"

_numbers = itertools.count(1)


class Pod:
    """The sandbox of one test, with helpers for its units."""

    def __init__(self, runtime: Runtime, spec: SandboxSpec, sandbox_id: SandboxId) -> None:
        """`spec`: the spec from which the sandbox was made. `sandbox_id`: its id."""
        self.runtime, self.spec, self.id = runtime, spec, sandbox_id

    async def create(self, spec: UnitSpec) -> UnitId:
        """Pull the unit's image if the runtime keeps images, then create the unit; returns its id."""
        return await self.runtime.create_unit(
            self.id, await with_image(self.runtime, spec, self.spec), self.spec
        )

    async def start(self, spec: UnitSpec) -> UnitId:
        """Create a unit like `create` and start it; returns its id."""
        unit_id = await self.create(spec)
        await self.runtime.start_unit(unit_id)
        return unit_id

    async def wait_state(self, unit_id: UnitId, *states: UnitState) -> UnitStatus:
        """Wait until the unit is in one of `states`; returns its status then.

        Fails the test after a while.
        """

        async def look() -> UnitStatus | None:
            status = await self.runtime.unit_status(unit_id)
            return status if status.summary.state in states else None

        return await eventually(look, f"unit {unit_id} in one of {[s.value for s in states]}")

    def log_path(self, spec: UnitSpec) -> Path:
        """Return the path at which the unit's log file is expected."""
        return Path(self.spec.log_directory) / spec.log_path


class ContractBase:
    """Base class of the parts of the runtime suite: the fixtures that a plugin author defines or overrides."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_runtime(self) -> Callable[[], Runtime]:
        """Function that makes a runtime object, not yet open, for the backend under test.

        You must override this.
        """
        # A fixture cannot be abstract: pytest would leave a class with one uncollected and say nothing.
        raise NotImplementedError("override the fixture make_runtime in your subclass of RuntimeContract")

    @pytest_asyncio.fixture
    async def runtime(self, make_runtime: Callable[[], Runtime]) -> AsyncIterator[Runtime]:
        """The runtime under test, opened; closed after the test."""
        runtime = make_runtime()
        await runtime.open()
        yield runtime
        await runtime.close()

    @pytest.fixture
    def sandbox_spec(self, tmp_path: Path) -> SandboxSpec:
        """A spec of a pod that no other test uses; its log directory is a temporary one of the test."""
        logs = tmp_path / "pod-logs"
        logs.mkdir()
        name = f"contract-{os.getpid()}-{next(_numbers)}"
        return make_sandbox_spec(name, log_directory=str(logs))

    @pytest.fixture
    def unit_spec(self) -> UnitSpec:
        """A unit named ``main`` that runs until it is asked to stop; override to change the image."""
        return make_unit_spec("main", command=("sh", "-c", RUN), log_path="main.log")

    @pytest.fixture
    def exiting_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """A unit that prints hello to stdout, oops to stderr, and exits with 7."""
        return running(unit_spec, "exits", EXIT)

    @pytest.fixture
    def stubborn_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """A unit that ignores the stop signal."""
        return running(unit_spec, "stubborn", IGNORE)

    @pytest.fixture
    def chatty_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """A unit that prints ``tick`` repeatedly."""
        return running(unit_spec, "chatty", CHATTER)

    @pytest.fixture
    def interactive_spec(self, unit_spec: UnitSpec) -> UnitSpec:
        """A unit that answers its own stdin, line by line."""
        spec = running(unit_spec, "interactive", "exec cat")
        if not isinstance(spec.detail, Process):
            return spec
        return msgspec.structs.replace(spec, detail=msgspec.structs.replace(spec.detail, stdin=True))

    @pytest.fixture
    def echo_server(self, unit_spec: UnitSpec) -> tuple[UnitSpec, int]:
        """A unit that sends back what it receives on a port, and this port; the default needs busybox."""
        return running(unit_spec, "server", "exec nc -ll -p 7777 -e cat"), 7777

    @pytest.fixture
    def extra_nic(self) -> Nic:
        """A network interface to attach; override it to name a network that the runtime has."""
        return Nic(name="eth9")

    @pytest.fixture
    def missing_image(self) -> str:
        """An image reference that cannot be pulled."""
        return "localhost:1/no/such-image:v0"

    @pytest_asyncio.fixture
    async def pod(self, runtime: Runtime, sandbox_spec: SandboxSpec) -> AsyncIterator[Pod]:
        """A sandbox made from `sandbox_spec`; removed afterwards."""
        pod = Pod(runtime, sandbox_spec, await runtime.create_sandbox(sandbox_spec))
        yield pod
        await sweep(runtime, pod.id)


def running(spec: UnitSpec, name: str, script: str) -> UnitSpec:
    """Return `spec` under another name, running a shell script.

    If it is no process, only the name is changed.
    """
    if not isinstance(spec.detail, Process):
        return msgspec.structs.replace(spec, name=name)
    detail = msgspec.structs.replace(spec.detail, command=("sh", "-c", script), args=())
    return msgspec.structs.replace(spec, name=name, detail=detail, log_path=f"{name}.log")


def supported(runtime: Runtime, protocol: type[T]) -> T:
    """Return the capability; skips the test if the runtime does not declare it, since capabilities are
    optional.
    """
    found = runtime.capability(protocol)
    if found is None:
        pytest.skip(f"{protocol.__name__} is not declared")
    return found


def needs_processes(runtime: Runtime) -> None:
    """Skip the test if units of this runtime are not processes."""
    if "process" not in runtime.traits().details:
        pytest.skip("the runtime declares no detail `process`")


def needs_feature(runtime: Runtime, feature: str) -> None:
    """Skip the test if the runtime declares that it refuses `feature`."""
    if feature in runtime.traits().refuses:
        pytest.skip(f"the runtime refuses {feature}")


async def with_image(runtime: Runtime, spec: UnitSpec, sandbox: SandboxSpec) -> UnitSpec:
    """Return `spec` with its image pulled and referenced, if the runtime keeps images; else unchanged."""
    images = runtime.capability(SupportsImages)
    if images is None or not runtime.traits().images:
        return spec
    found = await images.find_image(spec.image)
    ref = found.ref if found else await images.pull_image(spec.image, None, sandbox)
    return msgspec.structs.replace(spec, image=msgspec.structs.replace(spec.image, ref=ref))


async def eventually(
    look: Callable[[], Awaitable[T | None]], what: str, *, seconds: float = PATIENCE_SECONDS
) -> T:
    """Call `look` until it returns something other than None, and return that.

    Fails the test after `seconds`, naming `what`.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while (found := await look()) is None:
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"waited {seconds:g} s for {what}")
        await asyncio.sleep(LOOK_EVERY_SECONDS)
    return found


async def sweep(runtime: Runtime, sandbox_id: SandboxId) -> None:
    """Stop and remove a sandbox at the end of a test; errors are ignored, since the test may have broken the
    runtime.
    """
    with contextlib.suppress(KubeletxError):
        await runtime.stop_sandbox(sandbox_id)
        await runtime.remove_sandbox(sandbox_id)
