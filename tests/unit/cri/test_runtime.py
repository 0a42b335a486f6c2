"""`CriRuntime` on a scripted server: opening, idempotence, ownership."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import msgspec
import pytest

from kubeletx.api import (
    CAPABILITIES,
    AlreadyExists,
    Conflict,
    Internal,
    NotFound,
    SandboxId,
    SandboxState,
    SupportsCheckpoint,
    SupportsEvents,
    SupportsImages,
    SupportsNetworkConfig,
    Unavailable,
    UnitId,
    UnitState,
    names,
)
from kubeletx.cri import ContainerdRuntime, CriRuntime
from kubeletx.testing import sandbox_spec, unit_spec
from kubeletx_testing.cri_server import FakeCriServer

Code = grpc.StatusCode
MakeRuntime = Callable[..., CriRuntime]

SPEC = sandbox_spec("web", labels={names.AGENT_ID: "agent-1", names.POD_UID: "uid-web"})
UNIT = unit_spec("main", labels={names.AGENT_ID: "agent-1"})


async def test_nothing_is_known_before_it_was_reached(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime()
    with pytest.raises(Unavailable):
        runtime.traits()
    assert all(runtime.capability(protocol) is None for protocol in CAPABILITIES)


async def test_opening_fails_with_unavailable_while_there_is_no_server(
    server: FakeCriServer, make_runtime: MakeRuntime
) -> None:
    await server.stop()
    runtime = make_runtime()
    with pytest.raises(Unavailable):
        await runtime.open()
    await runtime.close()


async def test_a_closed_runtime_opens_again(runtime: CriRuntime) -> None:
    await runtime.close()
    with pytest.raises(Unavailable):
        await runtime.health()
    await runtime.open()
    assert (await runtime.health()).runtime_ready


async def test_an_old_server_gets_the_capabilities_it_has(runtime: CriRuntime) -> None:
    assert {p.__name__ for p in CAPABILITIES if runtime.capability(p)} == {
        "SupportsImages",
        "SupportsExec",
        "SupportsAttach",
        "SupportsPortForward",
        "SupportsStats",
        "SupportsLogReopen",
        "SupportsResize",
        "SupportsNetworkConfig",
        "SupportsCriPassthrough",
    }
    assert runtime.cgroup_driver() == "cgroupfs"


async def test_a_new_server_has_events_and_checkpoints_too_once_it_is_opened_again(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    server.model.unimplemented.clear()
    await runtime.open()
    assert runtime.capability(SupportsEvents) is not None
    checkpoint = runtime.capability(SupportsCheckpoint)
    assert checkpoint is not None
    with pytest.raises(NotFound):
        await checkpoint.checkpoint(UnitId("none"), "/tmp/x.tar", 1.5)
    assert server.last("CheckpointContainer").timeout == 2


async def test_the_ranges_of_pods_are_one_text_in_cri(server: FakeCriServer, runtime: CriRuntime) -> None:
    network = runtime.capability(SupportsNetworkConfig)
    assert network is not None
    await network.set_pod_cidrs(["10.1.2.0/24", "fd00::/64"])
    sent = server.last("UpdateRuntimeConfig").runtime_config.network_config.pod_cidr
    assert sent == "10.1.2.0/24,fd00::/64"


async def test_every_declared_capability_answers_its_protocol(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    server.model.unimplemented.clear()
    await runtime.open()
    for protocol in CAPABILITIES:
        found: object = runtime.capability(protocol)
        assert found is None or isinstance(found, protocol)


# --- creating ---


async def test_the_same_sandbox_key_again_returns_the_first_id(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    first = await runtime.create_sandbox(SPEC)
    assert await runtime.create_sandbox(SPEC) == first
    assert len(server.model.sandboxes) == 1
    other = await runtime.create_sandbox(msgspec.structs.replace(SPEC, attempt=1))
    assert other != first


async def test_a_sandbox_that_another_call_is_still_creating_is_unavailable_for_now(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    server.refuse(
        "RunPodSandbox", Code.UNKNOWN, 'name "web_default_uid-web_0" is reserved for "abc"', times=1
    )
    with pytest.raises(Unavailable, match="still creating"):
        await runtime.create_sandbox(SPEC)
    assert await runtime.create_sandbox(SPEC)


async def test_another_thing_that_exists_already_is_not_a_sandbox_in_creation(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    text = 'plugin type="ptp" failed (add): container veth name provided (eth0) already exists'
    server.refuse("RunPodSandbox", Code.UNKNOWN, text, times=1)
    with pytest.raises(Internal, match="eth0"):
        await runtime.create_sandbox(SPEC)


async def test_another_agent_s_sandbox_with_our_key_is_not_taken_over(runtime: CriRuntime) -> None:
    await runtime.create_sandbox(SPEC)
    theirs = msgspec.structs.replace(SPEC, labels={names.AGENT_ID: "agent-2"})
    with pytest.raises(AlreadyExists, match="another agent"):
        await runtime.create_sandbox(theirs)


async def test_a_create_whose_answer_was_lost_is_found_by_the_next_one(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    gate = server.hold("RunPodSandbox", after_effect=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await runtime.create_sandbox(SPEC)
    gate.set()
    sandbox_id = await runtime.create_sandbox(SPEC)
    assert list(server.model.sandboxes) == [sandbox_id]


async def test_a_refused_create_keeps_the_server_s_words(server: FakeCriServer, runtime: CriRuntime) -> None:
    server.refuse("RunPodSandbox", Code.UNKNOWN, "failed to setup network: no addresses left")
    with pytest.raises(Internal, match="no addresses left"):
        await runtime.create_sandbox(SPEC)


async def test_the_same_unit_key_again_returns_the_first_id(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    first = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    assert await runtime.create_unit(sandbox_id, UNIT, SPEC) == first
    second = await runtime.create_unit(sandbox_id, msgspec.structs.replace(UNIT, attempt=1), SPEC)
    assert second != first
    assert len(server.model.containers) == 2


async def test_a_unit_that_another_call_is_still_creating_is_unavailable_for_now(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    server.refuse("CreateContainer", Code.UNKNOWN, 'name "main" is reserved for "abc"', times=1)
    with pytest.raises(Unavailable, match="still creating"):
        await runtime.create_unit(sandbox_id, UNIT, SPEC)


async def test_a_unit_always_carries_its_pod_s_uid(server: FakeCriServer, runtime: CriRuntime) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    await runtime.create_unit(sandbox_id, UNIT, SPEC)
    (unit,) = await runtime.list_units({})
    assert unit.uid == SPEC.uid


# --- starting, stopping, removing ---


async def test_starting_a_running_unit_succeeds_and_an_ended_one_conflicts(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    unit_id = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    await runtime.start_unit(unit_id)
    await runtime.start_unit(unit_id)
    server.model.exit(unit_id, 3)
    with pytest.raises(Conflict):
        await runtime.start_unit(unit_id)


async def test_a_start_that_the_runtime_refuses_is_not_mistaken_for_a_running_unit(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    unit_id = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    server.refuse("StartContainer", Code.UNKNOWN, 'exec: "/nope": no such file or directory')
    with pytest.raises(Internal, match="/nope"):
        await runtime.start_unit(unit_id)


async def test_stopping_and_removing_what_is_gone_succeeds(runtime: CriRuntime) -> None:
    await runtime.stop_unit(UnitId("none"), 5)
    await runtime.remove_unit(UnitId("none"))
    await runtime.stop_sandbox(SandboxId("none"))
    await runtime.remove_sandbox(SandboxId("none"))


@pytest.mark.parametrize("ends", ["sandbox", "unit"])
@pytest.mark.parametrize("kind", [CriRuntime, ContainerdRuntime])
async def test_a_container_that_containerd_has_lost_is_removed_or_the_error_names_it(
    server: FakeCriServer, make_runtime: MakeRuntime, kind: type[CriRuntime], ends: str
) -> None:
    server.uuid = "1234"
    runtime = make_runtime(kind=kind)
    await runtime.open()
    sandbox_id = await runtime.create_sandbox(SPEC)
    unit_id = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    await runtime.start_unit(unit_id)
    server.model.lost_records.add(unit_id)
    remove = runtime.remove_sandbox(sandbox_id) if ends == "sandbox" else runtime.remove_unit(unit_id)
    if kind is CriRuntime:
        with pytest.raises(Conflict, match=rf'container "{unit_id}".*lists it as running'):
            await runtime.stop_unit(unit_id, 5)
        with pytest.raises(Conflict, match=f'container "{unit_id}"'):
            await remove
        assert list(server.model.containers) == [unit_id]
    else:
        await remove
        assert list(server.model.containers) == []
        assert list(server.model.sandboxes) == ([] if ends == "sandbox" else [sandbox_id])
    await runtime.close()


async def test_a_container_that_containerd_has_lost_is_stopped(
    server: FakeCriServer, make_runtime: MakeRuntime
) -> None:
    server.uuid = "1234"
    runtime = make_runtime(kind=ContainerdRuntime)
    await runtime.open()
    sandbox_id = await runtime.create_sandbox(SPEC)
    unit_id = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    await runtime.start_unit(unit_id)
    server.model.lost_records.add(unit_id)
    await runtime.stop_unit(unit_id, 0)
    assert (await runtime.unit_status(unit_id)).summary.state is UnitState.EXITED
    server.model.lost_records.add(unit_id)
    await runtime.stop_unit(unit_id, 0)  # it has ended: nothing is to be repaired
    assert server.count("Create") == 1
    await runtime.close()


async def test_not_found_of_a_sandbox_or_an_image_counts_only_if_it_is_gone(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    images = runtime.capability(SupportsImages)
    assert images is not None
    await images.pull_image(UNIT.image, None, SPEC)
    for method in ("StopPodSandbox", "RemovePodSandbox", "RemoveImage"):
        server.refuse(method, Code.NOT_FOUND, "netns /run/netns/x: not found")
    for call in (
        runtime.stop_sandbox(sandbox_id),
        runtime.remove_sandbox(sandbox_id),
        images.remove_image(UNIT.image),
    ):
        with pytest.raises(Conflict, match="netns"):
            await call


async def test_stopping_while_the_server_is_away_does_not_pretend_success(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    await server.stop()
    with pytest.raises(Unavailable):
        await runtime.stop_unit(UnitId("none"), 5)


@pytest.mark.parametrize(("grace", "seconds"), [(0, 0), (0.2, 1), (5, 5), (-1, 0)])
async def test_the_grace_period_is_rounded_up_to_whole_seconds(
    server: FakeCriServer, runtime: CriRuntime, grace: float, seconds: int
) -> None:
    await runtime.stop_unit(UnitId("none"), grace)
    assert server.last("StopContainer").timeout == seconds


# --- looking ---


async def test_lists_are_filtered_by_labels(runtime: CriRuntime) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    await runtime.create_unit(sandbox_id, UNIT, SPEC)
    assert [s.id for s in await runtime.list_sandboxes({names.AGENT_ID: "agent-1"})] == [sandbox_id]
    assert await runtime.list_sandboxes({names.AGENT_ID: "agent-2"}) == []
    assert len(await runtime.list_units({names.AGENT_ID: "agent-1"})) == 1
    assert await runtime.list_units({names.AGENT_ID: "agent-2"}) == []


async def test_a_unit_s_status_names_its_sandbox_without_asking_twice(
    server: FakeCriServer, runtime: CriRuntime, make_runtime: MakeRuntime
) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    unit_id = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    assert (await runtime.unit_status(unit_id)).summary.sandbox_id == sandbox_id
    assert server.count("ListContainers") == 0
    after_restart = make_runtime()
    await after_restart.open()
    for _ in range(2):
        assert (await after_restart.unit_status(unit_id)).summary.sandbox_id == sandbox_id
    assert server.count("ListContainers") == 1
    await after_restart.close()


async def test_a_stopped_sandbox_is_not_ready_and_has_no_address(runtime: CriRuntime) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    assert (await runtime.sandbox_status(sandbox_id)).ips
    await runtime.stop_sandbox(sandbox_id)
    status = await runtime.sandbox_status(sandbox_id)
    assert (status.summary.state, status.ips) == (SandboxState.NOT_READY, ())
    await runtime.remove_sandbox(sandbox_id)
    with pytest.raises(NotFound):
        await runtime.sandbox_status(sandbox_id)


async def test_health_and_version_are_the_server_s(server: FakeCriServer, runtime: CriRuntime) -> None:
    assert (await runtime.version()).name == "containerd"
    server.model.conditions["NetworkReady"] = False
    health = await runtime.health()
    assert (health.runtime_ready, health.network_ready) == (True, False)
    assert health.handlers == ("crun", "runc")
    assert not server.last("Status").verbose


async def test_a_pod_lives_and_dies(runtime: CriRuntime) -> None:
    sandbox_id = await runtime.create_sandbox(SPEC)
    unit_id = await runtime.create_unit(sandbox_id, UNIT, SPEC)
    assert (await runtime.unit_status(unit_id)).summary.state is UnitState.CREATED
    await runtime.start_unit(unit_id)
    assert (await runtime.unit_status(unit_id)).summary.state is UnitState.RUNNING
    await runtime.stop_unit(unit_id, 0)
    status = await runtime.unit_status(unit_id)
    assert (status.summary.state, status.exit_code, status.reason) == (UnitState.EXITED, 137, "Error")
    await runtime.remove_unit(unit_id)
    with pytest.raises(NotFound):
        await runtime.unit_status(unit_id)
    await runtime.remove_sandbox(sandbox_id)
    assert await runtime.list_sandboxes({}) == []
    assert runtime.known.find(sandbox_id) is None
    assert runtime.known.find(unit_id) is None
