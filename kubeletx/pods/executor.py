"""`PodExecutor`: reads runtimes, carries out actions and publishes statuses for all workers.

    worker ──act──► steps/*.py ──► RuntimeHandle, volumes, images, hooks, cgroups
           ──observe──► registry (state, snapshot)      ──publish──► StatusBoard, PodRecords

Composition only; decisions are in the plan, I/O is in the steps and in lower packages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from kubeletx.api import PodUid
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from .active_pods import ActivePods
from .dependencies import PodDependencies
from .model.actions import Action
from .model.draft import Goal, Plan, PlannedEvent
from .model.facts import DesiredPod, Now, Outage, PodFacts
from .model.phase import FINAL
from .model.results import Result
from .model.roles import field_of, pod_ref
from .overrides import OverrideFiles
from .preemption import Preemption
from .recovery import RecoveredPod
from .specs.labels import grace_seconds
from .status.build import build_status, status_changes_at, stored_rejection
from .status.waiting import begin_to_wait
from .steps.context import StepContext
from .steps.dispatch import carry_out, failed
from .steps.resize import count_granted
from .steps.spec_builder import SpecBuilder
from .worker import PodWorker
from .workloads.standby.facts import standby_of
from .workloads.table import observed, unused_resources


class PodExecutor:
    """Implements `WorkerContext` for the workers of all pods.

    For the manager, it also makes the first facts of new and recovered pods.
    """

    def __init__(self, deps: PodDependencies) -> None:
        self._deps = deps
        self.specs = SpecBuilder(deps)
        self.overrides = OverrideFiles(deps)
        self.active = ActivePods(deps.registry, deps.clock)
        self.preemption = Preemption(self.active, deps.admission, deps.events, deps.counters)
        self.registry = deps.registry
        self.admission = deps.admission
        self.records = deps.records
        self.board = deps.board
        self.events = deps.events
        self.clock = deps.clock
        self.sources = deps.sources
        self.counters = deps.counters
        self.exit_seconds = deps.exit_seconds
        self._identity = deps.identity
        self._turned: dict[PodUid, DesiredPod] = {}
        """Desired pod in each worker's last round."""
        self._changes: dict[PodUid, tuple[str, float]] = {}
        """Step and start of the last counted freeze, hibernation or thaw of each pod."""

    @property
    def node_name(self) -> str:
        return self._deps.node.node_name

    # --- for workers --------------------------------------------------------------------------------

    def now(self) -> Now:
        return Now(wall=self.clock.now(), mono=self.clock.monotonic(), draw=random.random())

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        return self.clock.call_at(when, callback)

    def observe(self, facts: PodFacts, desired: DesiredPod) -> PodFacts:
        """Return the facts with the present state of the pod's runtime and the runtime's last snapshot of the pod.

        If the runtime does not answer or is not configured any more, `outage` is set and the last snapshot is kept.
        """
        facts = self._with_deadline(facts, desired)
        if self._deps.evacuations and desired.deletion is not None:
            has_sessions = any(hook.is_needed(desired.uid) for hook in self._deps.evacuations)
            facts = replace(facts, has_sessions=has_sessions)
        if facts.runtime is None:
            return facts
        handle = self.registry.find(facts.runtime)
        if handle is None:
            if facts.outage is not None and facts.outage.reason == "RuntimeNotFound":
                return facts
            text = f"runtime {facts.runtime} is not configured on this node"
            lost = Outage(since=self.clock.now(), reason="RuntimeNotFound", message=text)
            return replace(facts, outage=lost, runtime_ready=False, network_ready=False)
        state, traits = handle.state, handle.traits
        outage: Outage | None = None
        if not state.reachable:
            outage = Outage(since=state.since, reason=state.reason, message=state.message)
        facts = replace(facts, snapshot=self._snapshot(handle, desired.uid) or facts.snapshot)
        return replace(
            facts,
            own=observed(facts, handle, desired.pod),
            outage=outage,
            runtime_ready=state.ready,
            network_ready=state.network_ready,
            network_problem="" if state.network_ready else state.message,
            expects_address=traits is None or "pod-network" not in traits.refuses,
            image_before_sandbox=traits is not None and traits.image_before_sandbox,
        )

    async def act(self, action: Action, worker: PodWorker) -> Result:
        step = StepContext(
            deps=self._deps,
            specs=self.specs,
            preemption=self.preemption,
            overrides=self.overrides,
            worker=worker,
            now=self.now,
        )
        if self._deps.traces is None:
            return await carry_out(step, action)
        return await self._deps.traces.action(worker.desired, action, lambda: carry_out(step, action))

    def failed(self, action: Action, reason: str, message: str) -> Result:
        return failed(action, reason, message)

    def publish(self, desired: DesiredPod, facts: PodFacts, plan: Plan) -> PodStatus:
        """Build the pod's status and return it; if it changed, pass it to the status board and the stored records."""
        status = build_status(desired, facts, self.now(), self._identity)
        self.admission.count_standby(desired.uid, unused_resources(desired, facts))
        self._count_change(desired.uid, facts)
        before = self.board.statuses.get(desired.uid)
        if self.board.put(desired, facts, status):
            self.records.note_status(desired.uid, status)
            self.counters.phase_changed(desired.uid, status.phase or "", self.clock.monotonic())
            self.counters.ended(before, status)
            self.counters.starts.published(desired.uid, status, self.clock.now())
            if self._deps.traces is not None:
                self._deps.traces.published(desired.uid, status)
            for name in begin_to_wait(before, status):
                self._tell_back_off(desired.pod, name)
            if status.phase in FINAL:
                self.preemption.left(desired.uid)
        return status

    def status_changes_at(self, facts: PodFacts) -> float | None:
        return status_changes_at(facts, self.now())

    def sync_probes(self, worker: PodWorker, goal: Goal) -> None:
        self._deps.probes.sync(worker.desired, worker.facts, goal, worker.probed)

    def turned(self, worker: PodWorker, seconds: float) -> None:
        self.counters.worker_turned(worker.uid, seconds, self.clock.monotonic(), self._operation(worker))

    # --- for the manager ----------------------------------------------------------------------------

    def first_seen(self, desired: DesiredPod) -> None:
        """Begin to measure, and if configured to trace, the start of a pod that is new on this node."""
        self.counters.first_seen(desired.uid, self.clock.monotonic())
        self.counters.starts.first_seen(desired.pod, self.clock.now())
        if self._deps.traces is not None:
            self._deps.traces.first_seen(desired)

    def fresh_facts(self, desired: DesiredPod) -> PodFacts:
        """Return the first facts of a pod that is new on this node."""
        return PodFacts(
            grace_seconds=grace_seconds(desired.pod), crash_cap_seconds=self._deps.crash_cap_seconds
        )

    def recovered_facts(self, recovered: RecoveredPod) -> PodFacts:
        """Return the first facts of a pod that existed before this process, with its runtime and its stored status."""
        started = recovered.status.start_time if recovered.status is not None else None
        if started is None and recovered.binding is not None:
            started = recovered.binding.bound_at
        handle = self.registry.find(recovered.runtime)
        facts = replace(
            self.fresh_facts(recovered.desired),
            runtime=recovered.runtime,
            admitted=True,
            bind_wanted=False,
            recovered=True,
            started_at=started,
            previous_status=recovered.status,
            rejection=stored_rejection(recovered.status),
        )
        if handle is not None and not _is_covered(handle.snapshot(recovered.desired.uid), recovered.status):
            facts = replace(facts, look_wanted_at=self.clock.monotonic())
        return facts

    def claimed(self, facts: PodFacts, desired: DesiredPod) -> None:
        """Update the node's resource accounting for a recovered pod, or for one whose spec changed.

        The resources granted to the pod now are reserved, which may differ from its spec.
        """
        count_granted(self._deps, facts, desired)

    def runtime_changed(self, name: str) -> None:
        """Update the scheme of the runtime's container IDs (before ``://``), the runtime name that Version reports."""
        handle = self.registry.find(name)
        version = handle.last_version if handle is not None else None
        if handle is None or version is None or self._identity.backends.get(handle.name) == version.name:
            return
        backends = {**self._identity.backends, handle.name: version.name}
        self._identity = replace(self._identity, backends=backends)

    def notify(self, desired: DesiredPod, notice: PlannedEvent) -> None:
        self.events.record(
            pod_ref(desired.pod), type=notice.type, reason=notice.reason, message=notice.message
        )

    def forget(self, worker: PodWorker) -> None:
        """Drop everything kept for a pod that is gone."""
        self.specs.forget(worker.uid)
        self.overrides.forget(worker.uid)
        self._turned.pop(worker.uid, None)
        self._changes.pop(worker.uid, None)
        self.counters.gone(worker.uid)
        if self._deps.traces is not None:
            self._deps.traces.gone(worker.uid)
        self._deps.probes.drop(worker.uid)
        self.records.forget(worker.uid)
        self.board.drop(worker.desired, worker.facts)
        handle = self.registry.find(worker.facts.runtime) if worker.facts.runtime is not None else None
        if handle is not None:
            handle.forget(worker.uid)

    # --- private ------------------------------------------------------------------------------------

    def _operation(self, worker: PodWorker) -> str:
        """Return the operation of the worker's round for the metrics, as the kubelet names it: create, update ..."""
        desired, before = worker.desired, self._turned.get(worker.uid)
        self._turned[worker.uid] = desired
        if desired.deletion is not None:
            return "kill"
        if before is None:
            return "create"
        return "sync" if before is desired else "update"

    def _count_change(self, uid: PodUid, facts: PodFacts) -> None:
        """Count the duration of the pod's last freeze, hibernation or thaw, once."""
        change = standby_of(facts).last
        if change is not None and self._changes.get(uid) != (change.step, change.began_at):
            self._changes[uid] = (change.step, change.began_at)
            self.counters.standby_pods.add(change.seconds, change.step)

    def _tell_back_off(self, pod: Pod, name: str) -> None:
        text = f"Back-off restarting failed container {name} in pod {pod.name}_{pod.namespace}({pod.uid})"
        ref = pod_ref(pod, field_of(pod, name))
        self.events.record(ref, type="Warning", reason=Event.BACK_OFF, message=text)

    def _snapshot(self, handle: RuntimeHandle, uid: PodUid) -> PodSnapshot | None:
        """Return the runtime's last snapshot of the pod; None before the first query or list.

        If a complete list does not show the pod, the snapshot is empty.
        """
        looked_at = handle.looked_at(uid)
        snapshot = handle.snapshot(uid)
        if snapshot is not None:
            return snapshot if snapshot.looked_at >= looked_at else replace(snapshot, looked_at=looked_at)
        return PodSnapshot(uid=uid, looked_at=looked_at) if looked_at > 0 else None

    def _with_deadline(self, facts: PodFacts, desired: DesiredPod) -> PodFacts:
        """Set the end of activeDeadlineSeconds as a monotonic time, computed once: clock jumps do not end pods."""
        seconds = desired.pod.spec.active_deadline_seconds
        if seconds is None or facts.started_at is None:
            return facts if facts.deadline_at is None else replace(facts, deadline_at=None)
        if facts.deadline_at is not None and facts.deadline_seconds == seconds:
            return facts
        ran = max(self.clock.now() - facts.started_at, timedelta())
        left = seconds - ran.total_seconds()
        return replace(facts, deadline_at=self.clock.monotonic() + left, deadline_seconds=seconds)


def _is_covered(snapshot: PodSnapshot | None, status: PodStatus | None) -> bool:
    """Return True if the stored status agrees with the snapshot, so that the pod need not be queried again."""
    if snapshot is None:
        return True
    if status is None:
        return False
    known: dict[str, bool] = {}
    for container_status in (*status.init_container_statuses, *status.container_statuses):
        ended = container_status.state.terminated
        if ended is not None and ended.container_id:
            known[ended.container_id.partition("://")[2]] = False
        elif container_status.container_id and container_status.state.running is not None:
            known[container_status.container_id.partition("://")[2]] = True
    newest: dict[str, bool] = {}
    for unit in snapshot.units:
        if unit.name not in newest:
            newest[unit.name] = known.get(unit.id) == unit.state.is_alive
    return all(newest.values()) and (bool(status.pod_ips) or snapshot.is_empty)
