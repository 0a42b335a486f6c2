"""A simulated core, with a small node that speaks the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import grpc
import pytest

from kubeletx.api.errors import AlreadyExists, Conflict, InvalidPod
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.testing.clock import FakeClock
from kubeletx_testing.apiserver.ca import CertificateAuthority
from kubeletx_testing.fornaxcore import (
    Action,
    Cluster,
    CoreSettings,
    Direction,
    Fault,
    FornaxCore,
    PodRequest,
    SessionRequest,
    Tls,
    names,
)
from testing.tests.fornaxcore.small_node import NODE, SmallNode

POD = PodRequest(name="web", application="shop", spec={"containers": [{"name": "app", "image": "i"}]})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def core(clock: FakeClock) -> AsyncIterator[FornaxCore]:
    async with FornaxCore(clock=clock) as core:
        yield core


@pytest.fixture
async def node(core: FornaxCore) -> AsyncIterator[SmallNode]:
    async with SmallNode(core) as node:
        await node.become_ready()
        yield node


async def running_pod(core: FornaxCore, node: SmallNode, request: PodRequest = POD) -> pb.PodCreate:
    core.create_pod(request)
    create: pb.PodCreate = await node.next("podCreate")
    await node.put(podState=node.pod(create))
    return create


async def test_a_node_registers_and_a_second_stream_is_refused(core: FornaxCore, node: SmallNode) -> None:
    assert [one.identifier for one in core.ready_nodes()] == [NODE]
    async with SmallNode(core) as second:
        assert (await second.stream_error()).code() is grpc.StatusCode.UNKNOWN
    core.history.check()


async def test_a_session_reuses_an_idle_pod(core: FornaxCore, node: SmallNode) -> None:
    create = await running_pod(core, node)
    session = core.open_session(SessionRequest(id="shop/s1", application="shop", data="x"))
    opened = await node.next("sessionOpen")
    assert opened.session.metadata.annotations[names.SESSION_POD] == "default/web"
    with pytest.raises(Conflict, match="no idle pod"):
        core.open_session(SessionRequest(id="shop/s2", application="shop"))
    await node.put(podState=node.pod(create, sessions="shop/s1"))
    await node.put(sessionState=node.session(opened, "Available"))
    assert session.status == "Available"
    core.close_session("shop/s1")
    await node.next("sessionClose")
    await node.put(sessionState=node.session(opened, "Closed"))
    assert core.open_session(SessionRequest(id="shop/s2", application="shop")).pod == "default/web"
    core.history.check()


async def test_commands_time_out_and_are_repeated(
    core: FornaxCore, node: SmallNode, clock: FakeClock
) -> None:
    core.create_pod(POD)
    await node.next("podCreate")
    await clock.run_for(30)
    await node.next("podTerminate")
    await clock.run_for(30)
    await node.next("podTerminate")
    create = await running_pod(core, node, PodRequest(name="two", application="shop"))
    view = core.open_session(SessionRequest(id="shop/s1", pod="default/two", openTimeoutSeconds=3))
    await node.next("sessionOpen")
    await clock.run_for(3)
    await node.next("sessionClose")
    assert view.status == "Timeout"
    core.terminate_pod("default/two")
    await node.next("podTerminate")
    await node.put(podState=node.pod(create))  # a report of a pod that still runs
    await node.next("podTerminate")
    await node.put(podState=node.pod(create, "Succeeded"))
    assert "default/two" not in core.state.pods


async def test_a_gap_asks_for_a_full_list_that_deletes_what_it_lacks(
    core: FornaxCore, node: SmallNode
) -> None:
    create = await running_pod(core, node)
    node.revision += 1
    await node.put(podState=node.pod(create))
    await node.next("nodeFullSync")
    assert core.history.gaps
    await node.put(nodeState=pb.NodeState(nodeRevision=node.revision, node=node.node()))
    assert core.state.pods == {}


async def test_a_pod_without_a_greater_revision_is_ignored_with_its_sessions(
    core: FornaxCore, node: SmallNode
) -> None:
    create = await running_pod(core, node)
    core.open_session(SessionRequest(id="shop/s1", pod="default/web"))
    opened = await node.next("sessionOpen")
    await node.put(sessionState=node.session(opened, "Available"))
    state = node.pod(create)
    state.pod.metadata.annotations[names.REVISION] = str(core.state.pods["default/web"].revision)
    state.sessionStates.append(node.session(opened, "Closed"))
    listed = pb.NodeState(nodeRevision=node.revision, node=node.node(), podStates=[state])
    await node.put(nodeState=listed)
    assert core.state.sessions["shop/s1"].status == "Available"
    with pytest.raises(AssertionError, match="revision of pod default/web has not grown"):
        core.history.check()


@pytest.mark.parametrize("action", [Action.DROP, Action.FAIL, Action.DUPLICATE, Action.REORDER, Action.DELAY])
async def test_gaps_after_a_fault_are_explained(
    core: FornaxCore, node: SmallNode, clock: FakeClock, action: Action
) -> None:
    core.create_pod(POD)
    create = await node.next("podCreate")
    core.faults.add(Fault(action=action, types=("POD_STATE",)))
    is_refused = action is Action.FAIL
    with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE") if is_refused else nullcontext():
        await node.put(podState=node.pod(create, "Pending"))
    await node.put(podState=node.pod(create))
    await clock.run_for(1)
    assert core.faults.pending == 0
    assert (core.history.explained == []) is (action is Action.DUPLICATE)
    core.history.check()


async def test_commands_can_be_lost_doubled_and_exchanged(core: FornaxCore, node: SmallNode) -> None:
    for action in (Action.DROP, Action.DUPLICATE, Action.REORDER):
        core.faults.add(Fault(action=action, direction=Direction.OUT))
    for name in ("lost", "twice", "late", "early"):
        core.create_pod(PodRequest(name=name))
    received = [(await node.next("podCreate")).pod.metadata.name for _ in range(4)]
    assert received == ["twice", "twice", "early", "late"]


async def test_a_restart_forgets_everything_and_silence_closes_nothing(core: FornaxCore) -> None:
    async with SmallNode(core) as node:
        await node.become_ready()
        core.line.hold()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node.put(timeout=0.05, nodeState=pb.NodeState())
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert core.is_connected(NODE)
        core.line.release()
        core.line.cut_after(0)  # a silent connection remains silent
        await core.restart()
        assert core.state.nodes == {}
        await node.stream_error()
        node.open()
        await node.next("nodeFullSync")


async def test_another_core_owns_the_node_after_a_move() -> None:
    cluster = Cluster()
    one, two = (FornaxCore(CoreSettings(name=name), cluster=cluster) for name in ("one", "two"))
    async with one, two, SmallNode(two) as node:
        await node.next("nodeFullSync")
        await node.put(nodeRegistry=pb.NodeRegistry(nodeRevision=1, node=node.node()))
        configuration = await node.next("fornaxCoreConfiguration")
        assert configuration == pb.FornaxCoreConfiguration(primary=one.identity, standbys=[two.identity])
        cluster.move(NODE, "two")
        assert (await node.next("fornaxCoreConfiguration")).primary == two.identity
        cluster.move(NODE, "one", inside_command=True)
        two.send(NODE, pb.FornaxCoreMessage(podTerminate=pb.PodTerminate(podIdentifier="a/b")))
        assert (await node.commands.get()).ownership.primary == one.identity


async def test_tls_needs_a_certificate_of_the_node(tmp_path: Path) -> None:
    ca = CertificateAuthority(tmp_path)
    server, client = ca.server("core", hosts=["127.0.0.1"]), ca.client("node")
    tls = Tls(cert_file=server.cert_file, key_file=server.key_file, client_ca_file=ca.ca_file)
    async with FornaxCore(CoreSettings(tls=tls)) as core:
        pair = (client.key_file.read_bytes(), client.cert_file.read_bytes())
        async with SmallNode(core, credentials=grpc.ssl_channel_credentials(ca.pem, *pair)) as node:
            await node.become_ready()
        async with SmallNode(core, credentials=grpc.ssl_channel_credentials(ca.pem)) as stranger:
            assert (await stranger.stream_error()).code() is grpc.StatusCode.UNAVAILABLE


async def test_manifests_become_messages(core: FornaxCore, node: SmallNode) -> None:
    spec = {
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
        "containers": [
            {
                "name": "app",
                "resources": {"limits": {"cpu": "1"}},
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "livenessProbe": {"httpGet": {"port": 80}},
            }
        ],
    }
    core.create_pod(
        PodRequest(name="web", spec=spec, secrets=[{"metadata": {"name": "s"}, "data": {"k": "eA=="}}])
    )
    create = await node.next("podCreate")
    (app,) = create.pod.spec.containers
    assert create.pod.spec.volumes[0].volumeSource.emptyDir.sizeLimit.string == "1Mi"
    assert app.livenessProbe.handler.httpGet.port.intVal == 80
    assert app.env[0].valueFrom.secretKeyRef.localObjectReference.name == "s"
    assert app.resources.limits["cpu"].string == "1"
    assert create.secrets[0].data["k"] == b"x"
    with pytest.raises(AlreadyExists):
        core.create_pod(PodRequest(name="web"))
    with pytest.raises(InvalidPod, match=r"spec.containers\[0\].imagee"):
        core.create_pod(PodRequest(name="x", spec={"containers": [{"imagee": "a"}]}))
