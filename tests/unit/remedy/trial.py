"""A cluster in memory: nodes, records and scripted methods, looked at by the planner in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

from msgspec.structs import replace

from kubeletx.api import Clock
from kubeletx.kube.text.yaml import parse_documents
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.node import NodeCondition
from kubeletx.remedy.automaton import after, operation_of, released
from kubeletx.remedy.cluster import FlowClock
from kubeletx.remedy.config import Configurations, read_configuration
from kubeletx.remedy.decisions import Act, Change, Release
from kubeletx.remedy.model import (
    FenceProof,
    KernelDump,
    MethodResult,
    NodeFence,
    NodeView,
    RemedyOutcome,
    RemedySettings,
)
from kubeletx.remedy.planner import (
    ClusterView,
    FlowPlan,
    FlowTimes,
    ProblemEvents,
    has_recovered,
    plan_all,
    sickness_of,
)
from kubeletx.remedy.policy import PolicyView
from kubeletx.remedy.safety.node_events import NodeEvents

START = datetime(2026, 1, 1, tzinfo=UTC)

READY_FENCE = """
apiVersion: node-remedy/v1alpha
kind: Configuration
thresholdConfigs:
- nodeConditionType: Ready
  nodeConditionStatus: false
  nodeConditionPeriod: 5s
  remedy1:
  - name: fence
