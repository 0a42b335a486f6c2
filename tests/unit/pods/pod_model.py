"""A tiny model of a runtime and a worker, for property tests of the plan: no tasks, no clock, no I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from kubeletx.api import (
    ImageStatus,
    PodUid,
    RuntimeName,
    SandboxId,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
)
from kubeletx.api.names import CONTAINER_HASH, RESTART_GENERATION
from kubeletx.kube.manifests.hashes import container_hash
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec, PodStatus
from kubeletx.pods.model import actions as act
from kubeletx.pods.model import results
from kubeletx.pods.model.draft import Plan
from kubeletx.pods.model.facts import Deletion, DesiredPod, Doubt, Grants, Now, PodFacts
from kubeletx.pods.model.roles import find_unit
from kubeletx.pods.plan.doubt import count_confirming, without_old_doubt
from kubeletx.pods.plan.pod import plan_pod
from kubeletx.pods.status.build import NodeIdentity, build_status
from kubeletx.pods.steps.dispatch import failed
from kubeletx.pods.worker import note_exits
from kubeletx.runtimes.handles.snapshots import PodSnapshot


class Observed(msgspec.Struct, frozen=True):
    """A recorded look, which is not a result: the runtime's snapshot, None before the pod is bound."""

    snapshot: PodSnapshot | None
    now: Now
    status: PodStatus | None = None
    doubt: Doubt | None = None

    def onto(self, facts: PodFacts) -> PodFacts:
        """The facts after the look."""
        if self.snapshot is not None:
            facts = replace(facts, snapshot=self.snapshot)
        return note_exits(replace(facts, previous_status=self.status, doubt=self.doubt), self.now)


class Ended(msgspec.Struct, frozen=True):
    """A recorded end of an action, or an input that is a result (`action` None)."""

    action: act.Action | None
    result: results.Result
    now: Now


class AgentRestarted(msgspec.Struct, frozen=True):
    """A recorded restart of the agent: of the facts only the binding and the published status are left."""

    def onto(self, facts: PodFacts) -> PodFacts:
        """The facts of the new process."""
        bound = facts.runtime
        status = facts.previous_status
        return replace(
            fresh_facts(),
            runtime=bound,
            admitted=bound is not None,
            recovered=True,
            previous_status=status,
        )


class OverridesRead(msgspec.Struct, frozen=True):
    """A recorded read of the overrides file, which is missing unless a subclass has read one."""

    def onto(self, facts: PodFacts) -> PodFacts:
        """The facts after the read."""
        return facts if facts.overrides is not None else replace(facts, overrides=Grants())


Recorded = Observed | Ended | AgentRestarted | OverridesRead

START = datetime(2030, 1, 1, tzinfo=UTC)
NODE = NodeIdentity(name="n")


def make_pod(
    names: tuple[str, ...] = ("web",),
    *,
    init: tuple[Container, ...] = (),
    policy: str = "Always",
    **spec: object,
) -> DesiredPod:
    """A desired pod with plain containers."""
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="default", uid=PodUid("u1")),
        spec=PodSpec(
            containers=tuple(Container(name=n, image="i") for n in names),
            init_containers=init,
            restart_policy=policy,
            **spec,  # type: ignore[arg-type]
        ),
    )
    return DesiredPod(uid=PodUid("u1"), pod=pod, source="file", spec_hash="h")


def fresh_facts() -> PodFacts:
    """Facts of a pod that was never here, on a runtime that is ready."""
    return PodFacts(runtime_ready=True, network_ready=True)


