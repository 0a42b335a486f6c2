"""Faults of the first node agent of Fornax that concern pods and sessions, through commands and reports.

The numbers are those of the list of known faults. What a node does about cores and revisions is tested with the node actor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid, Process, TimedOut, UnitState
from kubeletx.fornax import names
from kubeletx.fornax.pods.machine import PodState
from kubeletx.fornax.pods.records import CorePodRecords
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as core
from kubeletx.kube.types.core import PodStatus
from kubeletx.pods.model.sources import FORNAX
from kubeletx.sessions.model import OpenRequest, SessionState
from kubeletx.testing import Behaviour, FakeRuntime
from tests.unit.fornax.pod_world import World, a_pod
from tests.unit.pods.manager_model import a_pod as a_static_pod


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def runtime_of(world: World) -> FakeRuntime:
    return world.node.runtimes["one"]


def unit_of(world: World, name: str = "main") -> Any:
    backend = runtime_of(world).backend
    return backend.units[backend.find_unit(name)]


async def rows(world: World) -> list[str]:
    return [row.pod_id for row in await CorePodRecords(world.node.store).load()]


# --- start and stop -------------------------------------------------------------------------------------


async def test_b2_a_list_is_complete_after_a_restart_and_nothing_is_restarted(world: World) -> None:
    async with world.running():
        await world.start(a_pod(ports=(80,)))
        await world.start(a_pod("rests", HIBERNATE_POD="hibernate"), "Standby")
        session_id = await world.open("s1")
        await world.until_session(session_id, "Available")
    world.pods.clear()
    async with world.running() as content:
        listed = world.listed()
        assert {key: one.state for key, one in listed.items()} == {
            "apps/web": pb.PodState.Running,
            "apps/rests": pb.PodState.Standby,
        }
        assert [one.session.metadata.name for one in listed["apps/web"].sessionStates] == ["s1"]
        assert listed["apps/web"].pod.spec.containers[0].ports[0].hostPort == 1024
        assert listed["apps/web"].pod.metadata.annotations[names.SESSIONS] == session_id
        await world.start(a_pod("next", ports=(80,)))
        assert world.pod("apps/next").spec.containers[0].ports[0].hostPort != 1024
        assert runtime_of(world).counts["create_unit"] == 1  # of the new pod
        assert content.ready.is_set()


async def test_b2_what_ended_while_the_agent_was_down_is_in_the_first_list(world: World) -> None:
    async with world.running():
        await world.start(a_pod())
    backend = runtime_of(world).backend
    backend.exit_unit(backend.find_unit("main"), 0)
    async with world.running():
        assert world.listed().get("apps/web", pb.PodState(state=pb.PodState.Terminating)).state in (
            pb.PodState.Terminating,
            pb.PodState.Terminated,
        )
        assert (await world.until_pod("apps/web", "Terminated")).pod.status.phase == "Succeeded"


async def test_b24_an_agent_that_stops_amid_commands_continues_them(world: World) -> None:
    async with world.running():
        await world.start(a_pod())
        runtime_of(world).script("stop_unit", hang=True)
        await world.terminate("apps/web")
        await world.until_pod("apps/web", "Terminating")
    async with world.running():
        await world.until_pod("apps/web", "Terminated")
        assert world.node.alive() == []
        assert await rows(world) == []


async def test_a_lost_database_removes_the_pods_of_cores_only(world: World) -> None:
    async with world.running():
        await world.start(a_pod())
        await world.node.start(a_static_pod("mine"))
        assert sorted(world.node.alive()) == ["mine/c0", "web/main"]
    for path in world.node.root.glob("db*"):
        path.unlink()
    async with world.running(keeps_orphans=True):
        await world.until(lambda: world.node.alive() == ["mine/c0"])
        assert world.listed() == {}


# --- conversion -----------------------------------------------------------------------------------------


async def test_b7_b8_b9_b24_a_container_gets_what_its_spec_says(world: World) -> None:
    pod = a_pod()
    container = pod.spec.containers[0]
    container.command.append("serve")
    container.args.extend(["--port", "80"])
    container.resources.limits["memory"].string = "64Mi"
    container.resources.limits["cpu"].string = "500m"
    container.imagePullPolicy = "Always"
    container.env.add(name="pod.fornax-serverless.centaurusinfra.io", value="apps/web")
    host = container.env.add(name="sessionservice.core.fornax-serverless.centaurusinfra.io")
    host.valueFrom.fieldRef.fieldPath = "status.hostIP"
    container.env.add(name="KEY").valueFrom.secretKeyRef.key = "key"
    container.env[-1].valueFrom.secretKeyRef.localObjectReference.name = "keys"
    container.envFrom.add().configMapRef.localObjectReference.name = "settings"
    container.livenessProbe.handler.exec.command.append("true")
    container.livenessProbe.initialDelaySeconds = 0
    config = core.ConfigMap(data={"LEVEL": "3"})
    config.metadata.name = "settings"
    secret = core.Secret(data={"key": b"hidden"})
    secret.metadata.name = "keys"
    async with world.running():
        await world.start(pod, configMap=config, secrets=[secret])
        spec = unit_of(world).spec
        assert isinstance(spec.detail, Process)
        assert spec.detail.command == ("serve",)
        assert spec.detail.args == ("--port", "80")
        assert spec.resources.memory_limit_bytes == 64 << 20
        assert spec.resources.cpu_quota_us == 50_000
        variables = {one.name: one.value for one in spec.environment}
        assert variables["pod.fornax-serverless.centaurusinfra.io"] == "apps/web"
        assert variables["KEY"] == "hidden"
        assert variables["LEVEL"] == "3"
        assert "sessionservice.core.fornax-serverless.centaurusinfra.io" in variables
        assert runtime_of(world).counts["pull_image"] == 1  # although the image is there
        assert b"hidden" not in world.pod().SerializeToString()
    async with world.running():
        assert world.listed()["apps/web"].state == pb.PodState.Running


async def test_b10_every_port_gets_a_host_port_and_busy_ones_are_skipped(world: World) -> None:
    world.busy_ports = {1024, 1026}
    async with world.running():
        await world.node.start(a_static_pod("mine"))
        await world.start(a_pod(ports=tuple(range(8000, 8012))))
        ports = [port.hostPort for port in world.pod().spec.containers[0].ports]
        assert len(set(ports)) == 12
        assert not set(ports) & world.busy_ports
        backend = runtime_of(world).backend
        sandbox = next(one for one in backend.sandboxes.values() if one.summary.name == "web")
        assert sandbox.spec is not None
        assert [(one.container_port, one.host_port) for one in sandbox.spec.ports] == list(
            zip(range(8000, 8012), ports, strict=True)
        )


async def test_a_host_port_that_a_core_has_chosen_is_given_to_no_other_port(world: World) -> None:
    async with world.running():
        chosen = a_pod("chosen", ports=(80, 81))
        chosen.spec.containers[0].ports[1].hostPort = 1024
        await world.start(chosen)
        await world.start(a_pod(ports=(80,)))
        mine = [port.hostPort for port in world.pod("apps/chosen").spec.containers[0].ports]
        given = world.pod("apps/web").spec.containers[0].ports[0].hostPort
        assert mine == [1025, 1024]
        assert given not in mine
        await world.terminate("apps/chosen")
        await world.until_pod("apps/chosen", "Terminated")


async def test_unknown_fields_of_a_pod_reach_the_core_again(world: World) -> None:
    async with world.running():
        pod = core.Pod.FromString(a_pod().SerializeToString() + b"\x9a\x3f\x03new")  # field 1011
        spec = core.PodSpec.FromString(pod.spec.SerializeToString() + b"\x9a\x3f\x04spec")
        pod.spec.CopyFrom(spec)
        await world.start(pod)
        sent = world.pod().SerializeToString()
        assert b"\x9a\x3f\x03new" in sent
        assert b"\x9a\x3f\x04spec" in sent


# --- life -----------------------------------------------------------------------------------------------


async def test_b15_the_grace_period_of_the_spec_is_in_seconds_and_not_cut(world: World) -> None:
    pod = a_pod()
    pod.metadata.deletionGracePeriodSeconds = 1
    pod.spec.terminationGracePeriodSeconds = 90
    pod.spec.containers.add(name="other", image="busybox")
    async with world.running():
        runtime_of(world).backend.behave = lambda _spec: Behaviour(ignores_stop=True)
        await world.start(pod)
        began = world.node.clock.monotonic()
        await world.terminate("apps/web")
        await world.until_pod("apps/web", "Terminated")
        stops = [call.at for call in runtime_of(world).calls("stop_unit")]
        assert 80 <= world.node.clock.monotonic() - began <= 110
        assert len(stops) >= 2
        assert stops[1] - stops[0] < 5  # both at once


async def test_b16_a_container_that_was_removed_is_noticed(world: World) -> None:
    async with world.running():
        await world.start(a_pod())
        backend = runtime_of(world).backend
        backend.vanish_unit(backend.find_unit("main"))
        await world.until(lambda: world.states()[-1] != "Running" or len(backend.units) > 0, 600)
        await world.terminate("apps/web")
        await world.until_pod("apps/web", "Terminated")
        assert not backend.sandboxes


async def test_b17_a_slow_init_container_delays_the_pod(world: World) -> None:
    pod = a_pod()
    pod.spec.initContainers.add(name="init", image="busybox")
    async with world.running():
        await world.create(pod)
        await world.until(lambda: world.node.alive() == ["web/init"])
        await world.node.clock.run_for(100)
        assert world.states() == ["Creating"]
        backend = runtime_of(world).backend
        backend.exit_unit(backend.find_unit("init"), 0)
        await world.until_pod("apps/web", "Running")


async def test_b18_nothing_is_left_of_a_sandbox_whose_creation_was_not_answered(world: World) -> None:
    async with world.running():
        runtime_of(world).script("create_sandbox", times=1, error=TimedOut("late"), after_effect=True)
        await world.create(a_pod())
        await world.until(
            lambda: runtime_of(world).scripts is not None and runtime_of(world).backend.sandboxes
        )
        await world.terminate("apps/web")
        await world.until_pod("apps/web", "Terminated")
        assert not runtime_of(world).backend.sandboxes


async def test_b20_a_late_write_does_not_bring_a_deleted_pod_back(world: World) -> None:
    async with world.running():
        await world.start(a_pod())
        assert await rows(world) == ["apps/web"]
        await world.terminate("apps/web")
        await world.until_pod("apps/web", "Terminated")
        records, uid = CorePodRecords(world.node.store), PodUid("uid-web")
        records.note_report("apps/web", uid, 99, PodStatus(phase="Running"))
        assert await rows(world) == []


async def test_b18_pods_rows_and_ports_that_do_not_agree_are_repaired(world: World) -> None:
    async with world.running():
        pod_id = await world.start(a_pod(ports=(80,)))

        async def repaired() -> dict[str, Sequence[str]]:
            found = {name: await repair() for name, repair in world.core_pods.repairs().items()}
            return {name: objects for name, objects in found.items() if objects}

        assert await repaired() == {}
        records = CorePodRecords(world.node.store)
        (row,) = await records.load()
        await records.insert(replace(row, pod_id="apps/gone", uid=PodUid("gone")))
        await records.delete(pod_id, row.uid)
        assert await repaired() == {"rows": ["apps/gone", pod_id]}
        (again,) = await records.load()
        assert (again.state, again.spec, again.ports) == (PodState.RUNNING, row.spec, row.ports)

        worker = world.node.manager.workers[row.uid]
        stray = replace(worker.desired.pod.metadata, name="stray", uid=PodUid("uid-stray"))
        world.node.manager.update(FORNAX, replace(worker.desired.pod, metadata=stray))
        assert await repaired() == {"strays": ["apps/stray"]}
        await world.until(lambda: PodUid("uid-stray") not in world.node.manager.workers)
        assert await repaired() == {}
        assert world.states() == ["Creating", "Running"]


async def test_b22_all_containers_hibernate_and_a_frozen_pod_ends(world: World) -> None:
    pod = a_pod()
    pod.spec.initContainers.add(name="init", image="busybox")
    pod.spec.containers.add(name="other", image="busybox")
    async with world.running():
        await world.create(pod)
        await world.until(lambda: world.node.alive() == ["web/init"])
        backend = runtime_of(world).backend
        backend.exit_unit(backend.find_unit("init"), 0)
        await world.until_pod("apps/web", "Running")
        await world.hibernate("apps/web")
        await world.until_pod("apps/web", "Standby")
        assert {unit_of(world, name).summary.state for name in ("main", "other")} == {UnitState.SUSPENDED}
        await world.terminate("apps/web")
        await world.until_pod("apps/web", "Terminated")


# --- answers --------------------------------------------------------------------------------------------


async def test_b23_every_command_is_answered(world: World) -> None:
    async with world.running():
        assert await world.terminate("apps/none")
        assert await world.hibernate("apps/none")
        await world.close("apps/none")
        assert world.statuses("apps/none") == ["Closed"]
        assert world.sessions["apps/none"][0].session.metadata.annotations[names.POD] == "apps/web"
        await world.open("s0", "apps/none")
        assert world.statuses("apps/s0") == ["Closed"]
        assert "apps/none" in world.sessions["apps/s0"][0].message

        await world.start(a_pod())
        reports = len(world.pods["apps/web"])
        await world.create(a_pod())
        assert len(world.pods["apps/web"]) == reports + 1
        assert world.states()[-1] == "Running"

        await world.until_session(await world.open("s1"), "Available")
        answers = len(world.sessions["apps/s1"])
        await world.open("s1", sessionData="another")
        await world.until(lambda: len(world.sessions["apps/s1"]) > answers)
        assert world.statuses("apps/s1")[-1] == "Available"

        runtime_of(world).script("stop_unit", delay_seconds=20)
        await world.terminate("apps/web")
        await world.until_pod("apps/web", "Terminating")
        began = world.node.clock.monotonic()
        await world.open("s2")
        await world.until_session("apps/s2", "Closed")
        await world.until_pod("apps/web", "Terminated")
        assert world.node.clock.monotonic() - began > 10  # the refused session did not force the end
        assert not await world.terminate("apps/web")
        await world.create(a_pod())  # a message that came twice
        assert world.states()[-1] == "Terminated"
        assert world.node.alive() == []


async def test_b23_a_session_of_an_operator_is_none_of_a_core(world: World) -> None:
    async with world.running():
        await world.start(a_pod())
        await world.room.open(OpenRequest(id="apps/local", pod_id="apps/web"))
        await world.close("apps/local")
        assert world.statuses("apps/local") == ["Closed"]
        await world.open("local", sessionData="another")
        await world.until(lambda: len(world.sessions["apps/local"]) == 2)
        assert world.statuses("apps/local") == ["Closed"]
        session = world.room.find("apps/local")
        assert session is not None
        assert session.state is SessionState.READY


def without_containers(pod: core.Pod) -> None:
    del pod.spec.containers[:]


def other_name(pod: core.Pod) -> None:
    pod.metadata.name = "Not A Name"


def bad_uid(pod: core.Pod) -> None:
    pod.metadata.uid = "../etc"


def uid_of_bytes(pod: core.Pod) -> None:
    data = pod.SerializeToString()
    pod.ParseFromString(data.replace(b"uid-web", b"\xff" * 7))


def claim(pod: core.Pod) -> None:
    pod.spec.volumes.add(name="v").volumeSource.persistentVolumeClaim.claimName = "c"


def missing_secret(pod: core.Pod) -> None:
    pod.spec.volumes.add(name="v").volumeSource.secret.secretName = "s"


@pytest.mark.parametrize(
    "spoil", [without_containers, other_name, bad_uid, uid_of_bytes, claim, missing_secret]
)
async def test_a_malformed_pod_fails_at_once_with_a_reason(
    world: World, spoil: Callable[[core.Pod], None]
) -> None:
    async with world.running():
        pod = a_pod(ports=(80,))
        spoil(pod)
        pod_id = await world.create(pod)
        (answer,) = world.pods[pod_id]
        assert answer.state == pb.PodState.Terminated
        assert answer.pod.status.phase == "Failed"
        assert answer.pod.status.reason == "FailedValidation"
        assert answer.pod.status.message
        assert await rows(world) == []
        await world.start(a_pod("good", ports=(80,)))
        assert world.pod("apps/good").spec.containers[0].ports[0].hostPort % 10 == 4


async def test_huge_pods_and_sessions_that_are_refused_are_not_kept(world: World) -> None:
    async with world.running():
        pod = a_pod()
        pod.metadata.labels["x" * (2 << 20)] = ""
        answer = world.pods[await world.create(pod)][-1]
        assert (answer.pod.metadata.name, answer.pod.status.phase) == ("web", "Failed")
        assert answer.ByteSize() < 10_000
        session_id = await world.open("s1", "apps/none", sessionData="x" * (2 << 20))
        assert world.statuses(session_id) == ["Closed"]
        assert world.sessions[session_id][-1].ByteSize() < 10_000


async def test_a_pod_is_refused_while_the_node_is_not_ready(world: World) -> None:
    async with world.running(configured=False):
        pod_id = await world.create(a_pod())
        assert world.pod(pod_id).status.phase == "Failed"
        assert world.pod(pod_id).status.reason == "NodeNotReady"


async def test_a_name_of_another_source_is_answered_at_once(world: World) -> None:
    async with world.running():
        await world.node.start(a_static_pod())
        pod = a_pod()
        pod.metadata.namespace, pod.metadata.uid = "default", "another"
        await world.create(pod)
        await world.until_pod("default/web", "Terminated")
        assert world.pod("default/web").status.phase == "Failed"
        assert world.pod("default/web").status.reason == "NameTaken"
        assert world.node.alive() == ["web/c0"]
        assert await rows(world) == []
        assert world.listed() == {}
        assert len(world.core_pods.objects) == 0


async def test_daemon_pods_start_first_never_stand_by_and_follow_the_configuration(world: World) -> None:
    daemon = core.Pod()
    daemon.metadata.name, daemon.metadata.namespace = "d", "system"
    daemon.spec.containers.add(name="d", image="busybox")
    daemon.metadata.annotations[names.HIBERNATE_POD] = "hibernate"
    async with world.running(configured=False) as content:
        await content.configure(pb.NodeConfiguration(daemonPods=[daemon]))
        assert world.node.alive() == ["d/d"]
        assert world.states("system/d")[-1] == "Running"
        await world.hibernate("system/d")
        await world.until(lambda: "never" in world.pod("system/d").status.message)
        await content.configure(pb.NodeConfiguration(daemonPods=[daemon]))
        assert runtime_of(world).counts["create_unit"] == 1
        await content.configure(pb.NodeConfiguration())
        await world.until_pod("system/d", "Terminated")
    async with world.running():
        assert world.node.alive() == []


async def test_a_daemon_pod_that_does_not_end_blocks_no_configuration(tmp_path: Path) -> None:
    world = World(tmp_path, liveness_seconds=30.0)
    daemon = core.Pod()
    daemon.metadata.name, daemon.metadata.namespace = "d", "system"
    daemon.spec.containers.add(name="d", image="busybox")
    async with world.running(configured=False) as content:
        await content.configure(pb.NodeConfiguration(daemonPods=[daemon]))
        runtime_of(world).script("stop_unit", delay_seconds=300)
        daemon.metadata.labels["version"] = "2"
        configured = asyncio.create_task(content.configure(pb.NodeConfiguration(daemonPods=[daemon])))
        await world.until(configured.done)
        assert world.pod("system/d").metadata.labels["version"] == ""
        await world.until(lambda: world.pod("system/d").metadata.labels["version"] == "2", 600)
        await world.until_pod("system/d", "Running")


async def test_a_full_list_has_no_pod_that_is_not_stored(world: World) -> None:
    async with world.running() as content:
        world.node.store.writes_left = 0
        await world.create(a_pod())
        assert content.pod_states(1) == []
