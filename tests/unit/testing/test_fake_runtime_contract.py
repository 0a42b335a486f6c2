"""The contract suite on the fake, once with everything and once with as little as is allowed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kubeletx.api import CAPABILITIES, LogMode, Process, Runtime, Traits, UnitId, UnitSpec
from kubeletx.testing import Behaviour, FakeBackend, FakeClock, FakeRuntime
from kubeletx.testing.contract import RuntimeContract
from kubeletx_testing.waiting import let_others_work


def behave(spec: UnitSpec) -> Behaviour:
    """What the suite's shell scripts would do."""
    match spec.name:
        case "exits":
            return Behaviour(runs_seconds=0, exit_code=7, stdout=b"hello\n", stderr=b"oops\n")
        case "succeeds":
            return Behaviour(runs_seconds=0)
        case "stubborn":
            return Behaviour(ignores_stop=True)
        case "environment":
            value = spec.environment[0].value + "\n"
            assert isinstance(spec.detail, Process)
            for mount in spec.mounts:
                with Path(mount.source, "answer").open("w") as file:
                    file.write(value)
            return Behaviour(runs_seconds=0, stdout=value.encode())
    return Behaviour(stop_exit_code=0)


class TestFakeRuntime(RuntimeContract):
    @pytest.fixture
    def make_runtime(self) -> Callable[[], Runtime]:
        backend = FakeBackend(
            clock=FakeClock(auto_advance=True), behave=behave, registry={"busybox": 4 << 20}
        )
        return lambda: FakeRuntime(backend=backend)

    @pytest.fixture
    async def chatty_spec(self, runtime: FakeRuntime, unit_spec: UnitSpec) -> AsyncIterator[UnitSpec]:
        async def tick() -> None:
            while True:
                await let_others_work()
                for unit_id, unit in runtime.backend.units.items():
                    if unit.summary.name == "main" and unit.summary.state.is_alive:
                        runtime.backend.write_log(UnitId(unit_id), b"tick\n")

        task = asyncio.create_task(tick())
        yield unit_spec
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class TestFakeRuntimeThatStreamsItsLogs(TestFakeRuntime):
    @pytest.fixture
    def make_runtime(self) -> Callable[[], Runtime]:
        backend = FakeBackend(clock=FakeClock(auto_advance=True), behave=behave)
        traits = Traits(images=False, log_mode=LogMode.STREAM)
        return lambda: FakeRuntime(backend=backend, traits=traits, without=CAPABILITIES[:7])
