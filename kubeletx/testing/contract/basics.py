"""Contract of runtimes: connection, version, health, and consistent declarations."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path

import msgspec

from kubeletx.api import (
    CAPABILITIES,
    FEATURES,
    LogMode,
    Runtime,
    SupportsImages,
    SupportsLogReopen,
    SupportsLogStream,
    SupportsNetworkConfig,
    SupportsStandby,
    UnitSpec,
    UnitState,
)

from .base import ContractBase, NewRuntime, Pod, eventually, supported
from .calls import methods_of, plugin_of
from .failures import about


class BasicContract(ContractBase):
    """Tests of connection, version, health and declarations of a runtime, and of a restart of the agent."""

    async def test_it_opens_again_after_it_was_opened(self, runtime: Runtime) -> None:
        await runtime.open()
        assert (await runtime.health()).runtime_ready

    async def test_it_closes_twice(self, new_runtime: NewRuntime) -> None:
        runtime = await new_runtime.opened()
        await runtime.close()
        await runtime.close()

    async def test_its_version_names_it(self, runtime: Runtime) -> None:
        version = await runtime.version()
        assert version.name
        assert "://" not in version.name
        assert version.version

    async def test_it_is_healthy_and_says_why_not_otherwise(self, runtime: Runtime) -> None:
        health = await runtime.health()
        assert health.runtime_ready, health.message

    @about("capability")
    async def test_every_declared_capability_has_all_its_methods(self, runtime: Runtime) -> None:
        listed = getattr(plugin_of(runtime), "capabilities", ())
        for protocol in CAPABILITIES:
            capability: object = plugin_of(runtime.capability(protocol))
            if capability is None and protocol not in listed:
                continue
            owner = plugin_of(runtime) if capability is None else capability
            missing = [name for name in methods_of(protocol) if not callable(getattr(owner, name, None))]
            assert not missing, (
                f"{protocol.__name__} is declared, but {type(owner).__name__} has no {missing}"
            )
            assert capability is not None, (
                f"{protocol.__name__} is in `capabilities`, but capability() returns None"
            )

    async def test_it_takes_the_address_ranges_of_pods_again_and_again(self, runtime: Runtime) -> None:
        network = supported(runtime, SupportsNetworkConfig)
        for _ in range(2):
            await network.set_pod_cidrs(["192.0.2.0/24", "2001:db8:1::/64"])
        assert (await runtime.health()).runtime_ready

    async def test_its_traits_use_known_words(self, runtime: Runtime) -> None:
        traits = runtime.traits()
        assert traits.details
        assert set(traits.refuses) <= FEATURES
        assert msgspec.json.decode(msgspec.json.encode(traits), type=type(traits)) == traits

    @about("traits")
    async def test_its_traits_agree_with_each_other_and_with_its_capabilities(self, runtime: Runtime) -> None:
        traits = runtime.traits()
        if traits.images:
            assert runtime.capability(SupportsImages) is not None, (
                "Traits.images is True, but SupportsImages is not declared: write images=False"
            )
        if traits.brings_pod_network:
            assert "pod-network" not in traits.refuses, (
                "Traits.brings_pod_network is True, but Traits.refuses has pod-network"
            )
        if traits.standby_strategies:
            assert runtime.capability(SupportsStandby) is not None, (
                "Traits.standby_strategies is not empty, but SupportsStandby is not declared"
            )

    @about("close")
    async def test_closing_ends_the_tasks_of_the_runtime(
        self, new_runtime: NewRuntime, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        await pod.start(unit_spec)
        before = asyncio.all_tasks()
        again = await new_runtime.opened()
        await again.health()
        await again.close()

        async def look() -> bool | None:
            return not left_tasks(before) or None

        await eventually(
            look, lambda: f"the end of tasks that run after close: {left_tasks(before)}", seconds=5
        )

    @about("remove_unit")
    async def test_removed_units_leave_no_file_descriptor_open(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        async def use(attempt: int) -> None:
            unit_id = await pod.start(msgspec.structs.replace(unit_spec, attempt=attempt))
            await runtime.stop_unit(unit_id, 5)
            await runtime.remove_unit(unit_id)

        await use(0)  # libraries open descriptors at their first use
        before = open_descriptors()
        await use(1)
        await use(2)

        async def look() -> bool | None:
            gc.collect()  # closes what only a reference cycle holds
            return len(open_descriptors()) <= len(before) or None

        def left() -> str:
            descriptors = open_descriptors()
            names = [
                f"{number}: {descriptors[number]}" for number in sorted(descriptors.keys() - before.keys())
            ]
            return f"the descriptors to be closed that two removed units have left: {names}"

        await eventually(look, left, seconds=5)

    async def test_its_log_capabilities_fit_the_declared_log_mode(self, runtime: Runtime) -> None:
        mode = runtime.traits().log_mode
        if mode is LogMode.FILE:
            assert runtime.capability(SupportsLogReopen) is not None
        if mode is LogMode.STREAM:
            assert runtime.capability(SupportsLogStream) is not None

    async def test_what_it_reports_is_plain_data(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.start(unit_spec)
        for value in (
            await runtime.sandbox_status(pod.id),
            await runtime.unit_status(unit_id),
            await runtime.health(),
        ):
            assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value

    async def test_a_new_runtime_object_finds_what_runs(
        self, new_runtime: NewRuntime, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        before = await runtime.unit_status(unit_id)
        survive = runtime.traits().units_survive_agent
        if survive:
            await runtime.close()
        again = await new_runtime.opened()
        try:
            if survive:
                after = await again.unit_status(unit_id)
                assert after.summary == before.summary
                assert after.started_at_ns == before.started_at_ns
                assert pod.id in [s.id for s in await again.list_sandboxes({})]
                assert await again.create_sandbox(pod.spec) == pod.id
                await again.stop_unit(unit_id, 5)
                assert (await again.unit_status(unit_id)).summary.state is UnitState.EXITED
        finally:
            await again.remove_sandbox(pod.id)
            await again.close()


def left_tasks(before: set[asyncio.Task[object]]) -> list[str]:
    """Return the names of the tasks that run now and are not in `before`."""
    return sorted(task.get_name() for task in asyncio.all_tasks() - before if not task.done())


def open_descriptors() -> dict[int, str]:
    """Return the file descriptors that this process has open, with what they are open on."""
    descriptors = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the directory itself
            descriptors[int(entry.name)] = str(entry.readlink())
    return descriptors
