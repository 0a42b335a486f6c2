"""Pods of a core: what is reported in their lives, and what the core's commands do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import InvalidConfig, PodUid, SupportsStandby
from kubeletx.fornax import names
from kubeletx.fornax.stubs import fornax_session_pb2 as fs
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.pods.workloads.power import Power
from kubeletx.sessions.stubs import session_service_pb2 as ss
from tests.unit.fornax.pod_world import HOST_IP, NODE, World, a_pod


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_pod_runs_and_ends(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod(ports=(80, 443)))
        shown = world.pod()
        assert shown.status.phase == "Running"
        assert shown.metadata.annotations[names.NODE] == NODE
        assert shown.metadata.annotations[names.NODE_REVISION] == str(world.revision)
        ports = shown.spec.containers[0].ports
        assert [port.hostIP for port in ports] == [HOST_IP] * 2
        assert [port.hostPort for port in ports] == [1024, 1025]
        assert not await world.terminate(pod_id)
        await world.until_pod(pod_id, "Terminated")
        assert world.pod().status.phase in ("Failed", "Succeeded")
        assert world.states() == ["Creating", "Running", "Terminating", "Terminated"]
        assert world.listed() == {}
        assert world.node.alive() == []


async def test_a_standby_pod_is_woken_by_a_session_and_rests_again(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod(HIBERNATE_POD="hibernate"), "Standby")
        assert world.pod().status.phase == "Running"
        session_id = await world.open("s1")
        opened = await world.until_session(session_id, "Available")
        assert opened.session.metadata.annotations[names.POD] == pod_id
        await world.until_pod(pod_id, "Running")
        assert world.pod().metadata.annotations[names.SESSIONS] == session_id
        await world.close(session_id)
        await world.until_session(session_id, "Closed")
        await world.until_pod(pod_id, "Standby")
        assert names.SESSIONS not in world.pod().metadata.annotations
        assert world.states() == ["Creating", "Standby", "Activating", "Running", "Standby"]
        assert world.statuses(session_id)[:2] == ["Starting", "Available"]


async def test_only_results_that_a_core_waits_for_are_reported_at_once(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod(SESSION_SERVICE_POD="x", HIBERNATE_POD="hibernate"), "Creating")
        await world.until(world.node.alive)
        world.connect()
        await world.until_pod(pod_id, "Standby")
        world.awaited.clear()
        session_id = await world.open("s1")
        await world.until_session(session_id, "Starting")
        world.report(ss.STATE_OPEN, session_id)
        await world.until_pod(pod_id, "Running")
        await world.close(session_id)
        await world.until_session(session_id, "Closing")
        world.report(ss.STATE_CLOSED, session_id)
        await world.until_pod(pod_id, "Standby")
        assert world.awaited == ["Available", "Closed", "Standby"]


async def test_a_session_of_an_application_shows_clients_and_endpoints(world: World) -> None:
    async with world.running():
        await world.start(a_pod(ports=(80,), SESSION_SERVICE_POD="sessionservicepod"))
        world.connect()
        session_id = await world.open("s1", sessionData="level 3")
        await world.until_session(session_id, "Starting")
        world.report(ss.STATE_OPEN, session_id)
        available = (await world.until_session(session_id, "Available")).session.status
        assert [(one.ipAddress, one.port, one.protocol) for one in available.accessEndPoints] == [
            (HOST_IP, 1024, "TCP")
        ]
        assert available.availableTimeMicro // 1_000_000 == available.availableTime.seconds
        world.report(ss.STATE_OPEN, session_id, "ann", "bob")
        used = (await world.until_session(session_id, "InUse")).session
        assert [client.name for client in used.status.clientSessions] == ["ann", "bob"]
        assert used.spec.sessionData == "level 3"
        await world.close(session_id)
        await world.until_session(session_id, "Closing")
        world.report(ss.STATE_CLOSED, session_id)
        closed = await world.until_session(session_id, "Closed")
        assert closed.session.status.HasField("closeTime")
        assert world.listed()["apps/web"].sessionStates[0].session.status.sessionStatus == "Closed"


async def test_a_pod_that_is_terminated_evacuates_its_sessions(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod(SESSION_SERVICE_POD="sessionservicepod"))
        world.connect()
        session_id = await world.open("s1")
        await world.until_session(session_id, "Starting")
        world.report(ss.STATE_OPEN, session_id, "ann")
        await world.until_session(session_id, "InUse")
        await world.terminate(pod_id)
        await world.until_pod(pod_id, "Evacuating")
        assert world.node.alive() == ["web/main"]
        world.report(ss.STATE_CLOSED, session_id)
        await world.until_session(session_id, "Closed")
        await world.until_pod(pod_id, "Terminated")
        assert world.states() == ["Creating", "Running", "Evacuating", "Terminating", "Terminated"]


async def test_a_first_session_that_never_becomes_ready_ends_its_pod(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod(SESSION_SERVICE_POD="x", HIBERNATE_POD="hibernate"), "Creating")
        await world.until(world.node.alive)
        world.connect()
        await world.until_pod(pod_id, "Standby")
        session_id = await world.open("s1", openTimeoutSeconds=5)
        await world.until_session(session_id, "Timeout")
        await world.until_pod(pod_id, "Terminated")
        assert world.states()[-3:] == ["Activating", "Terminating", "Terminated"]
        assert world.pod().status.phase == "Failed"
        assert world.pod().status.reason == "OpenTimeout"


async def test_a_session_that_kills_its_instance_ends_the_pod(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod())
        session_id = await world.open("s1", killInstanceWhenSessionClosed=True)
        await world.until_session(session_id, "Available")
        await world.close(session_id)
        await world.until_pod(pod_id, "Terminated")
        assert world.node.alive() == []


async def test_a_core_hibernates_and_activates_a_pod(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod())
        await world.hibernate(pod_id)
        await world.until_pod(pod_id, "Standby")
        await world.send(pb.POD_ACTIVE, podActive=pb.PodActive(podIdentifier=pod_id))
        await world.until_pod(pod_id, "Running")
        assert world.states() == ["Creating", "Running", "Standby", "Activating", "Running"]


async def test_a_pod_that_an_operator_freezes_is_on_standby_until_a_session_wakes_it(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod())
        world.node.manager.ask_power(PodUid("uid-web"), Power.STANDBY, "operator")
        await world.until_pod(pod_id, "Standby")
        session_id = await world.open("s1")
        await world.until_session(session_id, "Available")
        await world.until_pod(pod_id, "Running")
        await world.close(session_id)
        await world.until_pod(pod_id, "Standby")
        world.node.manager.ask_power(PodUid("uid-web"), None, "operator")
        await world.until_pod(pod_id, "Running")


@pytest.mark.parametrize("obstacle", ["open session", "runtime"])
async def test_a_pod_that_cannot_hibernate_says_why(world: World, obstacle: str) -> None:
    if obstacle == "runtime":
        world.node.without = (SupportsStandby,)
    async with world.running():
        pod_id = await world.start(a_pod())
        if obstacle == "open session":
            await world.until_session(await world.open("s1"), "Available")
        await world.hibernate(pod_id)
        await world.until(lambda: obstacle in world.pod().status.message)
        assert world.states() == ["Creating", "Running"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_containers_that_are_not_ready_in_time_end_the_pod(tmp_path: Path, restarts: bool) -> None:
    world = World(tmp_path, liveness_seconds=20.0)
    pod = a_pod()
    probe = pod.spec.containers[0].readinessProbe
    probe.handler.exec.command.append("false")
    async with world.running():
        pod_id = await world.create(pod)
        if restarts:
            await world.until(world.node.alive)
        else:
            await world.until_pod(pod_id, "Terminated")
    async with world.running():
        await world.until_pod(pod_id, "Terminated")
        assert world.states() == ["Creating", "Terminating", "Terminated"]
        assert world.pod().status.phase == "Failed"
        assert world.pod().status.reason == "LivenessTimeout"


async def test_a_failed_image_fails_the_pod_at_once(world: World) -> None:
    async with world.running():
        began = world.node.clock.monotonic()
        world.node.runtimes["one"].backend.registry = {}
        pod_id = await world.create(a_pod(image="not-there"))
        await world.until_pod(pod_id, "Terminated")
        failed = world.pods[pod_id][1]
        assert failed.state == pb.PodState.Terminating
        assert failed.pod.status.phase == "Failed"
        assert failed.pod.status.reason == "ErrImagePull"
        assert "not-there" in failed.pod.status.message
        assert world.node.clock.monotonic() - began < 10


async def test_a_container_that_exits_ends_the_pod(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod(ports=(80,)))
        backend = world.node.runtimes["one"].backend
        backend.exit_unit(backend.find_unit("main"), 3)
        await world.until_pod(pod_id, "Terminated")
        assert world.pod().status.phase == "Failed"
        assert world.pod().status.containerStatuses[0].state.terminated.exitCode == 3
        assert len(world.core_pods.objects) == 0
        await world.start(a_pod("next", ports=(80,)))


async def test_a_session_with_a_text_that_is_not_utf_8_is_refused(world: World) -> None:
    async with world.running():
        await world.start(a_pod())
        spec = fs.ApplicationSessionSpec.FromString(b"\x12\x02\xff\xfe")
        session = fs.ApplicationSession(spec=spec)
        session.metadata.namespace, session.metadata.name = "apps", "s1"
        message = pb.SessionOpen(sessionIdentifier="apps/s1", podIdentifier="apps/web", session=session)
        await world.send(pb.SESSION_OPEN, sessionOpen=message)
        assert world.statuses("apps/s1") == ["Closed"]
        assert "sessionData" in world.sessions["apps/s1"][0].message


async def test_the_pod_network_of_a_core_is_passed_on_once_and_shown_at_the_node(world: World) -> None:
    async with world.running() as content:
        wanted = pb.NodeConfiguration()
        wanted.node.spec.podCIDR = "10.1.2.0/24"
        for _ in range(2):
            await content.configure(wanted)
        assert (world.pod_cidrs, content.node(1).spec.podCIDR) == ([("10.1.2.0/24",)], "10.1.2.0/24")
        wanted.node.spec.podCIDR = "10.1.2.0/99"
        with pytest.raises(InvalidConfig, match=r"10\.1\.2\.0/99"):
            await content.configure(wanted)
        assert len(world.pod_cidrs) == 1


@pytest.mark.parametrize("pod_id", ["apps/unknown", "apps/web"])
async def test_a_refused_session_is_answered_at_once(world: World, pod_id: str) -> None:
    async with world.running():
        await world.terminate(await world.start(a_pod()))
        if pod_id == "apps/web":
            await world.until_pod(pod_id, "Terminating")
        await world.open("s1", pod_id, sessionData="level 1")
        refused = await world.until_session("apps/s1", "Closed")
        assert pod_id in refused.message
        assert refused.session.metadata.uid == "uid-s1"
        assert refused.session.metadata.annotations[names.POD] == pod_id
        assert refused.session.spec.sessionData == "level 1"
