"""Node conditions keep the time of their last transition over a restart of the agent, with and without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubeletx.apiserver.node.patch import status_patch
from kubeletx.kube.types.node import NodeCondition, NodeStatus
from kubeletx.node.condition_table import METADATA, ConditionTimes
from kubeletx.node.readiness import RuntimeFacts
from kubeletx.node.status import SETTLE_SECONDS, NodePlan, NodeReporter
from kubeletx.runtimes.handles.health import RuntimeState
from kubeletx.store import Store
from kubeletx.testing import FakeClock
from tests.unit.agent.agent_model import AgentModel

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def report(ready: bool) -> RuntimeFacts:
    state = RuntimeState(ready=ready, network_ready=ready, reachable=ready, since=NOW, reason="Down")
    return RuntimeFacts(name="one", workload_type="container", state=state)


def since(reporter: NodeReporter) -> dict[str, datetime | None]:
    return {one.type: one.last_transition_time for one in reporter.conditions}


async def test_a_started_agent_goes_on_with_the_times_of_the_one_before(tmp_path: Path) -> None:
    clock = FakeClock()

    async def started() -> tuple[NodeReporter, Store]:
        store = await Store.open(tmp_path / "db", [METADATA])
        reporter = NodeReporter(NodePlan(root_dir=tmp_path, version="v"), clock=clock)
        reporter.load()
        await reporter.remember(ConditionTimes(store))
        return reporter, store

    first, store = await started()
    first.update([report(True)])
    before = since(first)
    await store.close()
    clock.advance(3600)

    second, store = await started()
    second.update([report(False)])  # its runtime has not answered yet
    assert since(second)["Ready"] == clock.now()
    clock.advance(2)
    second.update([report(True)])
    assert since(second) == before
    clock.advance(SETTLE_SECONDS)
    second.update([report(True)])
    assert since(second) == before
    second.update([report(False)])
    changed = {type_ for type_, at in since(second).items() if at != before[type_]}
    assert changed == {"Ready", "RuntimesReady", "kubeletx.io/RuntimeReady-one"}
    lost_at = clock.now()
    await store.close()
    clock.advance(3600)

    third, store = await started()
    third.update([report(False)])
    assert since(third)["Ready"] == lost_at
    await store.close()


def condition(status: str, at: datetime | None) -> NodeStatus:
    one = NodeCondition(type="Ready", status=status, reason="R", last_transition_time=at)
    return NodeStatus(conditions=(one,))


def sent(known: NodeStatus, wanted: NodeStatus) -> str:
    patch = status_patch(known, wanted, heartbeat=NOW, is_due=True)
    assert patch is not None
    return str(patch["conditions"][0]["lastTransitionTime"])


def test_the_api_server_sees_a_new_time_only_when_it_sees_another_status() -> None:
    long_ago, lately = NOW - timedelta(days=1), NOW - timedelta(minutes=1)
    assert sent(condition("True", long_ago), condition("True", lately)) == "2029-12-31T00:00:00Z"
    assert sent(condition("Unknown", lately), condition("True", long_ago)) == "2030-01-01T00:00:00Z"
    assert sent(condition("True", long_ago), condition("False", lately)) == "2029-12-31T23:59:00Z"
    assert sent(NodeStatus(), condition("True", lately)) == "2029-12-31T23:59:00Z"


async def test_the_node_says_after_a_restart_since_when_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = AgentModel(tmp_path)
    seen = []
    for _ in range(2):
        async with model.running() as backend:
            await model.until(lambda: all(h.state.ready for h in model.parts.registry.handles()))
            conditions = (await backend.node.get_node()).status.conditions
            assert conditions[-1].status == "True"
            seen.append({one.type: one.last_transition_time for one in conditions})
        model.clock.advance(600)
    assert seen[0] == seen[1]
