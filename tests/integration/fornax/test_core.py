"""A whole agent under simulated cores, with real containerd and really frozen containers.

A test plays the application of an instance, from outside of its container. After each test the core has seen no message
that breaks the protocol, and no sandbox, port, address, certificate or mount of its pods is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.kube.types.core import Pod
from kubeletx.sessions.stubs import session_service_pb2 as session_pb
from kubeletx_testing.fornaxcore import (
    Action,
    Cluster,
    CoreSettings,
    Fault,
    FornaxCore,
    PodRequest,
    SessionRequest,
)
from kubeletx_testing.instance_client import InstanceClient
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, image_ref, pod_manifest
from kubeletx_testing.lab.mounts import list_mounts

NODE = "fornax.centaurusinfra.io/lab"
STANDBY = {"kubeletx.io/standby": "standby"}
WITH_SESSIONS = {**STANDBY, "kubeletx.io/sessions": "true"}
SECONDS = 60.0


def pod_request(name: str, annotations: dict[str, str] = STANDBY, **fields: Any) -> PodRequest:
    spec = pod_manifest(name, **fields)["spec"]
    spec.pop("nodeName", None)
    return PodRequest(name=name, application="default/shop", spec=spec, annotations=annotations)


class Node:
    """The agent, and its cores."""

    def __init__(self, agent: PrivateAgent, containerd: PrivateContainerd, cores: list[FornaxCore]) -> None:
        self.agent = agent
        self.containerd = containerd
        self.cores = cores
        self.core = cores[0]

    async def start(self) -> None:
        self.agent.flags = tuple(f"--fornaxcore-url={core.address}" for core in self.cores)
        await asyncio.to_thread(self.agent.start)
        await self.until(self.core.ready_nodes)

    async def kill(self) -> None:
        assert self.agent.daemon is not None
        os.kill(self.agent.daemon.pid, signal.SIGKILL)
        await asyncio.to_thread(self.agent.stop)

    async def until(self, holds: Callable[[], object], core: FornaxCore | None = None) -> None:
        await (core or self.core).wait_for(holds, SECONDS)

    async def create(self, request: PodRequest) -> Pod:
        """Create a pod, and wait until it is frozen."""
        self.core.create_pod(request)
        await self.until(lambda: self.phase(request.id) == "Running" and self.word(request.id) == "Standby")
        return await asyncio.to_thread(self.agent.wait_for, request.name, lambda pod: True)

    def phase(self, id: str) -> str:
        found = self.core.state.pods.get(id)
        return found.phase if found is not None else ""

    def word(self, id: str) -> str:
        found = self.core.state.pods.get(id)
        return found.state if found is not None else ""

    def status(self, id: str) -> str:
        return self.core.state.sessions[id].status

    async def terminate(self, *ids: str) -> None:
        for id in ids:
            self.core.terminate_pod(id)
        await self.until(lambda: not set(ids) & self.core.state.pods.keys())

    def sandboxes(self) -> list[str]:
        with self.containerd.cri() as cri:
            found = cri.call("ListPodSandbox").items
        return [one.metadata.name for one in found if one.metadata.namespace == "default"]

    def leftovers(self) -> list[str]:
        root = self.agent.root_dir
        left = [f"sandbox {name}" for name in self.sandboxes()]
        left += [f"mount {one}" for one in list_mounts(root)]
        for directory in (root / "pods", root / "sessions" / "instances"):
            if directory.is_dir():
                left += [str(one) for one in directory.iterdir()]
        return left


@pytest.fixture
async def cores() -> AsyncIterator[list[FornaxCore]]:
    """Two cores of one cluster; the first one owns the node."""
    cluster = Cluster()
    async with AsyncExitStack() as stack:
        made = [
            FornaxCore(CoreSettings(name=name, create_seconds=SECONDS, open_seconds=SECONDS), cluster=cluster)
            for name in ("core-1", "core-2")
        ]
        for core in made:
            await stack.enter_async_context(core)
        yield made


@pytest.fixture
async def node(
    make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd, cores: list[FornaxCore]
) -> AsyncIterator[Node]:
    """The agent with a runtime that freezes containers, under the first core."""
    agent = make_agent(endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc")
    made = Node(agent, containerd_a, cores)
    made.cores = cores[:1]
    await made.start()
    yield made
    await made.terminate(*made.core.state.pods)
    async with asyncio.timeout(SECONDS):
        while left := await asyncio.to_thread(made.leftovers):
            await asyncio.sleep(0.1)
    assert left == []
    for core in cores:
        core.history.check()
    await asyncio.to_thread(agent.stop)


def application(node: Node, pod: Pod) -> InstanceClient:
    socket = node.agent.root_dir / "sessions" / "socket" / "session.sock"
    files = next((node.agent.root_dir / "sessions" / "instances").glob(f"{pod.uid}*"), None)
    files = files or Path(node.agent.root_dir / "pods" / pod.uid / "session")
    return InstanceClient(f"unix:{socket}", files, f"default/{pod.name}")


async def test_a_standby_pod_is_woken_by_a_session_and_frozen_again(node: Node) -> None:
    node.core.create_pod(pod_request("game", WITH_SESSIONS))
    pod = await asyncio.to_thread(node.agent.wait_for, "game")
    async with application(node, pod) as app:
        await app.attach()  # an instance that does not attach in time is not alive
        await node.until(lambda: node.word("default/game") == "Standby")
        session = node.core.open_session(
            SessionRequest(id="shop/s1", application="default/shop", data="level 1")
        )
        opened = await app.read()
        assert opened is not None
        assert opened.openSession.sessionConfiguration.sessionData == b"level 1"
        await app.report("shop/s1", session_pb.STATE_OPEN)
        await node.until(lambda: session.status == "Available")
        await app.report("shop/s1", session_pb.STATE_OPEN, "ann")
        await node.until(lambda: session.status == "InUse" and session.clients == ["ann"])
        await node.until(lambda: node.word("default/game") == "Running")
        node.core.close_session("shop/s1")
        closing = await app.read()
        assert closing is not None
        assert closing.messageType == session_pb.CLOSE_SESSION
        await app.report("shop/s1", session_pb.STATE_CLOSED)
        await node.until(lambda: session.status == "Closed" and node.word("default/game") == "Standby")
    assert node.core.history.values("SESSION_STATE", "shop/s1")[-1] == "Closed"


async def test_every_command_is_answered(node: Node) -> None:
    await node.create(pod_request("one"))
    create = node.core.history.of("POD_CREATE", "default/one")[-1].message
    assert create is not None
    reports = len(node.core.history.of("POD_STATE", "default/one"))
    node.core.send(NODE, pb.FornaxCoreMessage(podCreate=create.podCreate))
    await node.until(lambda: len(node.core.history.of("POD_STATE", "default/one")) > reports)
    lists = len(node.core.history.of("NODE_STATE"))
    node.core.send(NODE, pb.FornaxCoreMessage(podTerminate=pb.PodTerminate(podIdentifier="default/unknown")))
    await node.until(lambda: len(node.core.history.of("NODE_STATE")) > lists)
    request = SessionRequest(id="shop/refused", pod="default/one")
    opened = pb.SessionOpen(sessionIdentifier=request.id, podIdentifier="default/unknown")
    opened.session.metadata.namespace, opened.session.metadata.name = "shop", "refused"
    node.core.send(NODE, pb.FornaxCoreMessage(sessionOpen=opened))
    await node.until(lambda: node.core.history.values("SESSION_STATE", request.id) == ["Closed"])
    node.core.create_pod(pod_request("bad", {}, container={"image": image_ref("missing")}))
    await node.until(lambda: "default/bad" not in node.core.state.pods)


async def test_the_core_ends_with_the_true_state_after_faults(node: Node) -> None:
    await node.create(pod_request("one"))
    node.core.faults.add(Fault(action=Action.DROP, types=("SESSION_STATE",)))
    session = node.core.open_session(SessionRequest(id="shop/s1", pod="default/one"))
    await node.until(lambda: node.core.faults.pending == 0)
    node.core.faults.add(Fault(action=Action.FAIL, types=("SESSION_STATE", "POD_STATE")))
    node.core.close_session("shop/s1")
    await node.until(lambda: session.status == "Closed" and node.word("default/one") == "Standby")
    await node.core.restart()
    await node.until(lambda: node.word("default/one") == "Standby" and node.core.ready_nodes())
    node.core.line.hold()
    node.core.create_pod(pod_request("two"))
    node.core.line.release()  # connections of that time remain silent
    # The new stream begins with a full list, which lacks the lost pod.
    await node.until(lambda: "default/two" not in node.core.state.pods and node.core.ready_nodes())
    assert node.word("default/one") == "Standby"


async def test_a_killed_agent_comes_back_with_its_pods_and_sessions(node: Node) -> None:
    await node.create(pod_request("one"))
    session = node.core.open_session(SessionRequest(id="shop/s1", pod="default/one"))
    await node.until(lambda: session.status == "Available")
    sandboxes = node.sandboxes()
    node.core.create_pod(pod_request("two"))
    await node.until(lambda: node.word("default/two") == "Creating")
    await node.kill()
    await node.until(lambda: not node.core.is_connected(NODE))
    await asyncio.to_thread(node.agent.start)
    await node.until(lambda: node.core.ready_nodes() and node.word("default/two") == "Standby")
    assert session.status == "Available"
    assert set(sandboxes) <= set(node.sandboxes())
    node.core.close_session("shop/s1")
    await node.until(lambda: session.status == "Closed" and node.word("default/one") == "Standby")


async def test_a_container_that_is_removed_behind_the_agent_ends_the_session(node: Node) -> None:
    pod = await node.create(pod_request("one"))
    session = node.core.open_session(SessionRequest(id="shop/s1", pod="default/one"))
    await node.until(lambda: session.status == "Available")
    with node.containerd.cri() as cri:
        (container,) = [
            one.id
            for one in cri.call("ListContainers").containers
            if one.labels["io.kubernetes.pod.uid"] == pod.uid
        ]
        await asyncio.to_thread(cri.call, "StopContainer", container_id=container)
        await asyncio.to_thread(cri.call, "RemoveContainer", container_id=container)
    await node.until(lambda: session.status == "Closed" and node.word("default/one") == "Standby")


async def test_another_core_takes_the_node_over(node: Node, cores: list[FornaxCore]) -> None:
    first, second = cores
    await node.create(pod_request("one"))
    first.cluster.move(NODE, "core-2")
    await node.until(lambda: second.ready_nodes() and "default/one" in second.state.pods, second)
    session = second.open_session(SessionRequest(id="shop/s1", pod="default/one"))
    await node.until(lambda: session.status == "Available" and "shop/s1" in first.state.sessions, second)
    first.cluster.move(NODE, "core-1", inside_command=True)
    first.close_session("shop/s1")
    await node.until(lambda: session.status == "Closed", second)
    await node.until(lambda: first.ready_nodes() and node.word("default/one") == "Standby")
