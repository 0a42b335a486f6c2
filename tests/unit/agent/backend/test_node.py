"""Node, events, usage and the agent itself on the admin backend."""

from __future__ import annotations

from typing import cast

import pytest

from kubeletx.agent.backend.node import NodeBackend
from kubeletx.agent.host.readings import HostReadings
from kubeletx.api import NotFound, SupportsStats
from kubeletx.kube.types.node import Node, NodeSpec, Taint
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.node.readiness import Pressure
from kubeletx.server.metrics.process import render
from tests.unit.agent.agent_model import AgentModel, a_pod


def ready(node: Node) -> str:
    return next(c.status for c in node.status.conditions if c.type == "Ready")


async def test_the_node_is_ready_by_its_policy_and_says_which_runtime_is_not(agent: AgentModel) -> None:
    agent.configure("node", readiness_policy="all")
    async with agent.running() as backend:
        await agent.until(lambda: all(h.state.ready for h in agent.parts.registry.handles()))
        assert ready(await backend.node.get_node()) == "True"
        watch = backend.node.watch_node()
        await anext(watch)
        agent.runtimes["two"].backend.kill()
        while ready(node := await agent.done(anext(watch))) == "True":
            pass
        messages = {c.type: c.message for c in node.status.conditions}
        assert "two" in (messages["Ready"] or "")
        reasons = [
            event.reason for event in await backend.node.list_events() if event.involved_object.kind == "Node"
        ]
        assert "NodeNotReady" in reasons
        await watch.aclose()  # type: ignore[attr-defined]


async def test_users_see_the_node_of_the_cluster_with_the_taints_of_others(agent: AgentModel) -> None:
    async with agent.running() as backend:
        with pytest.raises(NotFound, match="is in no cluster"):
            backend.node.cluster_node()
        tainted = Node(spec=NodeSpec(taints=(Taint(key="node.kubernetes.io/out-of-service"),)))
        agent.parts.views.node.node_changed(tainted)
        assert backend.node.cluster_node() is tainted
        assert (await backend.node.get_node()).spec.taints == ()


async def test_usage_names_the_runtimes_that_did_not_answer(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        usage = await agent.done(backend.node.usage())
        assert [pod.name for pod in usage.pods] == ["web"]
        assert usage.missing == ()
        agent.runtimes["two"].backend.kill()
        await agent.until(lambda: not agent.parts.registry.get("two").state.reachable)
        await agent.clock.run_for(6)  # figures of the last five seconds count as fresh
        assert (await agent.done(backend.node.usage())).missing == ("two",)


async def test_the_usage_of_the_node_is_the_machines_and_not_the_sum_of_its_pods(agent: AgentModel) -> None:
    async with agent.running() as backend:
        usage = await agent.done(backend.node.usage())
        assert usage.pods == ()
        assert usage.node.memory_bytes is not None
        assert usage.node.memory_bytes > 10_000_000
        assert usage.node.cpu_millicores is not None


async def test_a_runtime_that_measures_nothing_is_not_counted_as_zero(agent: AgentModel) -> None:
    agent.without = (SupportsStats,)
    async with agent.running() as backend:
        await agent.apply(a_pod())
        usage = await agent.done(backend.node.usage())
        assert usage.runtimes == ()


async def test_events_of_a_pod_are_kept_over_a_restart(agent: AgentModel) -> None:
    async with agent.running():
        await agent.apply(a_pod())
    async with agent.running() as backend:
        reasons = {e.reason for e in await backend.node.list_events() if e.involved_object.name == "web"}
        assert {"RuntimeBound", "Created", "Started"} <= reasons


async def test_the_agent_reports_its_version_plugins_and_configuration(agent: AgentModel) -> None:
    async with agent.running() as backend:
        version = await backend.about.version()
        assert (version.node_name, version.root_dir) == ("node", str(agent.root / "root"))
        assert version.agent_id == (agent.root / "root" / "agent-id").read_text().strip()
        (plugin,) = await backend.about.plugins()
        assert (plugin.name, plugin.state, plugin.kinds) == ("fake", "ready", ("fake",))
        assert any(value.key == "maxPods" for value in await backend.about.config_view())
        assert (await backend.about.health()).ok


async def test_metrics_tell_what_happened_and_what_there_is(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("a"))
        await agent.apply(a_pod("b", runtime="two", image="pulled"))
        await backend.pods.apply_pod(a_pod("c", runtime="none"))
        agent.runtimes["one"].backend.kill()
        await agent.until(lambda: not agent.parts.registry.get("one").state.ready)
        text = render(await backend.about.metrics()).decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    for name, value in {
        "kubelet_running_pods": 2,
        'kubelet_desired_pods{static="true"}': 3,
        'kubelet_running_containers{container_state="running"}': 2,
        'kubeletx_runtime_ready{runtime="one"}': 0,
        'kubeletx_runtime_ready{runtime="two"}': 1,
        'kubeletx_runtime_pods{runtime="one"}': 1,
        'kubeletx_runtime_pods{runtime="two"}': 1,
        "kubelet_started_pods_total": 2,
        'kubelet_started_containers_total{container_type="container"}': 2,
        "kubelet_pod_start_duration_seconds_count": 2,
        "kubelet_image_pull_duration_seconds_count": 2,
        'kubelet_pod_worker_duration_seconds_count{operation_type="create"}': 3,
        'kubelet_runtime_operations_total{operation_type="create_sandbox",runtime="one"}': 1,
        'kubelet_runtime_operations_total{operation_type="create_sandbox",runtime="two"}': 1,
    }.items():
        assert found[name] == str(float(value)), name
    assert float(found["kubelet_pleg_relist_duration_seconds_count"]) >= 2
    assert float(found['kubelet_pod_worker_duration_seconds_count{operation_type="sync"}']) > 4


@pytest.mark.parametrize("version", [1, 2])
async def test_cgroup_v1_is_reported_by_an_event(agent: AgentModel, version: int) -> None:
    class Trees:
        def __init__(self) -> None:
            self.version = version

        def find_closed(self, _path: str) -> None:
            return None

    agent.host = HostReadings(trees=cast("CgroupTrees", Trees()))
    async with agent.running() as backend:
        reasons = [event.reason for event in await backend.node.list_events()]
        assert ("CgroupV1" in reasons) == (version == 1)


async def test_a_pod_that_ran_too_long_is_reported(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await backend.pods.apply_pod(a_pod(active_deadline_seconds=5))
        await agent.until(lambda: agent.phase("web") == "Failed")
        (reported,) = [e for e in await backend.node.list_events() if e.reason == "DeadlineExceeded"]
        assert (reported.type, reported.involved_object.name) == ("Normal", "web")
        assert "Starting" in {e.reason for e in await backend.node.list_events()}


async def test_a_pressure_that_begins_and_ends_is_reported_in_the_kubelets_words(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.until(lambda: all(h.state.ready for h in agent.parts.registry.handles()))
        node = backend.node
        assert isinstance(node, NodeBackend)
        node.pressure_changed(Pressure(disk=True))
        node.pressure_changed(Pressure(disk=True, memory=True))
        node.pressure_changed(Pressure(memory=True))
        reported = [e for e in await backend.node.list_events() if (e.reason or "").startswith("NodeHas")]
        assert {(e.reason, e.message) for e in reported} == {
            (reason, f"Node node status is now: {reason}")
            for reason in ("NodeHasDiskPressure", "NodeHasInsufficientMemory", "NodeHasNoDiskPressure")
        }
        ready_events = [e.message for e in await backend.node.list_events() if e.reason == "NodeReady"]
        assert ready_events == ["Node node status is now: NodeReady"]
