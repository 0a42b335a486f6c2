"""A state machine over many nodes: faults, storms, lying devices and killed controllers in any order."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from msgspec.structs import replace

from kubeletx.remedy.decisions import Act, Change, Release
from kubeletx.remedy.model import (
    FenceProof,
    FlowStatus,
    FlowStep,
    MethodResult,
    RemedyOutcome,
    RemedySettings,
)
from kubeletx.remedy.planner import FlowPlan
from kubeletx.remedy.policy import most_unhealthy
from tests.unit.remedy.trial import FENCE_CONFIG, Trial

NODES = tuple(f"n{number}" for number in range(8))
SETTINGS = RemedySettings(
    power_wait=20,
    settle_time=40,
    quiet_time=10,
    retries=1,
    retry_wait=10,
    restarts=1,
    max_unhealthy="50%",
    cooldown=0,
)
CONFIG = {
    **FENCE_CONFIG,
    "config.properties": (
        "isolation=mark-unschedulable fc-off\npower_management=pdu-off pdu-on\nrecovery=fc-on\n"
    ),
}


class Killed(BaseException):
    """The controller is killed while a method acts."""


class SimulatedCluster(Trial):
    """Nodes with machines, switches and pods. `script`: behaviour of the next devices: fails, acts or not, and is heard or not.

    `cordons`: who has cordoned a node. `was_off`, `is_cut`: facts about machines and storage since the flow began.
    """

    def __init__(self, names: tuple[str, ...] = NODES) -> None:
        super().__init__(names, maps={f"fence-config-{name}": CONFIG for name in names}, settings=SETTINGS)
        self.script: list[str] = []
        self.kill_at = 0
        self.powered = set(names)
        self.cut_off: set[str] = set()
        self.was_off: set[str] = set()
        self.cordons: dict[str, set[str]] = {name: set() for name in names}

    @property
    def sick(self) -> set[str]:
        return {name for name, node in self.nodes.items() if not node.is_ready}

    def write(self, change: Change) -> None:
        fence, before = change.fence, self.fences.get(change.fence.node)
        begins = before is not None and before.present_status is FlowStatus.NEW
        if (
            begins
            and fence.present_status is FlowStatus.RUNNING
            and fence.present_step is not FlowStep.RECOVERY
        ):
            assert len(self.sick) <= most_unhealthy(SETTINGS, len(self.nodes)), "a step began in a storm"
        if before is None or before.is_over:
            self.was_off.discard(fence.node)
        super().write(change)
        if fence.is_over:
            assert "remedy" not in self.cordons[fence.node], f"{fence.node} is left cordoned"

    def release(self, plan: FlowPlan) -> None:
        name = plan.node.name
        assert isinstance(plan.decision, Release)
        is_safe = name in (self.was_off if FenceProof.POWER in plan.decision.proofs else self.cut_off)
        assert is_safe, f"the pods of {name} go without a proof"
        super().release(plan)

    def outcome(self, name: str, act: Act, is_repeat: bool) -> RemedyOutcome:
        method = act.method.name
        if method in ("mark-unschedulable", "mark-schedulable", "restore"):
            (self.cordons[name].add if method == "mark-unschedulable" else self.cordons[name].discard)(
                "remedy"
            )
            return RemedyOutcome(result=MethodResult.DONE)
        word = self.script.pop(0) if self.script else "works"
        if is_repeat and method == "pdu-off" and name not in self.powered:
            return RemedyOutcome(result=MethodResult.DONE, proofs=(FenceProof.POWER,))
        if word in ("works", "acts unheard"):
            self._act(name, method)
        self.kill_at -= 1
        if self.kill_at == 0:
            raise Killed
        if word == "fails":
            return RemedyOutcome(result=MethodResult.FAILED, message="refused")
        if word != "works":
            return RemedyOutcome(result=MethodResult.UNKNOWN, message="no answer")
        proofs = {"pdu-off": (FenceProof.POWER,), "fc-off": (FenceProof.STORAGE,)}.get(method, ())
        return RemedyOutcome(result=MethodResult.DONE, proofs=proofs)

    def _act(self, name: str, method: str) -> None:
        match method:
            case "pdu-off":
                self.powered.discard(name)
                self.was_off.add(name)
                self.set(name, "Unknown")
            case "pdu-on" if name not in self.powered:
                self.powered.add(name)
                self.set(name, "Unknown", reboots=True)
            case "fc-off":
                self.cut_off.add(name)
            case "fc-on":
                self.cut_off.discard(name)

    def live(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass; a killed controller is followed by another one."""
        end = self.now.timestamp() + seconds
        while self.now.timestamp() < end:
            try:
                self.run(step, step)
            except Killed:
                fence = next(fence for fence in self.fences.values() if fence.flow.operation is not None)
                assert fence.flow.operation is not None

    def end_well(self, step: float = 1.0) -> None:
        """Let every node come back; every flow has to end, and to leave nothing on its node."""
        self.script, self.kill_at = [], 0
        self.powered |= set(self.nodes)
        for name in self.nodes:
            self.set(name, "True", reboots=True)
        self.live(150, step)
        for name, fence in self.fences.items():
            assert fence.is_over, self.messages[-20:]
            assert "remedy" not in self.cordons[name]


def test_200_nodes_with_random_faults_and_storms_end_well() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    names = tuple(f"n{number}" for number in range(200))
    cluster = SimulatedCluster(names)
    # Few nodes fall first and stay so; a storm from the beginning could hold all work to the end.
    for count in (3, *draw.choices((1, 3, 20, 120), k=5)):
        for name in draw.sample(names, count):
            cluster.set(name, draw.choice(("False", "Unknown")))
        for name in draw.sample(names, 20 if cluster.calls else 0):
            if name in cluster.powered:
                cluster.set(name, "True")
        cluster.script = draw.choices(("works", "fails", "acts unheard", "unheard"), k=30)
        cluster.kill_at = draw.choice((0, 1, 5))
        cluster.live(30, step=5.0)
    assert cluster.calls
    cluster.end_well(step=5.0)


class RemedyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = SimulatedCluster()

    @rule(
        names=st.sets(st.sampled_from(NODES), min_size=1, max_size=6),
        status=st.sampled_from(["False", "Unknown"]),
    )
    def fall(self, names: set[str], status: str) -> None:
        for name in names:
            self.cluster.set(name, status)

    @rule(name=st.sampled_from(NODES))
    def come_back(self, name: str) -> None:
        if name in self.cluster.powered:
            self.cluster.set(name, "True")

    @rule(name=st.sampled_from(NODES))
    def cordon(self, name: str) -> None:
        node = self.cluster.nodes[name]
        self.cluster.nodes[name] = replace(node, spec=replace(node.spec, unschedulable=True))
        self.cluster.cordons[name].add("another")

    @rule(words=st.lists(st.sampled_from(["works", "fails", "acts unheard", "unheard"]), max_size=4))
    def devices(self, words: list[str]) -> None:
        self.cluster.script = words

    @precondition(lambda self: self.cluster.kill_at <= 0)
    @rule(at=st.integers(1, 3))
    def kill(self, at: int) -> None:
        self.cluster.kill_at = at

    @rule(seconds=st.integers(1, 60))
    def wait(self, seconds: int) -> None:
        self.cluster.live(seconds)

    def teardown(self) -> None:
        self.cluster.end_well()


TestRemedyMachine = RemedyMachine.TestCase
TestRemedyMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
