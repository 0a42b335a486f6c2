"""Traces of pods' starts, as an OpenTelemetry collector gets them over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from structlog.testing import capture_logs

from kubeletx.agent.config.load import load_config
from kubeletx.agent.config.tree import TracingSettings
from kubeletx.agent.host.tracing import SpanSender
from kubeletx.api import InvalidConfig, Unavailable
from kubeletx.kube.types.core import Container, ExecAction, Lifecycle, LifecycleHandler
from kubeletx.server.views import DeleteOptions, PodTarget
from kubeletx_testing.waiting import let_others_work
from tests.unit.agent.agent_model import AgentModel, a_pod

STUBS: Any = importlib.import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc")
"""Generated without types."""
ALL = 1_000_000
HOOK = Lifecycle(post_start=LifecycleHandler(exec=ExecAction(command=("true",))))
FAILED = 2
BATCH = 512
"""Spans that are sent at once."""


class Collector:
    """The receiver of traces. While `is_open` is not set, it does not answer."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []
        self.spans: list[Span] = []
        self.is_open = threading.Event()
        self.is_open.set()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service's name
        self.is_open.wait(60)
        for group in request.resource_spans:
            self.resources.append(attributes(group.resource))
            self.spans += [span for scope in group.scope_spans for span in scope.spans]
        return pb.ExportTraceServiceResponse()

    @contextlib.contextmanager
    def listening(self, directory: Path) -> Iterator[None]:
        server = grpc.server(ThreadPoolExecutor(2))
        STUBS.add_TraceServiceServicer_to_server(self, server)
        server.add_insecure_port(f"unix://{directory}/otlp.sock")
        server.start()
        try:
            yield
        finally:
            self.is_open.set()
            server.stop(None).wait(60)

    def tree(self) -> dict[str, list[str]]:
        """Names of the spans below each span that has some, in the order of their starts. All are in one trace."""
        assert len({span.trace_id for span in self.spans}) == 1
        named = {span.span_id: span.name for span in self.spans}
        below: dict[str, list[str]] = {}
        for span in sorted(self.spans, key=lambda one: one.start_time_unix_nano):
            below.setdefault(named.get(span.parent_span_id, ""), []).append(span.name)
        return below

    def named(self, name: str) -> Span:
        (span,) = [span for span in self.spans if span.name == name]
        return span


def is_ready(agent: AgentModel) -> bool:
    worker = agent.parts.manager.find("default", "web")
    status = worker.facts.previous_status if worker is not None else None
    return status is not None and any(
        one.type == "Ready" and one.status == "True" for one in status.conditions
    )


def attributes(of: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value for one in of.attributes}


@pytest.fixture
def collector(agent: AgentModel, tmp_path: Path) -> Iterator[Collector]:
    """A collector to which the agent sends the traces of all pods."""
    agent.configure("tracing", endpoint=f"unix://{tmp_path}/otlp.sock", sampling_rate_per_million=ALL)
    collector = Collector()
    with collector.listening(tmp_path):
        yield collector


async def test_the_start_of_a_pod_is_one_trace(agent: AgentModel, collector: Collector) -> None:
    async with agent.running():
        made = await agent.apply(a_pod(containers=(Container(name="main", image="pulled", lifecycle=HOOK),)))
        await agent.until(lambda: is_ready(agent))
    tree = collector.tree()
    assert tree[""] == ["start pod"]
    assert {*tree["start pod"]} == {
        *("bind", "prepare volumes", "ensure image", "create sandbox", "start unit"),
        *("run post start", "ready"),
    }
    assert "create_sandbox" in tree["create sandbox"]
    assert "pull_image" in tree["ensure image"]
    assert [name for name in tree["start unit"] if name in ("create_unit", "start_unit")] == [
        *("create_unit", "start_unit"),
    ]
    assert attributes(collector.named("start pod")) == {
        "k8s.namespace.name": "default",
        "k8s.pod.name": "web",
        "k8s.pod.uid": made.uid,
        "kubeletx.source": "applied",
        "kubeletx.runtime": "one",
    }
    assert attributes(collector.named("start unit")) == {"k8s.container.name": "main"}
    assert attributes(collector.named("ensure image")) == {"k8s.container.name": "main"}
    root, ready = collector.named("start pod"), collector.named("ready")
    assert all(
        span.end_time_unix_nano <= ready.end_time_unix_nano for span in collector.spans if span != root
    )
    assert collector.resources[0]["service.name"] == "kubeletx"
    assert collector.resources[0]["k8s.node.name"] == "node"


