"""The session service of a whole agent: instances on real containerd, really frozen, and hostile ones beside them.

A test plays the application of a pod: it connects with the pod's own certificate, from outside of the container.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx_testing.instance_client import InstanceClient
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, pod_manifest, put_manifest
from tests.integration.support.session_agent import ROOT, SessionAgent, run_with_door

SHOW = (
    "cd /run/kubeletx/session; ls; stat -c %a tls.key; touch new || echo read-only; echo $KUBELETX_SESSION_SERVICE "
    "$KUBELETX_SESSION_DIRECTORY $KUBELETX_POD_ID; test -S /run/kubeletx/session-service/session.sock && echo socket"
)
REST = {"kubeletx.io/sessions": "true", "kubeletx.io/standby": "hibernated"}


@pytest.fixture
def node(
    make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd, monkeypatch: pytest.MonkeyPatch
) -> SessionAgent:
    """An agent with a runtime that can freeze containers, not started."""
    agent = make_agent(
        endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc", env={"PYTHONPATH": str(ROOT)}
    )
    return run_with_door(agent, monkeypatch)


def put_instance(manifests: Path, name: str, annotations: dict[str, str]) -> None:
    put_manifest(manifests, pod_manifest(name, metadata={"annotations": annotations}))


def files_of(node: SessionAgent, pod: Pod) -> Path:
    return node.agent.root_dir / "pods" / pod.uid / "session"


def client_of(node: SessionAgent, pod: Pod, *, pod_id: str | None = None) -> InstanceClient:
    socket = node.agent.root_dir / "sessions" / "socket" / "session.sock"
    named = f"default/{pod.name}" if pod_id is None else pod_id
    return InstanceClient(f"unix:{socket}", files_of(node, pod), named)


async def wait_for(node: SessionAgent, name: str, condition: str = "") -> Pod:
    """Wait until the pod is ready, or has this word as its column STATUS."""

    def is_wanted(pod: Pod) -> bool:
        found = {one.type for one in pod.status.conditions if one.status == "True"}
        return (condition or "Ready") in found

    return await asyncio.to_thread(node.agent.wait_for, name, is_wanted)


async def open_session(node: SessionAgent, client: InstanceClient, name: str, pod: Pod) -> None:
    """Open a session, and answer as the application does."""
    fields = {"id": f"default/{name}", "pod_id": f"default/{pod.name}", "open_timeout_seconds": 60}
    assert await asyncio.to_thread(lambda: node.call("open", **fields)) in ("Starting", "ReadinessChecking")
    message = await client.read()
    assert message is not None
    assert message.messageType == pb.OPEN_SESSION
    await client.report(message.sessionIdentifier.identifier, pb.STATE_OPEN, "ann")
    await state(node, f"default/{name}", "Live")


async def state(node: SessionAgent, session_id: str, wanted: str) -> None:
    await asyncio.to_thread(node.wait_for, lambda states: states[session_id] == wanted)


async def test_a_frozen_instance_serves_a_session_and_is_frozen_again_also_over_a_crash(
    node: SessionAgent, manifests: Path
) -> None:
    node.agent.start()
    put_instance(manifests, "game", REST)
    put_instance(manifests, "idle", REST)
    pods = [await asyncio.to_thread(node.agent.wait_for, name) for name in ("game", "idle")]
    shown = await asyncio.to_thread(node.agent.cli, "exec", "game-lab", "--", "sh", "-c", SHOW)
    assert shown.stdout.splitlines() == [
        *("ca.crt", "metadata.json", "tls.crt", "tls.key", "644", "read-only"),
        "unix:///run/kubeletx/session-service/session.sock /run/kubeletx/session default/game-lab",
        "socket",
    ]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(node, pod)) for pod in pods]
        for client in clients:
            await client.attach()
        for name in ("game", "idle"):
            await wait_for(node, name, "kubeletx.io/Standby")
        await open_session(node, clients[0], "s1", pods[0])
        await wait_for(node, "game")

        await asyncio.to_thread(node.agent.kill)
        await asyncio.to_thread(node.agent.start)
        # A crash loses what was not stored yet: the instance is then asked to open the session again.
        assert node.states()["default/s1"] in ("Live", "ReadinessChecking")
        for client in clients:
            await client.attach()
        asked = await clients[0].read()
        assert asked is not None
        assert asked.messageType in (pb.PING_SESSION, pb.OPEN_SESSION)
        await clients[0].report("default/s1", pb.STATE_OPEN, "ann")
        await state(node, "default/s1", "Live")
        idle = await wait_for(node, "idle", "kubeletx.io/Standby")
        game = await wait_for(node, "game")
        for before, after in zip(pods, (game, idle), strict=True):
            assert (
                after.status.container_statuses[0].container_id
                == before.status.container_statuses[0].container_id
            )

        await clients[0].report("default/s1", pb.STATE_OPEN)
        await state(node, "default/s1", "Ready")
        assert await asyncio.to_thread(lambda: node.call("close", id="default/s1")) == "Ready"
        closing = await clients[0].read()
        assert closing is not None
        assert closing.messageType == pb.CLOSE_SESSION
        await clients[0].report("default/s1", pb.STATE_CLOSED)
        await state(node, "default/s1", "Terminated")
        await wait_for(node, "game", "kubeletx.io/Standby")
    (manifests / "game.json").unlink()
    await asyncio.to_thread(node.agent.wait_gone, "game")
    assert not files_of(node, pods[0]).exists()


async def test_hostile_instances_neither_speak_for_others_nor_keep_the_service_from_them(
    node: SessionAgent, manifests: Path
) -> None:
    node.agent.start()
    for name in ("honest", "hostile"):
        put_instance(manifests, name, {"kubeletx.io/sessions": "true"})
    honest, hostile = [await asyncio.to_thread(node.agent.wait_for, name) for name in ("honest", "hostile")]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(node, honest))
        await client.attach()
        attackers = [await stack.enter_async_context(client_of(node, hostile)) for _ in range(20)]
        floods = [asyncio.create_task(flood(one), name="flood") for one in attackers]
        thief = await stack.enter_async_context(client_of(node, hostile, pod_id="default/honest-lab"))
        with pytest.raises(grpc.aio.AioRpcError, match="is not the pod of this certificate"):
            await thief.attach()
        await open_session(node, client, "s1", honest)
        assert not any(one.done() for one in floods)
        for one in floods:
            one.cancel()
        await asyncio.gather(*floods, return_exceptions=True)
    metadata = json.loads((files_of(node, honest) / "metadata.json").read_bytes())
    assert metadata["podId"] == "default/honest-lab"
    assert node.states() == {"default/s1": "Live"}
    assert sum("is not the pod of this" in line for line in node.agent.log_path.read_text().splitlines()) == 1


async def flood(client: InstanceClient) -> None:
    """Send reports of unknown sessions as fast as possible, and never read."""
    await client.attach()
    while True:
        reports = (client.report("default/none", pb.STATE_OPEN) for _ in range(8))
        await asyncio.gather(*reports, return_exceptions=True)
