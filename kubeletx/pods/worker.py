"""The pod worker: the task that owns the life of one pod.

    input (new spec, event, runtime changed, result) ─► facts ─► plan_pod ─► start what is not in flight
          ▲                                                                        │
          └──────────────── sleeps until an input or the plan's wake-up ◄──────────┘

Planning is serial, actions run concurrently. Inputs need bounded memory: the newest spec, a request to query the
runtime with the events that caused it, results of the actions in flight. A deletion cancels waits, pulls, probes and
hooks, and a plan names hibernations to cancel; create, start, stop and remove run to their deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import structlog
from msgspec.structs import replace

from kubeletx.api import Conflict, PodUid, RuntimeEvent, UnitId, UnitState
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod, PodStatus
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from .model import results
from .model.actions import Action, Bind, EnsureImage, Look
from .model.draft import Goal, Plan, PlannedEvent
from .model.facts import Deletion, DesiredPod, Grants, Now, PodFacts, ProbeFacts
from .model.history import History
from .model.pending_events import PendingEvents
from .model.repeats import NOTICED, count_done, count_look, doing
from .model.results import Result
from .model.roles import changed_images
from .model.runs import without_old_boots
from .plan.doubt import count_confirming, without_old_doubt
from .plan.pod import limit_end, plan_pod
from .plan.progress import restartable
from .workloads.overrides import overrides_of
from .workloads.power import Power

log = structlog.get_logger(__name__)


class WorkerContext(Protocol):
    """Interface through which a worker carries out actions, reads the runtime's state and publishes the status.

    It is a protocol because `PodExecutor`, which implements it, imports this module: imports go one way only.
    """

    def now(self) -> Now:
        """Return the present moment on the wall clock and on the monotonic clock."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` at monotonic time `when`; return a function that cancels the timer."""
        ...

    def observe(self, facts: PodFacts, desired: DesiredPod) -> PodFacts:
        """Return the facts with the runtime's present state and snapshot filled in."""
        ...

    async def act(self, action: Action, worker: PodWorker) -> Result:
        """Carry out one action for the worker's pod and return its result. Raises only on bugs."""
        ...

    def failed(self, action: Action, reason: str, message: str) -> Result:
        """Return the result of an action whose step raised an unexpected error."""
        ...

    def publish(self, desired: DesiredPod, facts: PodFacts, plan: Plan) -> PodStatus:
        """Build the status, report it if it changed, and return it."""
        ...

    def notify(self, desired: DesiredPod, notice: PlannedEvent) -> None:
        """Record the notice as an event about the pod."""
        ...

    def status_changes_at(self, facts: PodFacts) -> float | None:
        """Return the monotonic time at which the status changes without any new input; None if it does not."""
        ...

    def sync_probes(self, worker: PodWorker, goal: Goal) -> None:
        """Start and stop probes to match the containers that run and the plan's goal."""
        ...

    def turned(self, worker: PodWorker, seconds: float) -> None:
        """Count one round of the worker in the metrics. `seconds`: its duration."""
        ...


