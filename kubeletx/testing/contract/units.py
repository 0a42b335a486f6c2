"""Contract of runtimes: units (containers and machines)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from kubeletx.api import (
    EnvVar,
    Mount,
    NotFound,
    Runtime,
    SandboxId,
    SandboxSpec,
    UnitId,
    UnitSpec,
    UnitState,
    names,
)

from . import base
from .base import (
    ContractBase,
    Pod,
    needs_feature,
    needs_processes,
    running,
    sweep,
    with_image,
    within,
)
from .failures import about

NO_UNIT = UnitId("no-such-unit")
KILLED = 137
OVERSPEND = "ulimit -t 1; while :; do :; done"
"""The kernel kills it. Signals other than SIGKILL do not end the first process of a PID namespace."""


class UnitContract(ContractBase):
    """Tests of creating, starting, stopping, removing and listing units, and of their status."""

    async def test_a_created_unit_waits_to_be_started(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.create(unit_spec)
        (listed,) = [u for u in await runtime.list_units({}) if u.id == unit_id]
        assert listed.state is UnitState.CREATED
        assert (listed.sandbox_id, listed.uid) == (pod.id, pod.spec.uid)
        assert (listed.name, listed.attempt) == (unit_spec.name, unit_spec.attempt)
        assert listed.created_at_ns > 0
        assert unit_spec.labels.items() <= listed.labels.items()

    async def test_the_same_key_again_is_the_same_unit(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.create(unit_spec)
        assert await pod.create(unit_spec) == unit_id
        await runtime.start_unit(unit_id)
        assert await pod.create(unit_spec) == unit_id
        assert len([u for u in await runtime.list_units({}) if u.uid == pod.spec.uid]) == 1

    async def test_creating_in_an_unknown_sandbox_is_not_found(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        spec = await with_image(runtime, unit_spec, pod.spec)
        with pytest.raises(NotFound):
            await runtime.create_unit(SandboxId("no-such-sandbox"), spec, pod.spec)

    async def test_a_started_unit_runs_and_may_be_started_again(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.start(unit_spec)
        status = await pod.wait_state(unit_id, UnitState.RUNNING)
        assert status.started_at_ns >= status.summary.created_at_ns > 0
        assert status.finished_at_ns == 0
        assert status.exit_code is None
        await runtime.start_unit(unit_id)
        assert (await runtime.unit_status(unit_id)).started_at_ns == status.started_at_ns

    async def test_starting_the_unknown_is_not_found(self, runtime: Runtime) -> None:
        with pytest.raises(NotFound):
            await runtime.start_unit(NO_UNIT)

    async def test_status_of_the_unknown_is_not_found(self, runtime: Runtime) -> None:
        with pytest.raises(NotFound):
            await runtime.unit_status(NO_UNIT)

    async def test_a_unit_that_ends_reports_its_exit_code(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        unit_id = await pod.start(exiting_spec)
        status = await pod.wait_state(unit_id, UnitState.EXITED)
        assert status.exit_code == 7
        assert status.finished_at_ns >= status.started_at_ns > 0
        assert status.reason == "Error"

    @about("unit_status")
    async def test_every_exit_code_is_reported_as_it_is(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        for attempt, code in enumerate((1, 126, 128, 255)):
            spec = running(unit_spec, "exits-with", f"exit {code}")
            unit_id = await pod.start(msgspec.structs.replace(spec, attempt=attempt))
            assert (await pod.wait_state(unit_id, UnitState.EXITED)).exit_code == code

    @about("unit_status")
    async def test_the_exit_code_of_a_unit_that_a_signal_ends_is_128_and_the_signal(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        unit_id = await pod.start(running(unit_spec, "overspends", OVERSPEND))
        assert (await pod.wait_state(unit_id, UnitState.EXITED)).exit_code == 128 + signal.SIGKILL

    async def test_a_unit_that_succeeds_is_completed(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        unit_id = await pod.start(running(unit_spec, "succeeds", "exit 0"))
        status = await pod.wait_state(unit_id, UnitState.EXITED)
        assert status.exit_code == 0
        assert status.reason == "Completed"

    @about("list_units")
    async def test_list_and_status_agree_in_every_state(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.create(unit_spec)

        async def agree(state: UnitState) -> None:
            (listed,) = [unit for unit in await runtime.list_units({}) if unit.id == unit_id]
            status = await runtime.unit_status(unit_id)
            assert listed.state is state
            # containerd has an image's digest in its list, and the id of the image's configuration in the status
            same = msgspec.structs.replace(status.summary, image=listed.image, image_id=listed.image_id)
            assert same == listed

        await agree(UnitState.CREATED)
        await runtime.start_unit(unit_id)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await agree(UnitState.RUNNING)
        await runtime.stop_unit(unit_id, 5)
        await agree(UnitState.EXITED)

    async def test_stopping_asks_first_and_does_not_wait_longer_than_needed(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await asyncio.sleep(0.5)  # process 1 of a container ignores the signal until it has set its handler
        async with within(
            3 * base.PATIENCE_SECONDS, "stop_unit to return after the unit has ended by itself"
        ):
            await runtime.stop_unit(unit_id, 120)
        status = await runtime.unit_status(unit_id)
        assert status.summary.state is UnitState.EXITED
        assert status.finished_at_ns > 0

    async def test_stopping_twice_and_stopping_the_unknown_succeed(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.start(unit_spec)
        await runtime.stop_unit(unit_id, 5)
        await runtime.stop_unit(unit_id, 5)
        await runtime.stop_unit(NO_UNIT, 5)

    async def test_a_stubborn_unit_is_killed_after_the_grace_period(
        self, runtime: Runtime, pod: Pod, stubborn_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        unit_id = await pod.start(stubborn_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await asyncio.sleep(0.3)
        await runtime.stop_unit(unit_id, 1)
        status = await runtime.unit_status(unit_id)
        assert (status.summary.state, status.exit_code) == (UnitState.EXITED, KILLED)

    async def test_without_grace_a_unit_is_killed_at_once(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await runtime.stop_unit(unit_id, 0)
        assert (await runtime.unit_status(unit_id)).exit_code == KILLED

    async def test_a_unit_that_was_never_started_can_be_stopped_and_removed(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.create(unit_spec)
        await runtime.stop_unit(unit_id, 1)
        await runtime.remove_unit(unit_id)
        assert unit_id not in [u.id for u in await runtime.list_units({})]

    async def test_a_removed_unit_is_gone(self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec) -> None:
        unit_id = await pod.start(unit_spec)
        await runtime.stop_unit(unit_id, 5)
        await runtime.remove_unit(unit_id)
        with pytest.raises(NotFound):
            await runtime.unit_status(unit_id)
        assert unit_id not in [u.id for u in await runtime.list_units({})]
        with pytest.raises(NotFound):
            await runtime.start_unit(unit_id)
        await runtime.remove_unit(unit_id)
        await runtime.remove_unit(NO_UNIT)

    async def test_the_key_of_a_removed_unit_makes_a_unit_without_its_past(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        unit_id = await pod.start(exiting_spec)
        await pod.wait_state(unit_id, UnitState.EXITED)
        await runtime.remove_unit(unit_id)
        status = await runtime.unit_status(await pod.create(exiting_spec))
        assert status.summary.state is UnitState.CREATED
        assert (status.started_at_ns, status.finished_at_ns, status.exit_code) == (0, 0, None)

    async def test_the_next_attempt_is_another_unit_beside_the_ended_one(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        first = await pod.start(exiting_spec)
        await pod.wait_state(first, UnitState.EXITED)
        second = await pod.create(msgspec.structs.replace(exiting_spec, attempt=exiting_spec.attempt + 1))
        assert second != first
        assert (await runtime.unit_status(first)).exit_code == 7

    async def test_lists_of_units_are_filtered_by_every_label(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.create(unit_spec)
        (key, value), *_ = unit_spec.labels.items()
        assert unit_id in [u.id for u in await runtime.list_units({key: value})]
        assert unit_id not in [u.id for u in await runtime.list_units({key: "other"})]
        assert unit_id not in [u.id for u in await runtime.list_units({key: value, "other": "x"})]

    @about("list_units")
    async def test_the_labels_by_which_the_agent_finds_its_own_are_listed_and_matched(
        self, runtime: Runtime, sandbox_spec: SandboxSpec, unit_spec: UnitSpec
    ) -> None:
        own = {names.AGENT_ID: "c0ffee00-1111-4222-8333-444455556666", names.RUNTIME_NAME: "contract-a.b"}
        of_pod = {**own, **sandbox_spec.labels}
        of_unit = {**of_pod, **unit_spec.labels}
        sandbox = msgspec.structs.replace(sandbox_spec, labels=of_pod)
        pod = Pod(runtime, sandbox, await runtime.create_sandbox(sandbox))
        try:
            unit_id = await pod.create(msgspec.structs.replace(unit_spec, labels=of_unit))
            sandboxes, units = await runtime.list_sandboxes(own), await runtime.list_units(own)
            assert [(sandbox.id, of_pod.items() <= sandbox.labels.items()) for sandbox in sandboxes] == [
                (pod.id, True)
            ]
            assert [(unit.id, of_unit.items() <= unit.labels.items()) for unit in units] == [(unit_id, True)]
            other = {**own, names.AGENT_ID: "another-agent"}
            assert [*await runtime.list_sandboxes(other), *await runtime.list_units(other)] == []
        finally:
            await sweep(runtime, pod.id)

    async def test_several_units_share_one_sandbox(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_feature(runtime, "several-units")
        first = await pod.start(unit_spec)
        second = await pod.start(msgspec.structs.replace(unit_spec, name="second", log_path="second.log"))
        assert first != second
        await runtime.stop_unit(first, 5)
        assert (await runtime.unit_status(second)).summary.state is UnitState.RUNNING

    async def test_environment_and_mounts_reach_the_unit(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec, tmp_path: Path
    ) -> None:
        needs_processes(runtime)
        needs_feature(runtime, "mounts")
        shared = tmp_path / "shared"
        shared.mkdir()
        spec = msgspec.structs.replace(
            running(unit_spec, "environment", 'echo "$GREETING" > /shared/answer'),
            environment=(EnvVar(name="GREETING", value="good day = $HOME"),),
            mounts=(Mount(source=str(shared), target="/shared", name="shared"),),
        )
        unit_id = await pod.start(spec)
        await pod.wait_state(unit_id, UnitState.EXITED)
        assert (shared / "answer").read_text() == "good day = $HOME\n"

    async def test_environment_reaches_the_unit_and_the_last_of_two_equal_names_counts(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        spec = msgspec.structs.replace(
            running(unit_spec, "environment", 'echo "$GREETING"'),
            environment=(
                EnvVar(name="GREETING", value="good morning"),
                EnvVar(name="GREETING", value="good day = $HOME"),
            ),
        )
        await pod.wait_output(await pod.start(spec), spec, "good day = $HOME\n")