"""
FENCE_CONFIG = {
    "config.properties": "isolation=fc-off\npower_management=pdu-off pdu-on\nrecovery=fc-on\n",
    "fence-method-fc-off": "agent=fence_dummy\naction=off\nproof=storage\n",
    "fence-method-fc-on": "agent=fence_dummy\naction=on\n",
    "fence-method-pdu-off": "agent=fence_dummy\naction=off\n",
    "fence-method-pdu-on": "agent=fence_dummy\naction=on\n",
}


class Trial:
    """Nodes of the names given, all ready. `calls`: methods that were carried out, as ``node/method``."""

    def __init__(
        self,
        names: Iterable[str] = ("n1", "n2", "n3"),
        *,
        text: str = READY_FENCE,
        maps: dict[str, dict[str, str]] | None = None,
        settings: RemedySettings | None = None,
    ) -> None:
        documents, problems = [], []
        for document in parse_documents(text):
            read, wrong = read_configuration(document, "trial.yaml", "trial")
            documents += [read] if read is not None else []
            problems += wrong
        assert not problems, problems
        names = tuple(names)
        if maps is None:
            maps = {f"fence-config-{name}": FENCE_CONFIG for name in names}
        self.configured = Configurations(tuple(documents), maps, settings=settings or RemedySettings())
        self.now = START
        self.nodes = {name: new_node(name, START) for name in names}
        self.fences: dict[str, NodeFence] = {}
        self.dumps: dict[str, KernelDump] = {}
        self.calls: list[str] = []
        self.outcomes: dict[str, Callable[[bool], RemedyOutcome]] = {}
        self.messages: list[str] = []
        self.released: list[str] = []
        self.policy = PolicyView()
        self.events = NodeEvents(lambda _: None)
        self._well_since: dict[str, datetime] = {}

        def seconds() -> float:
            return (self.now - START).total_seconds()

        clock = SimpleNamespace(now=lambda: self.now, monotonic=seconds)
        self._clock = FlowClock(cast("Clock", clock))
        self._ids = 0

    # --- what happens outside ---

    def set(self, name: str, status: str, condition: str = "Ready", *, reboots: bool = False) -> None:
        """Give the node's condition another status now. `reboots`: the node has a new boot ID."""
        node = self.nodes[name]
        changed = NodeCondition(type=condition, status=status, last_transition_time=self.now)
        others = [item for item in node.status.conditions if item.type != condition]
        info = (
            replace(node.status.node_info, boot_id=f"boot {self.now}") if reboots else node.status.node_info
        )
        self.nodes[name] = replace(
            node, status=replace(node.status, conditions=(changed, *others), node_info=info)
        )

    def plans(self) -> dict[str, FlowPlan]:
        """Return the plan of each node that has one."""
        return {plan.node.name: plan for plan in plan_all(self._view(), self.configured)}

    def run(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, and the controller look once per `step`."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.settle()
            self.now += timedelta(seconds=step)
        self.settle()

    def settle(self) -> None:
        """Carry out decisions until every node waits."""
        for _ in range(50):
            done = [self._carry_out(plan) for plan in self.plans().values()]
            if not any(done):
                return
        raise AssertionError(f"the flows do not settle: {self.messages[-5:]}")

    def state(self, name: str = "n1") -> str:
        """Return step and status of a node's flow."""
        fence = self.fences[name]
        return f"{fence.step}/{fence.flow.status}"

    # --- inside ---

    def _view(self) -> ClusterView:
        view = ClusterView(
            now=self.now, nodes=self.nodes, dumps=self.dumps, events=ProblemEvents(self.events.times)
        )
        sick = {
            n
            for n, node in self.nodes.items()
            if sickness_of(node, self.configured, self.now, view.events, self.fences.get(n))
        }
        for name in self.nodes:
            if name in sick:
                self._well_since.pop(name, None)
            else:
                self._well_since.setdefault(name, self.now)
        times = {name: self._times(name) for name in self.fences}
        recent = {name for name, node in self.nodes.items() if has_recovered(node, self.configured, self.now)}
        seen = self._clock.seen(self.nodes.values())
        policy = replace(self.policy, sick=frozenset(sick), recent=frozenset(recent), seen=seen)
        return replace(view, fences=self.fences, times=times, policy=policy)

    def _times(self, name: str) -> FlowTimes:
        since = self.fences[name].flow.since or self.now
        quiet = (self.now - self._well_since[name]).total_seconds() if name in self._well_since else 0.0
        return FlowTimes(waited=(self.now - since).total_seconds(), quiet=quiet)

    def _carry_out(self, plan: FlowPlan) -> bool:
        match plan.decision:
            case Change() as change:
                self.write(change)
            case Act() as act:
                fence = plan.fence
                assert fence is not None
                is_repeat = fence.flow.operation is not None
                self._ids += 1
                operation = fence.flow.operation or operation_of(act, str(self._ids), 1.0)
                fence = replace(fence, flow=replace(fence.flow, operation=operation))
                self.fences[plan.node.name] = fence  # the intent precedes the act
                self.calls.append(f"{plan.node.name}/{act.method.name}")
                outcome = self.outcome(plan.node.name, act, is_repeat)
                self.write(after(self.fences[plan.node.name], plan.facts, outcome))
            case Release():
                assert plan.fence is not None
                self.release(plan)
                self.write(released(plan.fence, "released"))
            case _:
                return False
        return True

    def release(self, plan: FlowPlan) -> None:
        """Release the pods of the plan's node."""
        self.released.append(plan.node.name)

    def outcome(self, name: str, act: Act, is_repeat: bool) -> RemedyOutcome:
        """Return the result of a method on node `name`."""
        del name
        scripted = self.outcomes.get(act.method.name)
        if scripted is not None:
            return scripted(is_repeat)
        proofs = {"pdu-off": (FenceProof.POWER,), "fc-off": (FenceProof.STORAGE,)}.get(act.method.name, ())
        return RemedyOutcome(result=MethodResult.DONE, proofs=proofs)

    def write(self, change: Change) -> None:
        """Store the record of a change."""
        fence = change.fence
        if fence.flow.since is None:
            fence = replace(fence, flow=replace(fence.flow, since=self.now))
        self.fences[fence.node] = fence
        self.messages.append(f"{fence.node}: {fence.step}/{fence.flow.status}: {change.message}")


def new_node(name: str, now: datetime) -> NodeView:
    """Return a ready node."""
    view = NodeView(metadata=ObjectMeta(name=name, uid=f"uid of {name}", creation_timestamp=now))
    ready = NodeCondition(type="Ready", status="True", last_transition_time=now)
    info = replace(view.status.node_info, boot_id="boot 1")
    return replace(view, status=replace(view.status, conditions=(ready,), node_info=info))


def failing(message: str = "no answer") -> Callable[[bool], RemedyOutcome]:
    """Return a scripted method that fails."""
    return lambda _: RemedyOutcome(result=MethodResult.FAILED, message=message)
