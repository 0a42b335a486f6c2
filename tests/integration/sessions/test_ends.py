"""Pods that the node ends while they have sessions: the sessions are evacuated before a container is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx_testing.instance_client import InstanceClient
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, pod_manifest, put_manifest
from kubeletx_testing.lab.logind import PrivateLogind
from tests.integration.sessions.test_session_service import client_of, open_session, state
from tests.integration.support.session_agent import ROOT, SessionAgent, run_with_door
from tests.integration.support.survival import JSON, log_lines, until

GRACE_SECONDS = 300
"""So long that no evacuation reaches its deadline, however busy the machine is."""
SOFT = (
    "--eviction-soft=memory.available<1Ei",
    "--eviction-soft-grace-period=memory.available=1s",
    f"--eviction-max-pod-grace-period={GRACE_SECONDS}",
)
CONFIG = f"""
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: {GRACE_SECONDS + 60}s
shutdownGracePeriodCriticalPods: 60s
"""
ORDER = ("Evacuated pod", "Stopped container")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[PrivateLogind]:
    directory = tmp_path / "bus"
    directory.mkdir()
    with PrivateLogind(directory) as one:
        yield one


@pytest.fixture
def node(
    make_agent: Callable[..., PrivateAgent],
    containerd_a: PrivateContainerd,
    host: PrivateLogind,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> SessionAgent:
    """An agent, started, that a shutdown of the host waits for."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    agent = make_agent(
        endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc",
        flags=(JSON, f"--config={config}"),
        env={"PYTHONPATH": str(ROOT), "DBUS_SYSTEM_BUS_ADDRESS": host.address},
    )
    found = run_with_door(agent, monkeypatch)
    agent.start()
    host.said("locked shutdown kubeletx delay")
    return found


def pod_of(node: SessionAgent) -> Pod:
    return next(pod for pod in node.agent.pods() if pod.name == "game")


def ends(node: SessionAgent) -> list[str]:
    """The evacuations and stops of the agent's log, in order."""
    return [line["event"] for line in log_lines(node.agent) if line.get("event") in ORDER]


async def start_game(node: SessionAgent, directory: Path) -> Pod:
    """Apply a pod with sessions, which unlike a static one may be evicted."""
    spec = {"terminationGracePeriodSeconds": GRACE_SECONDS}
    metadata = {"annotations": {"kubeletx.io/sessions": "true"}}
    path = put_manifest(directory, pod_manifest("game", spec=spec, metadata=metadata))
    done = await asyncio.to_thread(node.agent.cli, "apply", "-f", str(path))
    assert done.returncode == 0, done.stderr
    return await asyncio.to_thread(node.agent.wait_for, "game")


async def close_when_asked(node: SessionAgent, client: InstanceClient) -> None:
    """Answer pings, and close the session as its evacuation asks for; until then the container runs."""
    while (message := await client.read()) is not None and message.messageType == pb.PING_SESSION:
        await client.report("default/s1", pb.STATE_OPEN, "ann")
    assert message is not None
    assert message.messageType == pb.CLOSE_SESSION
    await state(node, "default/s1", "Evacuating")
    assert not ends(node)
    await client.report("default/s1", pb.STATE_CLOSED)


async def check_ended(node: SessionAgent, reason: str) -> None:
    await asyncio.to_thread(until, lambda: pod_of(node).status.phase == "Failed", "the end of the pod")
    assert pod_of(node).status.reason == reason
    assert node.states() == {"default/s1": "Terminated"}
    assert ends(node) == list(ORDER)


async def test_an_evicted_pod_loses_its_sessions_before_its_container(
    node: SessionAgent, tmp_path: Path
) -> None:
    pod = await start_game(node, tmp_path)
    async with client_of(node, pod) as client:
        await client.attach()
        await open_session(node, client, "s1", pod)
        await asyncio.to_thread(node.agent.stop)
        node.agent.argv().extend(SOFT)
        await asyncio.to_thread(node.agent.start)
        await client.attach()
        await close_when_asked(node, client)
        await check_ended(node, "Evicted")


async def test_a_shutdown_of_the_host_waits_until_sessions_have_ended(
    node: SessionAgent, host: PrivateLogind, tmp_path: Path
) -> None:
    pod = await start_game(node, tmp_path)
    async with client_of(node, pod) as client:
        await client.attach()
        await open_session(node, client, "s1", pod)
        host.tell("begin")
        host.tell("wait")
        await close_when_asked(node, client)
        await asyncio.to_thread(host.said, "released")
        await check_ended(node, "Terminated")
