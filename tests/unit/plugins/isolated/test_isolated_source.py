"""A pod source of a stranger's distribution, in a real child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

from kubeletx.api import InvalidPod, KubeletxError, PodUid
from kubeletx.kube.types.core import Pod
from kubeletx.plugins.pod_sources import RESTART_SECONDS, SourceParts
from kubeletx.pods.model.sources import Accepted
from kubeletx.static.manifest import ManifestReader
from kubeletx_testing.waiting import until
from tests.unit.plugins.isolated.services_model import ServicesModel


class Pods:
    """The pod manager as a source sees it: keeps the names of pods, and what it was told."""

    def __init__(self) -> None:
        self.names: dict[PodUid, str] = {}
        self.invalids: list[str] = []
        self.synced_count = 0
        self.failures: list[str] = []

    def update(self, source: str, pod: Pod) -> Any:
        self.names[pod.uid] = pod.name
        return Accepted()

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        self.names.pop(uid, None)

    def synced(self, source: str) -> None:
        self.synced_count += 1

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        self.invalids.append(str(error))

    def valid(self, source: str, origin: str) -> None:
        pass

    def on_failure(self, name: str, error: Exception) -> None:
        assert isinstance(error, KubeletxError)
        self.failures.append(str(error))


@contextlib.asynccontextmanager
async def running(model: ServicesModel) -> AsyncIterator[Pods]:
    """The source as the agent runs it."""
    pods = Pods()
    parts = SourceParts(
        pods=pods,
        reader=ManifestReader(node_name="node-1"),
        clock=model.clock,
        on_failure=pods.on_failure,
    )
    (run,) = model.services.sources.feeds(parts).values()
    task = asyncio.create_task(run())
    try:
        yield pods
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_source_sets_and_removes_pods_and_gets_the_answers_at_once(model: ServicesModel) -> None:
    async with running(model) as pods:
        answers = model.file("t-source", "answers")
        await until(answers.exists)
        await until(answers.read_text)
        accepted, refused = "<PodAnswer.ACCEPTED: 'accepted'>", "<PodAnswer.REFUSED: 'refused'>"
        assert answers.read_text() == f"[{accepted}, {refused}, {refused}, False, {accepted}, True]"
        assert list(pods.names.values()) == ["web-node-1"]
        assert pods.synced_count == 1
        bad, odd = pods.invalids
        assert "spec" in bad
        assert "is not JSON: set is not a JSON value" in odd


async def test_a_source_whose_process_ends_keeps_its_pods_and_runs_again(model: ServicesModel) -> None:
    async with running(model) as pods:
        await until(lambda: pods.synced_count)
        first = model.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: pods.failures)
        assert pods.failures == ["the process of plugin distribution troubled: its connection closed"]
        assert model.callbacks("t-source").state.word == "degraded"
        assert list(pods.names.values()) == ["web-node-1"]
        await model.ended()
        model.wait_over()
        model.clock.advance(RESTART_SECONDS)
        await until(lambda: pods.synced_count == 2)
        assert list(pods.names.values()) == ["web-node-1"]
        assert model.pid != first
        assert model.callbacks("t-source").state.word == "ready"
