"""Contract of runtimes: how processes stop, and end together with their unit and sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from kubeletx.api import KubeletxError, LogMode, NotFound, Runtime, UnitId, UnitSpec, UnitState, UnitStatus
from kubeletx.linux.processes import ENDED, read_stat

from .base import ContractBase, NewRuntime, Pod, eventually, needs_feature, needs_processes, running, within
from .failures import about
from .processes import with_process

SLOW = "trap 'sleep 1; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
ASKED = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
SIGNALLED = "trap 'exit 5' USR1; trap 'exit 6' TERM; echo ready; while :; do sleep 0.1; done"
QUIET_SECONDS = 0.5
KILLED = 137


class EndContract(ContractBase):
    """Tests of the stop signal and the grace period, and that no process of an ended unit is left."""

    @pytest.fixture
    def power_cut(self) -> Callable[[UnitId], Iterable[int]] | None:
        """Function that ends all processes of a unit as a power cut does: the backend cannot note their end.

        Override it if your runtime stores process ids. The function returns the ids of processes that have the stored
        ids afterwards, as other processes may after a boot. They must still run at the end of the test. None, the default:
        the test is skipped.
        """
        return None

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

    @about("stop_sandbox")
    async def test_a_stopped_sandbox_gives_its_units_no_grace_period(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        spec = running(unit_spec, "asked", ASKED)
        unit_id = await pod.start(spec)
        await pod.wait_output(unit_id, spec, "ready\n")
        await runtime.stop_sandbox(pod.id)
        exit_code = (await runtime.unit_status(unit_id)).exit_code
        assert exit_code == KILLED, (
            f"the process exits with code 0 after the stop signal and {KILLED} if it is killed; it is {exit_code}"
        )

    @about("remove_unit")
    async def test_removing_a_unit_that_runs_gives_it_no_grace_period(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        spec = running(unit_spec, "asked", ASKED)
        unit_id = await printing(runtime, pod, spec, "ready\n")
        try:
            await runtime.remove_unit(unit_id)
        except KubeletxError:
            return
        path = pod.log_path(spec)
        text = path.read_text() if path.exists() else ""
        assert "asked" not in text, "the process got the stop signal"

    @about("unit_status")
    async def test_after_a_power_cut_a_unit_has_ended_and_its_process_ids_belong_to_others(
        self,
        new_runtime: NewRuntime,
        runtime: Runtime,
        pod: Pod,
        unit_spec: UnitSpec,
        power_cut: Callable[[UnitId], Iterable[int]] | None,
    ) -> None:
        if power_cut is None:
            pytest.skip("the fixture power_cut is not defined")
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await runtime.close()
        others = list(power_cut(unit_id))
        again = await new_runtime.opened()

        async def look() -> UnitStatus | None:
            status = await again.unit_status(unit_id)
            return status if status.summary.state is UnitState.EXITED else None

        try:
            status = await eventually(look, "unit_status to report EXITED after a power cut", seconds=5)
            assert status.exit_code, "the end of the unit was not seen, so its exit code must not be 0"
            assert status.finished_at_ns >= status.started_at_ns > 0
            await again.stop_unit(unit_id, 1)
            await again.remove_unit(unit_id)
            with pytest.raises(NotFound):
                await again.unit_status(unit_id)
        finally:
            await again.remove_sandbox(pod.id)
            await again.close()
        await asyncio.sleep(QUIET_SECONDS)  # a process ends a moment after the signal
        ended = [pid for pid in others if not is_alive(pid)]
        assert not ended, f"processes {ended} have ended: they had the old process ids of the unit"


async def printing(runtime: Runtime, pod: Pod, spec: UnitSpec, text: str = "tick") -> UnitId:
    """Start a unit that prints `text`, and return its id once it has printed it.

    Skips the test if the runtime runs no processes or writes no log file.
    """
    needs_processes(runtime)
    if runtime.traits().log_mode is LogMode.STREAM:
        pytest.skip("the runtime offers its logs as a stream")
    unit_id = await pod.start(spec)
    await pod.wait_output(unit_id, spec, text)
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


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a process that has ended and was not waited for does not."""
    stat = read_stat(pid)
    return stat is not None and stat.state not in ENDED