async def test_failed_attempts_are_spans_with_the_reason(agent: AgentModel, collector: Collector) -> None:
    async with agent.running():
        agent.runtimes["one"].script("create_unit", times=1, error=Unavailable("the disk is full"))
        await agent.apply(a_pod())
    first, second = sorted(
        (span for span in collector.spans if span.name == "start unit"),
        key=lambda one: one.start_time_unix_nano,
    )
    assert (first.status.code, first.status.message) == (FAILED, "CreateContainerError")
    assert second.status.code != FAILED
    calls = [span for span in collector.spans if span.name == "create_unit"]
    assert [call.status.code for call in calls if call.parent_span_id == first.span_id] == [FAILED]


async def test_a_trace_ends_with_the_pod_and_only_new_pods_have_one(
    agent: AgentModel, collector: Collector
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("old"))
        for name in ("waiting", "deleted"):
            await backend.pods.apply_pod(a_pod(name, runtime="none"))
        await agent.until(lambda: {agent.phase("waiting"), agent.phase("deleted")} == {"Pending"})
        await agent.done(
            backend.pods.delete_pod(PodTarget(namespace="default", name="deleted"), DeleteOptions())
        )
    ends = {
        attributes(span)["k8s.pod.name"]: span.status for span in collector.spans if not span.parent_span_id
    }
    assert {name: end.message for name, end in ends.items()} == {
        "old": "",
        "waiting": "the agent stopped",
        "deleted": "the pod is ending",
    }
    collector.spans.clear()
    async with agent.running():
        await agent.until(lambda: agent.phase("old") == "Running")
    assert not any(attributes(span).get("k8s.pod.name") == "old" for span in collector.spans)


def sender_to(tmp_path: Path, **seconds: float) -> SpanSender:
    settings = TracingSettings(endpoint=f"unix://{tmp_path}/otlp.sock", sampling_rate_per_million=ALL)
    return SpanSender(settings, node="node", version="1", **seconds)


async def send(sender: SpanSender, spans: int) -> None:
    for _ in range(spans):
        sender.tracer.start_span("start pod").end()
    await let_others_work()


async def test_a_collector_that_does_not_answer_delays_the_end_by_the_deadline_only(
    collector: Collector, tmp_path: Path
) -> None:
    collector.is_open.clear()
    sender = sender_to(tmp_path, stop_seconds=0.05)
    await send(sender, 3000)  # more than the queue holds
    async with asyncio.timeout(30):
        await sender.close()


async def test_loss_and_return_of_the_collector_are_one_line_each(tmp_path: Path) -> None:
    collector = Collector()
    sender = sender_to(tmp_path, send_seconds=0.2)
    with capture_logs() as logs:
        async with asyncio.timeout(60):
            while not logs:
                await send(sender, BATCH)
            await send(sender, BATCH)
            with collector.listening(tmp_path):
                while len(logs) < 2:
                    await send(sender, BATCH)
                await sender.close()
    assert [one["log_level"] for one in logs] == ["warning", "info"]
    assert collector.spans


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("samplingRatePerMillion: 5", "tracing.samplingRatePerMillion: needs OpenTelemetry"),
        ("endpoint: http://x:1", "tracing.endpoint: 'http://x:1' is not a gRPC target"),
    ],
)
def test_what_cannot_be_traced_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, problem: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        f"kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ntracing: {{{lines}}}\n"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidConfig, match=f"{file}: {problem}"):
        load_config(config_file=file)