class PodWorker:
    """The worker of one pod: owns its facts, plans and starts actions.

    `run` is the loop and returns when the pod is gone. The other public methods pass it new input.
    """

    def __init__(
        self,
        desired: DesiredPod,
        context: WorkerContext,
        facts: PodFacts,
        *,
        exit_seconds: float,
        is_new: bool = False,
    ) -> None:
        """`exit_seconds`: time for which a stopping agent waits for the calls in flight.

        `is_new`: the pod did not exist before this agent process.
        """
        self.desired = desired
        self.facts = facts
        self.plan: Plan | None = None
        self.is_done = False
        self.ending = asyncio.Event()
        """Set when a deletion of the pod is requested; whatever waits for something on its behalf then gives up."""
        self._context = context
        self._exit_seconds = exit_seconds
        self._woken = asyncio.Event()
        self._woken.set()
        self._pending = PendingEvents()
        self._tasks: dict[str, asyncio.Task[Result]] = {}
        self._actions: dict[str, Action] = {}
        self._stop_ends_at: dict[str, tuple[str, float]] = {}
        """Unit name and end of the grace period (monotonic), by key of the action that ends the unit."""
        self._began_at: dict[str, float] = {}
        self.history = History(context.now().wall if is_new else None)
        """The last actions with their results, and the start of the pod."""
        self._has_looked = False
        self._last_look: PodSnapshot | None = None
        """What the last read of the pod's state showed, without its time."""
        self._held: dict[str, str] = {}
        self._refusals: tuple[PlannedEvent, ...] = ()

    @property
    def uid(self) -> PodUid:
        return self.desired.uid

    # --- inputs -------------------------------------------------------------------------------------

    def set_desired(self, desired: DesiredPod) -> None:
        """Set the pod's newest desired state.

        A deletion that was requested before stays in effect; its grace period can only shrink.
        """
        before = self.desired.deletion
        after = desired.deletion
        if before is not None:
            after = before if after is None else _after(before, after)
        if after != before:
            self._forget_repeats()
        if before is None and after is not None:
            self._cancel_cancellable()
            self.ending.set()
        if desired.spec_hash != self.desired.spec_hash and self.facts.runtime is None:
            self.facts = replace(self.facts, bind_wanted=True)
        if desired.pod.metadata != self.desired.pod.metadata and self.facts.volumes.ready:
            now = self._context.now().mono  # downward API files follow labels
            volumes = replace(self.facts.volumes, stale_at=now)
            self.facts = replace(self.facts, volumes=volumes)
        if _is_edited(self.desired.pod, desired.pod):
            self._apply(results.PodEdited(self.desired.pod, desired.pod))
            for name in changed_images(self.desired.pod, desired.pod):
                self._cancel_once(EnsureImage(name=name).key)  # its result would be used for the new image
        self.desired = replace(desired, deletion=after)
        self._woken.set()

    def delete(self, deletion: Deletion) -> None:
        """End the pod: the node ends it if `deletion` has a reason, otherwise its source deletes it."""
        self.set_desired(replace(self.desired, deletion=deletion))

    def look_again(self, event: RuntimeEvent | None = None) -> None:
        """Request that the pod is queried on its runtime again, since something may have changed there.

        `event`: the runtime's event about the change, if any; the query is repeated until its result shows the change
        (see `PendingEvents`).
        """
        now = self._context.now().mono
        if event is not None:
            self._pending = self._pending.add(event, now)
        if event is None or not self._is_changing():
            self.facts = replace(self.facts, look_wanted_at=now)
        self._woken.set()

    def runtime_changed(self) -> None:
        """Plan again, and choose a runtime if the pod has none.

        Called when a runtime's readiness, cordon or existence changed, or when a pod has left the node.
        """
        if self.facts.runtime is None and self.facts.rejection is None:
            self.facts = replace(self.facts, bind_wanted=True)
        self._woken.set()

    def objects_changed(self) -> None:
        """Plan again. Called when an object that the pod refers to, such as a ConfigMap, changed in the cluster."""
        self._apply(results.ObjectsChanged())
        self._woken.set()

    def probed(self, name: str, probes: ProbeFacts) -> None:
        """Set the latest probe outcomes of a container, and plan again."""
        self._apply(results.Probed(name, probes))
        self._woken.set()

    def apply(self, result: Result) -> None:
        """Apply the result of an operator's command, such as ``vm resize``, to the facts, and plan again."""
        self._apply(result)
        self._woken.set()

    def _apply(self, result: Result) -> None:
        self.facts = results.apply(self.facts, result, self._context.now())

    def restart(self, wanted: str = "") -> dict[str, UnitId]:
        """Return the units to stop for a restart of the container `wanted`, or of all, by container name.

        Only containers that run, or wait for their next run, are restarted, and only if their policy is not Never. Their
        back-off ends. The caller stores the units in the overrides, which stops them.
        """
        asked = dict(restartable(self.desired, self.facts, wanted))
        for name in asked:
            self._apply(results.RestartAsked(name))
        return asked

    def set_overrides(self, overrides: Grants) -> None:
        """Set the granted resources and the operators' requests, which the caller has stored, and plan again."""
        before = _stored_power(self.facts)
        self.facts = replace(self.facts, overrides=overrides)
        if _stored_power(self.facts) != before:
            self._forget_repeats()
        self._woken.set()

    @contextlib.contextmanager
    def holding(self, key: str, name: str) -> Iterator[None]:
        """Context in which an operator's command changes the container or machine `name`.

        Meanwhile the worker starts no action with this `key`. If the pod ends, it may still stop the container by an
        action with another key. Raises Conflict if an action or command with this key is in progress.
        """
        if key in self._tasks or key in self._held:
            raise Conflict(f"{name} of pod {self.desired.ref} is just being changed; try again")
        self._held[key] = name
        try:
            yield
        finally:
            del self._held[key]
            now = self._context.now().mono
            self.facts = replace(self.facts, changed_at=now, look_wanted_at=now)
            self._woken.set()

    def ask_power(self, power: Power | None, owner: str) -> None:
        """Request a power state in memory only; None withdraws the request of this `owner`.

        Of all requests, the one stored on disk included, the one nearest to running counts (`workloads.power`): a pod
        that one owner needs running is running. Requests end with this process; owners repeat them after a restart.
        """
        before = self.facts.asked
        self._apply(results.PowerAsked(owner, power.value if power is not None else ""))
        if self.facts.asked != before:
            self._forget_repeats()
        self._woken.set()

    @property
    def is_unit_changing(self) -> bool:
        """True while an action that changes a unit is in flight, or while an input was not planned for yet."""
        return self._woken.is_set() or any(key.startswith("unit/") for key in self._tasks)

    def _forget_repeats(self) -> None:
        """Drop the counts of repeated actions: after a new request, the same action is not a repeat without effect."""
        self.facts = replace(self.facts, repeats={})

    def refresh(self) -> None:
        """Plan and publish again without any other input."""
        self._woken.set()

    # --- the loop -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until the pod is gone. Cancelling leaves its units running as they are."""
        cancel_timer: Callable[[], None] | None = None
        self._woken.set()
        try:
            while not self.is_done:
                await self._woken.wait()
                # Before the round: an input that arrives during it wakes the next one.
                self._woken.clear()
                if cancel_timer is not None:
                    cancel_timer()
                    cancel_timer = None
                began = time.perf_counter()
                plan = self._turn()
                self._context.turned(self, time.perf_counter() - began)
                wake_at = _earlier(plan.wake_at, self._context.status_changes_at(self.facts))
                if wake_at is not None:
                    cancel_timer = self._context.call_at(wake_at, self._woken.set)
        finally:
            if cancel_timer is not None:
                cancel_timer()
            await self._end_tasks()

    def _turn(self) -> Plan:
        """Do one round: observe the runtime's state, plan, start actions, publish the status."""
        now = self._context.now()
        self.facts = self._context.observe(self.facts, self.desired)
        self.facts = without_old_doubt(self.desired, without_old_boots(note_exits(self.facts, now)))
        self._settle_pending(now)
        end = limit_end(self.desired, self.facts, now)
        if end is not None:
            self._context.notify(
                self.desired, PlannedEvent(reason=end.reason, message=end.message, type="Normal")
            )
            self.delete(end)
            self.facts = self._context.observe(self.facts, self.desired)
        plan = plan_pod(self.desired, self._with_in_flight(), now)
        if self.plan is None or plan.goal is not self.plan.goal:
            log.debug("Planned pod", pod=self.desired.ref, goal=plan.goal.value, why=plan.why)
        if plan.notice is not None and plan.notice != (self.plan.notice if self.plan else None):
            self._context.notify(self.desired, plan.notice)
        for refusal in plan.refusals:
            if refusal not in self._refusals:
                self._context.notify(self.desired, refusal)
        if not plan.is_partial:
            self._refusals = plan.refusals
        self.plan = plan
        for key in plan.cancels:
            self._cancel_once(key)
        for action in plan.actions:
            self._start(action)
        self._with_in_flight()
        if not plan.in_doubt:
            self._context.sync_probes(self, plan.goal)
            status = self._context.publish(self.desired, self.facts, plan)
            self.history.published(status, self._context.now().wall)
            self.facts = replace(self.facts, previous_status=status)
        self.is_done = plan.finished
        return plan

    def _with_in_flight(self) -> PodFacts:
        stopping = dict(self._stop_ends_at.values())
        stopping.update(dict.fromkeys(self._held.values(), math.inf))
        # A command of an operator counts as an action: the plan starts no second one on the same object.
        in_flight = frozenset(self._tasks) | frozenset(self._held)
        held = frozenset(
            str(getattr(action, "name", "")) for action in self._actions.values() if action.holds_probes
        )
        revocable = frozenset(key for key, action in self._actions.items() if action.revocable)
        self.facts = replace(
            self.facts, in_flight=in_flight, revocable=revocable, stopping=stopping, probes_held=held
        )
        return self.facts

    def _start(self, action: Action) -> None:
        now = self._context.now()
        if action.ends_in_seconds is not None:
            name = str(getattr(action, "name", ""))
            self._stop_ends_at[action.key] = (name, now.mono + action.ends_in_seconds)
        if action.key == "look":
            self._has_looked = True
            self.facts = replace(self.facts, look_wanted_at=None)
        if isinstance(action, Bind):  # a runtime that changes from now on is a reason to choose again
            self.facts = replace(self.facts, bind_wanted=False)
        task = asyncio.create_task(self._carry_out(action), name=f"{action.key} {self.desired.ref}")
        self._actions[action.key] = action
        self._tasks[action.key] = task
        self._began_at[action.key] = now.mono
        # Not in the task itself: one that is cancelled before its first step never runs any of its code.
        task.add_done_callback(lambda done: self._ended(action, done))

    async def _carry_out(self, action: Action) -> Result:
        try:
            return await self._context.act(action, self)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            recent = self.history.last_lines()
            log.exception("Action failed with a bug", pod=self.desired.ref, action=action.key, recent=recent)
            return self._context.failed(action, "InternalError", f"{type(error).__name__}: {error}")

    def _cancel_once(self, key: str) -> None:
        """Cancel the action in flight with this key; a second cancellation would interrupt what undoes the call."""
        task = self._tasks.get(key)
        if task is not None and not task.cancelling():
            task.cancel()

    def _ended(self, action: Action, task: asyncio.Task[Result]) -> None:
        """Remove an ended action from the actions in flight; apply its result.

        A cancelled action has none. If it was revocable, the pod's state is read, since the runtime may have not
        undone it, and it is counted for `repeats`, so that a readiness that changes all the time does not repeat it
        without delays.
        """
        self._tasks.pop(action.key, None)
        self._actions.pop(action.key, None)
        self._stop_ends_at.pop(action.key, None)
        now = self._context.now()
        seconds = now.mono - self._began_at.pop(action.key, now.mono)
        result = None if task.cancelled() else task.result()
        is_machine = self.facts.own.has_own_kernel
        self.history.add(action, result, at=now.wall, seconds=seconds, is_machine=is_machine)
        if result is None and action.revocable:
            facts = results.apply(self.facts, results.LookNeeded(), now)
            self.facts, _ = count_done(facts, action, now, was_cancelled=True)
        elif result is not None:
            self.facts, done = count_done(results.apply(self.facts, result, now), action, now)
            if done == NOTICED:
                self._tell_no_effect(action)
            if isinstance(action, Look):
                self._count_look(action, result, now)
        self._woken.set()

    def _count_look(self, action: Look, result: Result, now: Now) -> None:
        """Count the read of the pod's state for `repeats`, which delays reads that show nothing new, and for `doubt`."""
        seen = self._context.observe(self.facts, self.desired)
        if not isinstance(result, results.LookFailed) or result.answered:
            self.facts = replace(self.facts, doubt=count_confirming(self.desired, seen).doubt)
        snapshot = seen.snapshot
        shown = None if snapshot is None else replace(snapshot, looked_at=0.0)
        self.facts = count_look(self.facts, action, now, has_news=shown != self._last_look)
        self._last_look = shown

    def _tell_no_effect(self, action: Action) -> None:
        """Log and record an event that the runtime reports success for this action but nothing changes."""
        runtime = self.facts.runtime
        log.warning("Action had no effect", pod=self.desired.ref, action=doing(action), runtime=runtime)
        message = (
            f"runtime {runtime} reported no error {NOTICED} times for {doing(action)}, and nothing changed; the "
            "agent retries at most every 10s; see the runtime's log, or restart the runtime"
        )
        self._context.notify(self.desired, PlannedEvent(reason=Event.RUNTIME_WITHOUT_EFFECT, message=message))

    def _settle_pending(self, now: Now) -> None:
        """Drop the pending events that the snapshot shows; schedule another query of the runtime for the others."""
        if not self._pending.open:
            return
        self._pending = self._pending.after(self.facts.snapshot)
        if not self._pending.open or self.facts.look_wanted_at is not None or "look" in self._tasks:
            return
        if self._has_looked:
            self._has_looked = False
            self._pending = self._pending.later()
            if not self._pending.open:
                return
        self.facts = replace(self.facts, look_wanted_at=now.mono + self._pending.delay_seconds)

    def _is_changing(self) -> bool:
        return any(not a.cancellable and k != "look" for k, a in self._actions.items())

    def _cancel_cancellable(self) -> None:
        for key, action in list(self._actions.items()):
            if action.cancellable and key in self._tasks:
                self._tasks[key].cancel()

    async def _end_tasks(self) -> None:
        """Cancel cancellable actions; wait up to `exit_seconds` for the others, then cancel them too."""
        self._cancel_cancellable()
        tasks = list(self._tasks.values())
        if not tasks:
            return
        # Not cancelled at once: after a call that is cut off it is unknown whether it took effect.
        _, late = await asyncio.wait(tasks, timeout=self._exit_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


def _stored_power(facts: PodFacts) -> str:
    """Return the power state that an operator requested; empty if none, or if the overrides were not read yet."""
    overrides = overrides_of(facts)
    return overrides.power if overrides is not None else ""


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _after(before: Deletion, after: Deletion) -> Deletion:
    """Combine two deletions of a pod: the source's deletion wins over the node's, and the earlier end counts."""
    if not before.reason or after.reason:
        return _shorter(before, after)
    left = round(before.requested_at + before.grace_seconds - after.requested_at)
    return replace(after, grace_seconds=max(0, min(left, after.grace_seconds)))


def _shorter(before: Deletion, after: Deletion) -> Deletion:
    ends = min(
        before.requested_at + before.grace_seconds,
        after.requested_at + after.grace_seconds,
    )
    grace = max(round(ends - before.requested_at), 0)
    if after.force and after.grace_seconds == 0:
        grace = 0
    return replace(before, grace_seconds=grace, force=before.force or after.force)


def _is_edited(before: Pod, after: Pod) -> bool:
    """Return True if the spec, labels or annotations differ; other fields may be written by this node itself."""
    one, other = before.metadata, after.metadata
    return (before.spec, one.labels, one.annotations) != (after.spec, other.labels, other.annotations)


def note_exits(facts: PodFacts, now: Now) -> PodFacts:
    """Add to the facts the monotonic time at which each container's newest run ended."""
    if facts.snapshot is None:
        return facts
    for name in {u.name for u in facts.snapshot.units}:
        unit = facts.newest(name)
        if unit is None or unit.state is not UnitState.EXITED or facts.unit(name).exited_at is not None:
            continue
        status = facts.snapshot.status_of(unit.id)
        finished_ns = status.finished_at_ns if status is not None else 0
        ago = now.wall.timestamp() - finished_ns / 1e9 if finished_ns else 0.0
        # Wall clocks jump: a time in the future counts as now, one long ago as an hour, which is past every back-off.
        exited_at = now.mono - min(max(ago, 0.0), 3600.0)
        facts = results.apply(facts, results.UnitExited(name, exited_at), now)
    return facts
