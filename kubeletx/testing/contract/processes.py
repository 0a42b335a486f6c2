"""Contract of runtimes: what a process gets at its start."""

from __future__ import annotations

import os

import msgspec
import pytest

from kubeletx.api import (
    InvalidPod,
    LogMode,
    Machine,
    Process,
    Runtime,
    UnitSpec,
    UnitState,
    Unsupported,
)

from .base import ContractBase, Pod, needs_processes, running
from .failures import about


class ProcessContract(ContractBase):
    """Tests of arguments, working directory, environment and log, and of units that are refused."""

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

    @about("create_unit")
    async def test_without_images_a_process_starts_in_the_root_directory(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        needs_no_image(runtime)
        spec = with_process(running(unit_spec, "directory", 'echo "in $PWD"'), working_dir="")
        await pod.wait_output(await pod.start(spec), spec, "in /\n")

    @about("create_unit")
    async def test_a_unit_without_a_log_path_runs_and_writes_no_log_file(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        needs_processes(runtime)
        unit_id = await pod.start(msgspec.structs.replace(exiting_spec, log_path=""))
        assert (await pod.wait_state(unit_id, UnitState.EXITED)).exit_code == 7
        assert not os.listdir(pod.spec.log_directory)


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
