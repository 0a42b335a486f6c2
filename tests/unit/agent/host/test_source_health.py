"""Pod sources over a life of the agent: what they cannot read costs no running pod and hides nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from kubeletx.agent.cluster.member import Cluster
from kubeletx.agent.host.source_health import FORGET_SECONDS, SourceHealth
from kubeletx.api import InvalidPod, ObjectRef
from kubeletx.kube.manifests.load import load_pods
from kubeletx.node.events import EventRecorder
from kubeletx.pods.model.sources import FILE
from kubeletx.server.views import DeleteOptions, PodTarget
from kubeletx.testing import FakeClock
from tests.unit.agent.agent_model import AgentModel

MANIFEST = (
    "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: busybox}]}}"
)
WEB = PodTarget(namespace="default", name="web")


class Site:
    """A web server whose answer a test sets."""

    body = MANIFEST.encode()

    async def handle(self, request: web.BaseRequest) -> web.Response:
        return web.Response(body=self.body)


@asynccontextmanager
async def serving(agent: AgentModel) -> AsyncIterator[Site]:
    site = Site()
    runner = web.ServerRunner(web.Server(site.handle), shutdown_timeout=0.01)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await web.SockSite(runner, listener).start()
        port = listener.getsockname()[1]
        agent.configure("sources", manifest_url=f"http://127.0.0.1:{port}/pods", pod_manifest_path=None)
        try:
            yield site
        finally:
            await runner.cleanup()


@pytest.mark.parametrize("answer", [b"<html>Sign in</html>", b"", b"\xff", b"{}"])
async def test_a_url_that_answers_with_garbage_at_the_start_ends_no_pod(
    agent: AgentModel, answer: bytes
) -> None:
    async with serving(agent) as site:
        async with agent.running():
            await agent.until(lambda: agent.phase("web-node") == "Running")
        site.body = answer
        async with agent.running():
            await agent.clock.run_for(60)
            assert agent.alive() == ["web-node"]
            site.body = b'{"apiVersion": "v1", "kind": "PodList", "items": []}'
            await agent.until(lambda: not agent.alive())


async def test_an_applied_file_that_broke_ends_no_pod_and_can_be_deleted(agent: AgentModel) -> None:
    async with agent.running():
        await agent.apply(load_pods(MANIFEST.encode(), "web.yaml")[0])
    (path,) = filter(Path.is_file, agent.config.applied_directory.iterdir())
    path.write_text("kind: [")
    async with assembled(agent):
        await agent.clock.run_for(60)
        assert agent.alive() == ["web"]
        shown = await agent.parts.backend.pods.delete_pod(WEB, DeleteOptions(grace_seconds=1))
        assert shown.metadata.deletion_timestamp is not None
        await agent.until(lambda: not agent.alive())
        assert "applied" in agent.parts.manager.synced_sources
    assert not path.exists()


@asynccontextmanager
async def assembled(agent: AgentModel) -> AsyncIterator[None]:
    """Like `AgentModel.running`, for a source of applied pods that does not report itself as synced."""
    agent.is_applied_awaited = False
    async with agent.running():
        await agent.until(lambda: agent.parts.manager.find("default", "web") is not None)
        yield


async def test_a_source_that_fails_repeatedly_shows_in_health_and_as_an_event(agent: AgentModel) -> None:
    agent.configure("sources", pod_manifest_path=agent.root / "a\0b")
    async with agent.running() as backend:
        assert (await backend.about.health()).ok
        await agent.clock.run_for(15)
        (part,) = [one for one in (await backend.about.health()).parts if not one.ok]
        assert part.name == "sources"
        assert (part.message or "").startswith("file failed 2 times: ValueError: ")
        (event,) = [one for one in await backend.node.list_events() if one.reason == "FailedSource"]
        assert event.message is not None
        assert "Pod source file fails repeatedly" in event.message


def test_one_failure_now_and_then_is_not_a_repeated_one() -> None:
    clock = FakeClock()
    events = EventRecorder(clock=clock, node_name="n")
    health = SourceHealth(clock=clock, events=events, node=ObjectRef(kind="Node", name="n"))
    for _ in range(5):
        health.failed("file", OSError("no"))
        clock.advance(FORGET_SECONDS)
    assert health.problems() == ()
    assert events.list_events() == []
    for _ in range(2):
        health.failed("file", OSError("no"))
    assert health.problems() == ("file failed 2 times: OSError: no",)
    clock.advance(FORGET_SECONDS)
    assert health.problems() == ()


async def test_events_of_a_manifest_with_a_bad_string_can_be_listed(agent: AgentModel) -> None:
    bad = agent.root / "manifests" / "a\udcff.yaml"
    bad.write_text(MANIFEST)
    (agent.root / "manifests" / "b.json").write_text('{"\\ud800": 1}')
    (agent.root / "manifests" / "c.yaml").write_text(MANIFEST)
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("web-node") == "Running")
        manager = agent.parts.manager
        assert sorted(origin.rpartition("/")[2] for _, origin in manager.problems) == [
            "a\\udcff.yaml",
            "b.json",
        ]
        manager.invalid(FILE, "x", InvalidPod(obj="\udcfe", field="a", problem="\ud800"))
        texts = [
            event.message for event in await backend.node.list_events() if event.reason == "FailedValidation"
        ]
        assert len(texts) == 3
        assert all((text or "").encode() for text in texts)


async def test_a_misspelt_field_of_a_manifest_file_is_an_event_of_its_pod(agent: AgentModel) -> None:
    text = MANIFEST.replace("spec: {", "spec: {restartPolice: Never, hostNetworks: true, ")
    (agent.root / "manifests" / "web.yaml").write_text(text)
    async with agent.running() as backend:
        await agent.until(lambda: agent.phase("web-node") == "Running")
        found = [one for one in await backend.node.list_events() if one.reason == "UnknownField"]
    assert [event.message for event in found] == [
        'unknown field "spec.restartPolice"',
        'unknown field "spec.hostNetworks"',
    ]
    assert {event.involved_object.name for event in found} == {"web-node"}


async def test_a_pod_source_of_an_api_server_that_fails_shows_in_health_too() -> None:
    async def idle() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ValueError("no good")

    async def done(*_: object) -> None:
        """Nothing to wait for."""

    clock = FakeClock()
    events = EventRecorder(clock=clock, node_name="n")
    health = SourceHealth(clock=clock, events=events, node=ObjectRef(kind="Node", name="n"))
    registered = asyncio.Event()
    registered.set()
    part: Any = SimpleNamespace(
        run=idle,
        claim=idle,
        registered=registered,
        synced=asyncio.Event(),
        wait_classes=done,
        reporting=SimpleNamespace(while_allowed=done),
        found=SimpleNamespace(bootstrap=None),
        client_rotation=None,
    )
    part.objects = part.class_reflector = part
    failing: Any = SimpleNamespace(run=fail)
    cluster = Cluster(
        clock=clock,
        health=health,
        link=part,
        node=part,
        pods=part,
        lease=part,
        statuses=part,
        mirrors=part,
        server_rotation=None,
        taints=None,
        events=part,
        pod_reflector=failing,
        node_reflector=failing,
    )
    task = asyncio.create_task(cluster.run())
    await clock.run_for(15)
    assert health.problems() == ("api failed 2 times: ValueError: no good",)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
