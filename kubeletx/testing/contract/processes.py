"""Contract of runtimes: how processes start, stop, and end together with their unit and sandbox."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kubeletx.api import (
    InvalidPod,
    KubeletxError,
    LogMode,
    Machine,
    Process,
    Runtime,
    UnitId,
    UnitSpec,
    UnitState,
    Unsupported,
)

from .base import ContractBase, Pod, eventually, needs_feature, needs_processes, running, within
from .failures import about

SLOW = "trap 'sleep 1; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
SIGNALLED = "trap 'exit 5' USR1; trap 'exit 6' TERM; echo ready; while :; do sleep 0.1; done"
QUIET_SECONDS = 0.5


class ProcessContract(ContractBase):
    """Tests of arguments, working directory and stop signal, and that no process of an ended unit is left."""

    @about("create_unit")
    async def test_arguments_and_working_directory_reach_the_process(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        spec = running(unit_spec, "arguments", 'echo "$PWD|$0|$1|$2|$#"')
        detail = with_process(spec, args=("zero", "one", "two words"), working_dir="/tmp")
        await pod.wait_output(await pod.start(detail), detail, "/tmp|zero|one|two words|2\n")

    @about("create_unit")
    async def test_a_kind_of_unit_that_is_not_declared_is_refused(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        details = runtime.traits().details
        if {"process", "machine"} <= set(details):
            pytest.skip("the runtime declares both processes and machines")
        detail = Process(command=("true",)) if "machine" in details else Machine()
        with pytest.raises((InvalidPod, Unsupported)):
            await pod.create(msgspec.structs.replace(unit_spec, detail=detail))

    @about("create_unit")
    async def test_without_images_a_unit_without_a_command_is_refused(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_no_image(runtime)
        with pytest.raises((InvalidPod, Unsupported)):
            await pod.create(with_process(unit_spec, command=(), args=()))

    @about("create_unit")
    async def test_without_images_arguments_alone_are_the_command(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        needs_no_image(runtime)
        detail = exiting_spec.detail
        assert isinstance(detail, Process)
        unit_id = await pod.start(with_process(exiting_spec, command=(), args=detail.command))
        assert (await pod.wait_state(unit_id, UnitState.EXITED)).exit_code == 7

    @about("create_unit")
    async def test_the_environment_has_a_path_and_nothing_of_the_agent(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        needs_processes(runtime)
        monkeypatch.setenv("KUBELETX_CONTRACT", "of-the-agent")
        spec = running(unit_spec, "variables", "env; echo end of variables")
        unit_id = await pod.start(spec)
        await pod.wait_output(unit_id, spec, "end of variables")
        if runtime.traits().log_mode is LogMode.STREAM:
            return  # the output can be read once
        text = pod.log_path(spec).read_text()
        assert "PATH=/" in text
        assert "HOME=/" in text
        assert "of-the-agent" not in text, "the process has the environment of the agent"

    @about("stop_unit")
    async def test_a_process_that_needs_time_to_stop_gets_its_grace_period(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        spec = running(unit_spec, "slow", SLOW)
        unit_id = await pod.start(spec)
        await pod.wait_output(unit_id, spec, "ready\n")
        await runtime.stop_unit(unit_id, 20)
        status = await runtime.unit_status(unit_id)
        assert status.exit_code == 3, (
            f"the process needs 1 s after the stop signal to exit with code 3, and has 20 s of grace; its exit code is "
            f"{status.exit_code}"
        )

    @about("stop_unit")
    async def test_the_grace_period_ends_with_a_kill_and_is_no_longer_than_given(
        self, runtime: Runtime, pod: Pod, stubborn_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        unit_id = await pod.start(stubborn_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await asyncio.sleep(0.3)
        async with within(
            10, "stop_unit with a grace period of 1 s for a process that ignores the stop signal"
        ):
            await runtime.stop_unit(unit_id, 1)
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.EXITED

    @about("stop_unit")
    async def test_the_stop_signal_of_the_spec_is_sent(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        needs_feature(runtime, "stop-signal")
        spec = with_process(running(unit_spec, "signalled", SIGNALLED), stop_signal="SIGUSR1")
        unit_id = await pod.start(spec)
        await pod.wait_output(unit_id, spec, "ready\n")
        await runtime.stop_unit(unit_id, 20)
        exit_code = (await runtime.unit_status(unit_id)).exit_code
        assert exit_code == 5, (
            f"the process exits with code 5 after SIGUSR1 and 6 after SIGTERM; it is {exit_code}"
        )

    @about("stop_unit")
    async def test_a_stopped_unit_leaves_no_process_running(
        self, runtime: Runtime, pod: Pod, forking_spec: UnitSpec
    ) -> None:
        unit_id = await printing(runtime, pod, forking_spec)
        await runtime.stop_unit(unit_id, 5)
        await is_quiet(pod, forking_spec)

    @about("remove_unit")
    async def test_removing_a_unit_that_runs_is_refused_or_ends_its_process(
        self, runtime: Runtime, pod: Pod, chatty_spec: UnitSpec
    ) -> None:
        unit_id = await printing(runtime, pod, chatty_spec)
        try:
            await runtime.remove_unit(unit_id)
        except KubeletxError:
            return
        await is_quiet(pod, chatty_spec)

    @about("stop_sandbox")
    async def test_a_stopped_sandbox_leaves_no_process_running(
        self, runtime: Runtime, pod: Pod, chatty_spec: UnitSpec
    ) -> None:
        unit_id = await printing(runtime, pod, chatty_spec)
        await runtime.stop_sandbox(pod.id)
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.EXITED
        await is_quiet(pod, chatty_spec)

    @about("remove_sandbox")
    async def test_a_removed_sandbox_leaves_no_process_running(
        self, runtime: Runtime, pod: Pod, chatty_spec: UnitSpec
    ) -> None:
        await printing(runtime, pod, chatty_spec)
        await runtime.remove_sandbox(pod.id)
        await is_quiet(pod, chatty_spec)


def with_process(spec: UnitSpec, **fields: object) -> UnitSpec:
    """Return `spec` with other fields of its process; unchanged if the unit is not a process."""
    if not isinstance(spec.detail, Process):
        return spec
    return msgspec.structs.replace(spec, detail=msgspec.structs.replace(spec.detail, **fields))


def needs_no_image(runtime: Runtime) -> None:
    """Skip the test if units of this runtime are not processes, or have images."""
    needs_processes(runtime)
    if runtime.traits().images:
        pytest.skip("the runtime has images, whose commands are the defaults")


async def printing(runtime: Runtime, pod: Pod, spec: UnitSpec) -> UnitId:
    """Start a unit that prints all the time, and return its id once it has printed.

    Skips the test if the runtime runs no processes or writes no log file.
    """
    needs_processes(runtime)
    if runtime.traits().log_mode is LogMode.STREAM:
        pytest.skip("the runtime offers its logs as a stream")
    unit_id = await pod.start(spec)
    await pod.wait_output(unit_id, spec, "tick")
    return unit_id


async def is_quiet(pod: Pod, spec: UnitSpec) -> None:
    """Wait until the log file of the unit does not grow any more, or fail: then a process still runs."""
    path = pod.log_path(spec)

    def size() -> int:
        return path.stat().st_size if path.exists() else -1

    async def look() -> bool | None:
        before = size()
        await asyncio.sleep(QUIET_SECONDS)
        return True if size() == before else None

    await eventually(look, f"the end of all processes: one still writes to {path}", seconds=5)
