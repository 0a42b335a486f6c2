"""Contract of runtimes: sandboxes."""

from __future__ import annotations

import msgspec
import pytest

from kubeletx.api import (
    NamespaceMode,
    NotFound,
    Runtime,
    SandboxId,
    SandboxSpec,
    SandboxState,
    UnitSpec,
    UnitState,
)

from .base import ContractBase, Pod, needs_feature, sweep

NO_SANDBOX = SandboxId("no-such-sandbox")


class SandboxContract(ContractBase):
    """Tests of creating, stopping, removing and listing sandboxes, and of their status."""

    async def test_a_new_sandbox_is_ready_and_listed_with_its_identity(
        self, runtime: Runtime, pod: Pod
    ) -> None:
        (listed,) = [s for s in await runtime.list_sandboxes({}) if s.id == pod.id]
        spec = pod.spec
        assert (listed.uid, listed.name, listed.namespace, listed.attempt) == (
            spec.uid,
            spec.name,
            spec.namespace,
            spec.attempt,
        )
        assert listed.state is SandboxState.READY
        assert listed.created_at_ns > 0
        assert spec.labels.items() <= listed.labels.items()

    async def test_annotations_come_back(self, runtime: Runtime, sandbox_spec: SandboxSpec) -> None:
        spec = msgspec.structs.replace(
            sandbox_spec, annotations={"kubeletx.io/source": "file", "a": "ü \n b"}
        )
        sandbox_id = await runtime.create_sandbox(spec)
        try:
            (listed,) = [s for s in await runtime.list_sandboxes({}) if s.id == sandbox_id]
            assert spec.annotations.items() <= listed.annotations.items()
        finally:
            await sweep(runtime, sandbox_id)

    async def test_the_same_key_again_is_the_same_sandbox(self, runtime: Runtime, pod: Pod) -> None:
        assert await runtime.create_sandbox(pod.spec) == pod.id
        assert len([s for s in await runtime.list_sandboxes({}) if s.uid == pod.spec.uid]) == 1

    async def test_another_attempt_is_another_sandbox(self, runtime: Runtime, pod: Pod) -> None:
        await runtime.stop_sandbox(pod.id)
        second = await runtime.create_sandbox(msgspec.structs.replace(pod.spec, attempt=pod.spec.attempt + 1))
        try:
            assert second != pod.id
            attempts = {s.id: s.attempt for s in await runtime.list_sandboxes({}) if s.uid == pod.spec.uid}
            assert attempts == {pod.id: pod.spec.attempt, second: pod.spec.attempt + 1}
        finally:
            await sweep(runtime, second)

    async def test_lists_are_filtered_by_every_label(self, runtime: Runtime, pod: Pod) -> None:
        (key, value), *_ = pod.spec.labels.items()
        assert pod.id in [s.id for s in await runtime.list_sandboxes(pod.spec.labels)]
        assert pod.id in [s.id for s in await runtime.list_sandboxes({key: value})]
        assert pod.id not in [s.id for s in await runtime.list_sandboxes({key: value, "other": "x"})]
        assert pod.id not in [s.id for s in await runtime.list_sandboxes({key: "other"})]

    async def test_status_repeats_the_summary(self, runtime: Runtime, pod: Pod) -> None:
        status = await runtime.sandbox_status(pod.id)
        assert status.summary in list(await runtime.list_sandboxes({}))

    async def test_a_sandbox_with_a_pod_network_has_an_address(self, runtime: Runtime, pod: Pod) -> None:
        needs_feature(runtime, "pod-network")
        if not runtime.traits().brings_pod_network:
            pytest.skip("the host brings the pod network")
        status = await runtime.sandbox_status(pod.id)
        assert not status.host_network
        assert status.ips
        assert all("/" not in ip for ip in status.ips)

    async def test_a_sandbox_on_the_node_network_has_no_address_of_its_own(
        self, runtime: Runtime, sandbox_spec: SandboxSpec
    ) -> None:
        needs_feature(runtime, "host-network")
        on_node = msgspec.structs.replace(sandbox_spec.namespaces, network=NamespaceMode.NODE)
        spec = msgspec.structs.replace(sandbox_spec, namespaces=on_node, hostname="")
        sandbox_id = await runtime.create_sandbox(spec)
        try:
            status = await runtime.sandbox_status(sandbox_id)
            assert status.host_network
            assert status.ips == ()
        finally:
            await sweep(runtime, sandbox_id)

    async def test_status_of_an_unknown_sandbox_is_not_found(self, runtime: Runtime) -> None:
        with pytest.raises(NotFound):
            await runtime.sandbox_status(NO_SANDBOX)

    async def test_a_stopped_sandbox_is_not_ready_and_still_listed(self, runtime: Runtime, pod: Pod) -> None:
        await runtime.stop_sandbox(pod.id)
        await runtime.stop_sandbox(pod.id)
        assert (await runtime.sandbox_status(pod.id)).summary.state is SandboxState.NOT_READY
        assert pod.id in [s.id for s in await runtime.list_sandboxes({})]

    async def test_stopping_a_sandbox_stops_what_runs_in_it(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.start(unit_spec)
        await runtime.stop_sandbox(pod.id)
        await pod.wait_state(unit_id, UnitState.EXITED)

    async def test_removing_takes_the_units_along(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        unit_id = await pod.start(unit_spec)
        await runtime.remove_sandbox(pod.id)
        assert pod.id not in [s.id for s in await runtime.list_sandboxes({})]
        assert unit_id not in [u.id for u in await runtime.list_units({})]
        with pytest.raises(NotFound):
            await runtime.sandbox_status(pod.id)
        await runtime.remove_sandbox(pod.id)
        await runtime.stop_sandbox(pod.id)

    async def test_stopping_and_removing_the_unknown_succeeds(self, runtime: Runtime) -> None:
        await runtime.stop_sandbox(NO_SANDBOX)
        await runtime.remove_sandbox(NO_SANDBOX)

    async def test_a_removed_key_can_be_used_again(self, runtime: Runtime, pod: Pod) -> None:
        await runtime.remove_sandbox(pod.id)
        sandbox_id = await runtime.create_sandbox(pod.spec)
        try:
            assert (await runtime.sandbox_status(sandbox_id)).summary.state is SandboxState.READY
        finally:
            await sweep(runtime, sandbox_id)