class PodModel:
    """Carries out plans at once, and lets a test break things in between."""

    def __init__(self, desired: DesiredPod) -> None:
        self.desired = desired
        self.mono = 100.0
        self.sandboxes: list[SandboxSummary] = []
        self.units: list[UnitStatus] = []
        self.facts = fresh_facts()
        self.journal: list[act.Action] = []
        self.record: list[Recorded] = []
        """Everything that changed the facts, in order."""
        self.finished = False
        self.counter = 0
        self.failing: tuple[type[act.Action], ...] = ()
        """Actions that fail, each time."""
        self.publishes = False
        """Whether each turn publishes the pod's status, as a worker does."""
        self.hidden = 0
        """Number of the next looks that show nothing, although everything is still there."""

    def now(self) -> Now:
        return Now(wall=START + timedelta(seconds=self.mono), mono=self.mono)

    def snapshot(self) -> PodSnapshot:
        if self.hidden:
            return PodSnapshot(uid=self.desired.uid, looked_at=self.mono)
        newest = self.sandboxes[0] if self.sandboxes else None
        return PodSnapshot(
            uid=self.desired.uid,
            sandboxes=tuple(self.sandboxes),
            units=tuple(u.summary for u in self.units),
            sandbox_status=SandboxStatus(summary=newest, ips=("10.0.0.1",)) if newest else None,
            statuses={u.summary.id: u for u in self.units},
            looked_at=self.mono,
        )

    def turn(self) -> Plan:
        """Observe, plan, act on everything, once."""
        shown = self.snapshot() if self.facts.runtime is not None else None
        seen = Observed(shown, self.now(), self.facts.previous_status, self.facts.doubt)
        self.record.append(seen)
        self.facts = without_old_doubt(self.desired, seen.onto(self.facts))
        plan = plan_pod(self.desired, self.facts, self.now())
        keys = [a.key for a in plan.actions]
        assert len(keys) == len(set(keys)), "one action a key"
        for action in plan.actions:
            self.journal.append(action)
            self.apply(self._carry_out(action), action)
            if isinstance(action, act.ReadOverrides):
                self.record.append(OverridesRead())
                self.facts = OverridesRead().onto(self.facts)
            if isinstance(action, act.Look):
                self.facts = count_confirming(self.desired, replace(self.facts, snapshot=self.snapshot()))
                self.hidden = max(self.hidden - 1, 0)
        if self.publishes and not plan.in_doubt:
            status = build_status(self.desired, self.facts, self.now(), NODE)
            self.facts = replace(self.facts, previous_status=status)
        self.finished = plan.finished
        self.mono += 0.001
        return plan

    def apply(self, result: results.Result, action: act.Action | None = None) -> None:
        """Take a result into the facts; `action` None: it is an input."""
        self.record.append(Ended(action, result, self.now()))
        self.facts = results.apply(self.facts, result, self.now())

    def settle(self, turns: int = 60) -> Plan:
        """Turn until nothing is left to do."""
        for _ in range(turns):
            plan = self.turn()
            if plan.finished or not plan.actions:
                return plan
        raise AssertionError(f"busy loop: {self.journal[-6:]}")

    def restart_agent(self) -> None:
        """Everything that only the process knew is lost; the binding and what runs stay."""
        self.record.append(AgentRestarted())
        self.facts = AgentRestarted().onto(self.facts)

    def exit(self, name: str, code: int) -> None:
        """The newest unit of this name ends."""
        for i, unit in enumerate(self.units):
            if unit.summary.name == name and unit.summary.state.is_alive:
                self.units[i] = replace(
                    unit, summary=replace(unit.summary, state=UnitState.EXITED), exit_code=code
                )
                return

    def lose_sandbox(self) -> None:
        """The sandbox process dies."""
        if self.sandboxes:
            self.sandboxes[0] = replace(self.sandboxes[0], state=SandboxState.NOT_READY)

    def delete(self, grace: int = 30) -> None:
        self.desired = replace(self.desired, deletion=Deletion(requested_at=self.mono, grace_seconds=grace))

    def alive(self) -> list[str]:
        return [u.summary.name for u in self.units if u.summary.state.is_alive]

    def _carry_out(self, action: act.Action) -> results.Result:
        if isinstance(action, self.failing):
            return failed(action, "Error", "it failed")
        match action:
            case act.Bind():
                return results.Bound(RuntimeName("fake"), START)
            case act.ReadMessage(name=name, unit_id=unit_id):
                return results.MessageRead(name, unit_id, "")
            case act.PrepareVolumes():
                return results.VolumesReady(self.mono)
            case act.EnsureImage(name=name):
                return results.ImagePresent(name, ImageStatus(id="i", ref="i"))
            case act.CreateSandbox(attempt=attempt):
                assert all(s.state is SandboxState.NOT_READY for s in self.sandboxes)
                self.sandboxes.insert(0, self._sandbox(attempt))
                return results.SandboxMade()
            case act.StartUnit():
                return self._start(action)
            case act.Evacuate(deadline=deadline):
                assert self.alive()
                assert self.mono < deadline
                return results.Evacuated()
            case act.StopUnit(name=name, unit_id=unit_id, reason=reason):
                self._replace(unit_id, UnitState.EXITED, 137)
                return results.Killed(name, "" if reason == "Killing" else reason)
            case act.RemoveUnit(unit_id=unit_id):
                self.units = [u for u in self.units if u.summary.id != unit_id]
                return results.Changed()
            case act.StopSandbox(sandbox_id=sandbox_id):
                self.sandboxes = [
                    replace(s, state=SandboxState.NOT_READY) if s.id == sandbox_id else s
                    for s in self.sandboxes
                ]
                return results.Changed()
            case act.RemoveSandbox(sandbox_id=sandbox_id):
                self.sandboxes = [s for s in self.sandboxes if s.id != sandbox_id]
                self.units = [u for u in self.units if u.summary.sandbox_id != sandbox_id]
                return results.Changed()
            case act.ReleaseVolumes():
                return results.VolumesReleased()
            case act.RemoveDirectories():
                return results.DirectoriesGone()
            case act.Unbind():
                assert not self.sandboxes or act.RemoveSandbox in self.failing
                assert not self.units
                return results.Unbound()
        return results.Nothing()

    def _sandbox(self, attempt: int) -> SandboxSummary:
        self.counter += 1
        return SandboxSummary(
            id=SandboxId(f"s{self.counter}"),
            uid=self.desired.uid,
            name="p",
            namespace="default",
            attempt=attempt,
            state=SandboxState.READY,
            created_at_ns=self.counter,
        )

    def _start(self, action: act.StartUnit) -> results.Result:
        assert self.desired.deletion is None, "a pod that is deleted never starts a unit"
        assert self.sandboxes
        assert self.sandboxes[0].id == action.sandbox_id
        assert self.sandboxes[0].state is SandboxState.READY
        assert action.name not in self.alive(), "one living unit a name"
        keys = {(u.summary.name, u.summary.attempt) for u in self.units}
        assert (action.name, action.attempt) not in keys
        self.counter += 1
        container = find_unit(self.desired.pod, action.name)
        assert isinstance(container, Container)
        unit_id = UnitId(f"c{self.counter}")
        summary = UnitSummary(
            id=unit_id,
            sandbox_id=action.sandbox_id,
            uid=self.desired.uid,
            name=action.name,
            attempt=action.attempt,
            state=UnitState.RUNNING,
            created_at_ns=self.counter,
            annotations={
                CONTAINER_HASH: container_hash(container),
                **({RESTART_GENERATION: str(action.generation)} if action.generation else {}),
            },
        )
        self.units.insert(0, UnitStatus(summary=summary, started_at_ns=1))
        self.units.sort(key=lambda u: -u.summary.attempt)
        return results.UnitStarted(action.name, unit_id, has_hook=False)

    def _replace(self, unit_id: UnitId, state: UnitState, code: int) -> None:
        self.units = [
            replace(u, summary=replace(u.summary, state=state), exit_code=code)
            if u.summary.id == unit_id
            else u
            for u in self.units
        ]
