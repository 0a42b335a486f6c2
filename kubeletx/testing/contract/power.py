"""Contract: standby verbs, machine verbs, checkpoints."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...api import Runtime, SupportsCheckpoint, SupportsMachine, SupportsStandby, UnitSpec, UnitState
from .base import ContractBase, Pod, supported


class PowerContract(ContractBase):
    """States beyond running and exited."""

    async def test_a_frozen_unit_is_held_and_thaws(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        standby = supported(runtime, SupportsStandby)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await standby.freeze(unit_id)
        await standby.freeze(unit_id)
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.HELD
        await standby.thaw(unit_id)
        await standby.thaw(unit_id)
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.RUNNING

    async def test_a_hibernated_unit_is_parked_and_comes_back(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        standby = supported(runtime, SupportsStandby)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await standby.freeze(unit_id)
        await standby.hibernate(unit_id)
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.PARKED
        await standby.thaw(unit_id)
        await pod.wait_state(unit_id, UnitState.RUNNING)

    async def test_frozen_and_hibernated_units_can_be_stopped(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        standby = supported(runtime, SupportsStandby)
        for attempt, park in enumerate((standby.freeze, standby.hibernate)):
            unit_id = await pod.start(unit_spec_attempt(unit_spec, attempt))
            await pod.wait_state(unit_id, UnitState.RUNNING)
            await park(unit_id)
            await runtime.stop_unit(unit_id, 2)
            assert (await runtime.unit_status(unit_id)).summary.state is UnitState.EXITED

    async def test_a_machine_pauses_suspends_and_resumes(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        machine = supported(runtime, SupportsMachine)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        for verb, state in ((machine.pause, UnitState.HELD), (machine.suspend, UnitState.PARKED)):
            await verb(unit_id)
            await pod.wait_state(unit_id, state)
            await machine.resume(unit_id)
            await pod.wait_state(unit_id, UnitState.RUNNING)

    async def test_a_reboot_is_counted_inside_the_same_unit(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        machine = supported(runtime, SupportsMachine)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await machine.reboot(unit_id, 0)
        status = await pod.wait_state(unit_id, UnitState.RUNNING)
        assert status.restarts >= 1

    async def test_a_checkpoint_is_a_file_and_the_unit_goes_on(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec, tmp_path: Path
    ) -> None:
        checkpoints = supported(runtime, SupportsCheckpoint)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await checkpoints.checkpoint(unit_id, str(tmp_path / "state.tar"), 30)
        assert (tmp_path / "state.tar").stat().st_size > 0
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.RUNNING


def unit_spec_attempt(spec: UnitSpec, attempt: int) -> UnitSpec:
    """`spec` as another attempt."""
    return msgspec.structs.replace(spec, attempt=spec.attempt + attempt)
