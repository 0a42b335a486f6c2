"""The whole agent under a core: registration, a pod of the core, its end, and a restart between."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubeletx.api import InvalidConfig, NotFound
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as k8s
from kubeletx.fornax.views import FornaxStatus
from kubeletx_testing.fornaxcore.cluster import Cluster
from kubeletx_testing.fornaxcore.core import FornaxCore
from kubeletx_testing.fornaxcore.faults import Action, Direction, Fault
from kubeletx_testing.fornaxcore.objects import PodRequest
from kubeletx_testing.fornaxcore.settings import CoreSettings
from tests.unit.agent.agent_model import AgentModel
from tests.unit.fornax.core_model import NODE, TinyCore

POD = "game/p1"
SPEC = {"containers": [{"name": "main", "image": "busybox"}]}


@pytest.fixture
async def core(agent: AgentModel) -> AsyncIterator[TinyCore]:
    """A core that the agent is configured for."""
    made = TinyCore()
    await made.start()
    agent.configure("fornax", cores=(made.address,), identifier=NODE)
    yield made
    await made.stop()


def status_of(agent: AgentModel) -> FornaxStatus:
    status = agent.parts.backend.fornaxcore()
    assert isinstance(status, FornaxStatus)
    return status


def create() -> pb.PodCreate:
    pod = k8s.Pod()
    pod.metadata.namespace, _, pod.metadata.name = POD.partition("/")
    pod.spec.containers.add(name="main", image="busybox")
    return pb.PodCreate(podIdentifier=POD, pod=pod)


async def test_a_core_creates_and_ends_a_pod_and_a_restart_keeps_it(
    agent: AgentModel, core: TinyCore
) -> None:
    assert core.configuration is not None
    core.configuration.node.spec.podCIDR = "10.1.2.0/24"
    async with agent.running() as backend:
        await agent.until(lambda: "NODE_READY" in core.kinds())
        assert agent.runtimes["one"].pod_cidrs == ("10.1.2.0/24",)
        assert core.node.status.allocatable["cpu"].string
        assert core.node.status.addresses
        core.send(pb.POD_CREATE, podCreate=create())
        await agent.until(lambda: POD in core.pods and core.pods[POD].state == pb.PodState.Running)
        assert core.pods[POD].pod.status.phase == "Running"
        status = status_of(agent)
        assert (status.state, status.cores[0].connected) == ("Ready", True)
        assert "default" not in {pod.namespace for pod in await backend.pods.list_pods()}
        assert (await agent.metric("kubeletx_fornaxcore_connected"))[core.address] == 1
    started = len(agent.runtimes["one"].backend.units)
    core.log.clear()
    async with agent.running():
        await agent.until(lambda: "NODE_READY" in core.kinds())
        assert all(len(m.nodeState.podStates) == 1 for m in core.log if m.messageType == pb.NODE_STATE)
        assert len(agent.runtimes["one"].backend.units) == started
        core.send(pb.POD_TERMINATE, podTerminate=pb.PodTerminate(podIdentifier=POD))
        await agent.until(lambda: core.pods[POD].state == pb.PodState.Terminated)
        assert core.pods[POD].pod.status.phase in ("Succeeded", "Failed")
        await agent.until(lambda: not agent.alive())


async def test_a_lost_database_makes_a_new_node_that_removes_the_pods_of_cores(
    agent: AgentModel, core: TinyCore
) -> None:
    async with agent.running():
        await agent.until(lambda: "NODE_READY" in core.kinds())
        core.send(pb.POD_CREATE, podCreate=create())
        await agent.until(lambda: POD in core.pods and core.pods[POD].state == pb.PodState.Running)
    for path in (agent.root / "root").glob("kubeletx.db*"):
        path.unlink()
    core.log.clear()
    async with agent.running():
        await agent.until(lambda: "NODE_READY" in core.kinds())
        await agent.until(lambda: not agent.alive())
        await agent.until(lambda: core.pods == {})
        assert core.last(pb.NODE_REGISTER).nodeRegistry.nodeRevision <= core.revision < 10


def with_settings(name: str, mode: bytes) -> pb.PodCreate:
    """A pod with a config map and a secret as volumes."""
    made = create()
    made.podIdentifier, made.pod.metadata.name = f"game/{name}", name
    made.configMap.metadata.name, made.configMap.data["mode"] = "settings", mode.decode()
    secret = made.secrets.add(data={"mode": mode})
    secret.metadata.name = "keys"
    volumes = made.pod.spec.volumes
    volumes.add(name="settings").volumeSource.configMap.localObjectReference.name = "settings"
    volumes.add(name="keys").volumeSource.secret.secretName = "keys"
    return made


async def test_a_config_map_and_a_secret_that_come_with_a_later_pod_are_replaced_in_running_pods(
    agent: AgentModel, core: TinyCore
) -> None:
    def contents() -> list[str]:
        return [path.read_text() for path in (agent.root / "root" / "pods").glob("*/volumes/*/*/mode")]

    async with agent.running():
        await agent.until(lambda: "NODE_READY" in core.kinds())
        core.send(pb.POD_CREATE, podCreate=with_settings("p1", b"slow"))
        await agent.until(lambda: contents() == ["slow"] * 2)
        core.send(pb.POD_CREATE, podCreate=with_settings("p2", b"fast"))
        await agent.until(lambda: contents() == ["fast"] * 4)


async def test_the_health_check_names_a_core_that_does_not_answer_and_does_not_fail(
    agent: AgentModel,
) -> None:
    agent.configure("fornax", cores=("127.0.0.1:1",), identifier=NODE)
    async with agent.running() as backend:
        await agent.until(lambda: status_of(agent).cores)
        health = await backend.about.health()
        (message,) = [part.message for part in health.parts if part.name == "fornaxcore"]
        assert health.ok
        assert message.startswith("127.0.0.1:1 does not answer: ")
        repaired = dict.fromkeys(("pods", "strays", "rows", "ports", "instances"), 0)
        assert await agent.metric("kubeletx_fornaxcore_repaired_total") == repaired
        assert status_of(agent).repaired == repaired


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read"), (b"root:x:0:0", "not a PEM file")]
)
async def test_a_wrong_tls_file_is_named_at_the_start(
    agent: AgentModel, content: bytes | None, problem: str
) -> None:
    path = agent.root / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    agent.configure("fornax", cores=("127.0.0.1:1",), identifier=NODE, ca_file=path)
    with pytest.raises(InvalidConfig, match=f"^--fornaxcore-ca-file: '{path}' .*{problem}"):
        async with agent.running():
            pass


async def test_an_agent_without_cores_says_so(agent: AgentModel) -> None:
    async with agent.running() as backend:
        with pytest.raises(NotFound, match="--fornaxcore-url"):
            backend.fornaxcore()


# A command that is lost is repeated by the core only after its time-out.
@pytest.mark.parametrize(
    ("action", "direction"),
    [
        *((action, Direction.IN) for action in Action),
        (Action.DELAY, Direction.OUT),
        (Action.DUPLICATE, Direction.OUT),
    ],
)
async def test_a_simulated_core_ends_with_the_true_state_after_a_fault(
    agent: AgentModel, action: Action, direction: Direction
) -> None:
    async with FornaxCore() as core:
        agent.configure("fornax", cores=(core.address,))
        async with agent.running():
            await agent.until(core.ready_nodes)
            core.faults.add(Fault(action=action, direction=direction, count=2, seconds=0.05))
            for name in ("a", "b", "c"):
                core.create_pod(PodRequest(namespace="game", name=name, spec=SPEC))
            pods = {"game/a", "game/b", "game/c"}
            await agent.until(lambda: all(core.pod(one).phase == "Running" for one in pods))
            for one in pods:
                core.terminate_pod(one)
            await agent.until(lambda: not pods & core.state.pods.keys() and not agent.alive())
            assert core.faults.pending == 0


@pytest.mark.parametrize("inside_command", [False, True])
async def test_a_node_moves_to_another_core_with_its_pods(agent: AgentModel, inside_command: bool) -> None:
    cluster = Cluster()
    settings = CoreSettings(name="one"), CoreSettings(name="two")
    async with (
        FornaxCore(settings[0], cluster=cluster) as one,
        FornaxCore(settings[1], cluster=cluster) as two,
    ):
        agent.configure("fornax", cores=(one.address, two.address))
        async with agent.running():
            await agent.until(one.ready_nodes)
            node = one.ready_nodes()[0].identifier
            one.create_pod(PodRequest(namespace="game", name="a", spec=SPEC))
            await agent.until(lambda: one.pod("game/a").phase == "Running")
            await agent.until(lambda: "game/a" in two.state.pods)
            cluster.move(node, "two", inside_command=inside_command)
            await agent.until(two.ready_nodes)
            two.create_pod(PodRequest(namespace="game", name="b", spec=SPEC))
            await agent.until(lambda: two.pod("game/b").phase == "Running")
            two.terminate_pod("game/a")
            await agent.until(lambda: agent.alive() == ["b"])
            roles = {link.identifier: link.role for link in status_of(agent).cores}
            assert roles == {"two": "primary", "one": "standby"}
