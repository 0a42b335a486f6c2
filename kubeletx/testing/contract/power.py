"""Contract of runtimes: standby, machine power, snapshots, interfaces and checkpoints."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kubeletx.api import (
    AlreadyExists,
    KubeletxError,
    Machine,
    Nic,
    NotFound,
    Process,
    Runtime,
    SupportsCheckpoint,
    SupportsDefinition,
    SupportsMachine,
    SupportsNics,
    SupportsScreenshot,
    SupportsSnapshots,
    SupportsStandby,
    UnitId,
    UnitSpec,
    UnitState,
)

from .base import ContractBase, NewRuntime, Pod, eventually, running, supported
from .ends import ASKED


class PowerContract(ContractBase):
    """Tests of paused and suspended units, of checkpoints, and of the capabilities that only machines have."""

    async def test_a_frozen_unit_is_held_and_thaws(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        standby = supported(runtime, SupportsStandby)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await standby.freeze(unit_id)
        await standby.freeze(unit_id)
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.PAUSED
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
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.SUSPENDED
        await standby.thaw(unit_id)
        await pod.wait_state(unit_id, UnitState.RUNNING)

    async def test_lists_and_a_new_runtime_object_show_a_unit_as_it_rests_and_thaw_it(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec, new_runtime: NewRuntime
    ) -> None:
        standby = supported(runtime, SupportsStandby)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        for park, state in ((standby.freeze, UnitState.PAUSED), (standby.hibernate, UnitState.SUSPENDED)):
            await park(unit_id)
            await park(unit_id)
            assert await listed_state(runtime, unit_id) is state
        later = await new_runtime.opened()
        assert await listed_state(later, unit_id) is UnitState.SUSPENDED
        thawed = supported(later, SupportsStandby)
        await thawed.thaw(unit_id)
        assert await listed_state(later, unit_id) is UnitState.RUNNING
        await thawed.freeze(unit_id)
        await later.close()
        last = await new_runtime.opened()
        assert await listed_state(last, unit_id) is UnitState.PAUSED
        assert (await last.unit_status(unit_id)).summary.state is UnitState.PAUSED
        await supported(last, SupportsStandby).thaw(unit_id)
        assert await listed_state(last, unit_id) is UnitState.RUNNING
        await last.close()

    async def test_a_sandbox_with_a_frozen_unit_can_be_stopped_and_removed(
        self, runtime: Runtime, pod: Pod, stubborn_spec: UnitSpec
    ) -> None:
        standby = supported(runtime, SupportsStandby)
        unit_id = await pod.start(stubborn_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await standby.freeze(unit_id)
        await runtime.stop_sandbox(pod.id)
        await runtime.remove_sandbox(pod.id)
        with pytest.raises(NotFound):
            await runtime.unit_status(unit_id)

    async def test_frozen_and_hibernated_units_end_in_order_within_their_grace_period(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        standby = supported(runtime, SupportsStandby)
        spec = running(unit_spec, "asked", ASKED)
        for attempt, park in enumerate((standby.freeze, standby.hibernate)):
            attempted = unit_spec_attempt(spec, attempt)
            unit_id = await pod.start(attempted)
            await pod.wait_state(unit_id, UnitState.RUNNING)
            if isinstance(attempted.detail, Process):
                await pod.wait_output(unit_id, attempted, "ready\n")
            await park(unit_id)
            await runtime.stop_unit(unit_id, 30)
            status = await runtime.unit_status(unit_id)
            assert (status.summary.state, status.exit_code) == (UnitState.EXITED, 0), (
                "a frozen unit is thawed before its stop signal; this one ends with code 0 on that signal"
            )

    async def test_a_unit_that_has_ended_cannot_be_frozen_and_an_unknown_one_is_not_found(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        standby = supported(runtime, SupportsStandby)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await standby.freeze(unit_id)
        await runtime.stop_unit(unit_id, 0)
        for park in (standby.freeze, standby.hibernate):
            with pytest.raises(KubeletxError):
                await park(unit_id)
            assert (await runtime.unit_status(unit_id)).summary.state is UnitState.EXITED
        await runtime.remove_unit(unit_id)
        for park in (standby.freeze, standby.hibernate):
            with pytest.raises(NotFound):
                await park(unit_id)

    async def test_standby_and_the_verbs_of_machines_lead_to_the_same_states(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        standby, machine = supported(runtime, SupportsStandby), supported(runtime, SupportsMachine)
        unit_id = await pod.start(as_machine(unit_spec))
        await pod.wait_state(unit_id, UnitState.RUNNING)
        for park, same, wake, state in (
            (standby.freeze, machine.pause, machine.resume, UnitState.PAUSED),
            (machine.pause, standby.freeze, standby.thaw, UnitState.PAUSED),
            (standby.hibernate, machine.suspend, machine.resume, UnitState.SUSPENDED),
            (machine.suspend, standby.hibernate, standby.thaw, UnitState.SUSPENDED),
        ):
            await park(unit_id)
            await same(unit_id)
            assert await listed_state(runtime, unit_id) is state
            await wake(unit_id)
            await pod.wait_state(unit_id, UnitState.RUNNING)

    async def test_a_machine_pauses_suspends_and_resumes(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        machine = supported(runtime, SupportsMachine)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        for verb, state in ((machine.pause, UnitState.PAUSED), (machine.suspend, UnitState.SUSPENDED)):
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

    async def test_a_machine_is_switched_off_from_every_state_and_the_same_unit_starts_again(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        machine = supported(runtime, SupportsMachine)
        unit_id = await pod.start(as_machine(unit_spec))
        await pod.wait_state(unit_id, UnitState.RUNNING)
        for verb in (None, machine.pause, machine.suspend):
            if verb is not None:
                await verb(unit_id)
            await machine.power_off(unit_id, 2)
            await machine.power_off(unit_id, 2)
            await pod.wait_state(unit_id, UnitState.EXITED)
            await runtime.start_unit(unit_id)
            await pod.wait_state(unit_id, UnitState.RUNNING)

    async def test_snapshots_are_listed_restored_and_forgotten(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        snapshots = supported(runtime, SupportsSnapshots)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        made = await snapshots.create_snapshot(unit_id, "first", True)
        assert (made.name, made.with_memory) == ("first", True)
        with pytest.raises(AlreadyExists):
            await snapshots.create_snapshot(unit_id, "first", True)
        assert [snapshot.name for snapshot in await snapshots.list_snapshots(unit_id)] == ["first"]
        with pytest.raises(NotFound):
            await snapshots.restore_snapshot(unit_id, "no-such-snapshot")
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.RUNNING
        await snapshots.restore_snapshot(unit_id, "first")
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await snapshots.delete_snapshot(unit_id, "first")
        await snapshots.delete_snapshot(unit_id, "first")
        assert list(await snapshots.list_snapshots(unit_id)) == []

    async def test_a_network_interface_comes_and_goes_twice_over(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec, extra_nic: Nic
    ) -> None:
        nics = supported(runtime, SupportsNics)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        before = {nic.name for nic in await nics.list_nics(unit_id)}
        await nics.attach_nic(unit_id, extra_nic)
        await nics.attach_nic(unit_id, extra_nic)
        attached = [nic.name for nic in await nics.list_nics(unit_id)]
        assert sorted(attached) == sorted({*before, extra_nic.name})
        await nics.detach_nic(unit_id, extra_nic.name)
        await nics.detach_nic(unit_id, extra_nic.name)

        async def is_gone() -> bool | None:
            return {nic.name for nic in await nics.list_nics(unit_id)} == before or None

        await eventually(is_gone, "the interface to be gone")

    async def test_a_screenshot_is_a_picture(self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec) -> None:
        pictures = supported(runtime, SupportsScreenshot)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        assert (await pictures.screenshot(unit_id)).startswith(b"\x89PNG\r\n")

    async def test_a_unit_has_a_definition_to_read(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        definitions = supported(runtime, SupportsDefinition)
        unit_id = await pod.start(unit_spec)
        assert await definitions.definition(unit_id)

    async def test_a_checkpoint_is_a_file_and_the_unit_goes_on(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec, tmp_path: Path
    ) -> None:
        checkpoints = supported(runtime, SupportsCheckpoint)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await checkpoints.checkpoint(unit_id, str(tmp_path / "state.tar"), 30)
        assert (tmp_path / "state.tar").stat().st_size > 0
        assert (await runtime.unit_status(unit_id)).summary.state is UnitState.RUNNING


def as_machine(spec: UnitSpec) -> UnitSpec:
    """Return `spec` with its process replaced by a machine; unchanged if the unit is not a process."""
    return msgspec.structs.replace(spec, detail=Machine()) if isinstance(spec.detail, Process) else spec


async def listed_state(runtime: Runtime, unit_id: UnitId) -> UnitState:
    """Return the state that `list_units` shows for the unit."""
    (summary,) = [unit for unit in await runtime.list_units({}) if unit.id == unit_id]
    return summary.state


def unit_spec_attempt(spec: UnitSpec, attempt: int) -> UnitSpec:
    """Return `spec` with its attempt number raised by `attempt`."""
    return msgspec.structs.replace(spec, attempt=spec.attempt + attempt)
