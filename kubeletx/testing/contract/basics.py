"""Contract of runtimes: connection, version, health, and consistent declarations."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubeletx.api import (
    CAPABILITIES,
    FEATURES,
    LogMode,
    Runtime,
    SupportsLogReopen,
    SupportsLogStream,
    UnitSpec,
    UnitState,
)

from .base import ContractBase, Pod


class BasicContract(ContractBase):
    """Tests of a runtime before any pod exists, and across a restart of the agent."""

    async def test_it_opens_again_after_it_was_opened(self, runtime: Runtime) -> None:
        await runtime.open()
        assert (await runtime.health()).runtime_ready

    async def test_it_closes_twice(self, make_runtime: Callable[[], Runtime]) -> None:
        runtime = make_runtime()
        await runtime.open()
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

    async def test_every_declared_capability_answers_its_protocol(self, runtime: Runtime) -> None:
        for protocol in CAPABILITIES:
            found: object = runtime.capability(protocol)
            if found is not None:
                assert isinstance(found, protocol), protocol.__name__

    async def test_its_traits_use_known_words(self, runtime: Runtime) -> None:
        traits = runtime.traits()
        assert traits.details
        assert set(traits.refuses) <= FEATURES
        assert msgspec.json.decode(msgspec.json.encode(traits), type=type(traits)) == traits

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
        self, make_runtime: Callable[[], Runtime], runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        before = await runtime.unit_status(unit_id)
        survive = runtime.traits().units_survive_agent
        if survive:
            await runtime.close()
        again = make_runtime()
        await again.open()
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
