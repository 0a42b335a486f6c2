"""`RemedyController`: looks at the nodes, decides with `planner`, and carries the decisions out, one at a time per node."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, Conflict, KubeletxError, NotFound, TimedOut, Unavailable, sleep_or

from .actions.pod_template import job_name
from .automaton import after, operation_of, released
from .cluster import ClusterWatch, FlowClock
from .config import Configurations
from .decisions import Act, Change, Decision, Release, Stay
from .fences import FenceRecords
from .model import (
    FenceMethod,
    FenceOperation,
    FlowStatus,
    FlowStep,
    KernelDump,
    MethodResult,
    NodeFence,
    NodeView,
    RemedyOutcome,
    RemedyTask,
)
from .planner import ClusterView, FlowPlan, ProblemEvents, has_recovered, plan_all, sickness_of
from .policy import NOTE, PolicyView, is_busy, starts
from .release import PodRelease
from .safety.leases import NodeLeases
from .safety.surroundings import Surroundings

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 0.5
"""Time between two looks while a node is sick or has a flow."""
SAVE_SECONDS: Final = 10.0
"""Measured times are recorded this often, for the next leader."""
BUDGET_SECONDS: Final = 10.0
"""Pods that a disruption budget keeps are asked for again this often."""
MARK_SECONDS: Final = 10.0
"""After this time, a node without a flow that still has the cordon or taint of a flow gets a recovery."""
KILL_SECONDS: Final = 3.0
"""Time that a method may take beyond its deadline, until its programs have ended."""


class RemedyAction(Protocol):
    """Carries out the methods of one kind."""

    async def run(self, task: RemedyTask) -> RemedyOutcome:
        """Carry out the method. Does not raise for what the outside does; see `RemedyOutcome`."""
        ...


@runtime_checkable
class CleaningAction(RemedyAction, Protocol):
    """An action whose methods leave objects in the cluster until the flow has ended."""

    async def clean(self, node: NodeView, method: FenceMethod) -> None:
        """Delete what the method has left for this node. Raises KubeletxError."""
        ...


class RemedyController:
    """Treats sick nodes while it leads. All state is in the cluster, so `run` may be cancelled at any time."""

    def __init__(  # noqa: PLR0913 - its parts, by keyword
        self,
        watch: ClusterWatch,
        records: FenceRecords,
        actions: Mapping[str, RemedyAction],
        release: PodRelease,
        leases: NodeLeases,
        surroundings: Surroundings,
        *,
        clock: Clock,
        configured: Callable[[], Configurations],
        may_act: Callable[[], bool],
        own_node: str = "",
        dump_of: Callable[[str], KernelDump] = lambda _node: KernelDump(),
        report: Callable[[FlowPlan, Change], object] = lambda _plan, _change: None,
        ended: Callable[[RemedyTask, RemedyOutcome, float], object] = lambda _task, _outcome, _seconds: None,
    ) -> None:
        """`may_act`: asked before each write and method; False: this controller does not lead.

        `own_node`: name of the node that it runs on; empty: none. `dump_of`: kernel dump of a node. `report`: gets every
        change, for events and metrics. `ended`: gets every method that has ended, its outcome and seconds.
        """
        self._watch = watch
        self._records = records
        self._actions = actions
        self._release = release
        self._leases = leases
        self._surroundings = surroundings
        self._refreshing: asyncio.Task[None] | None = None
        self._clock = clock
        self._configured = configured
        self._may_act = may_act
        self._own_node = own_node
        self._dump_of = dump_of
        self._report = report
        self._ended = ended
        self._flow_clock = FlowClock(clock)
        self._sick: set[str] = set()
        self._recent: set[str] = set()
        self._marked: dict[str, float] = {}
        self._starting: set[str] = set()
        self._tries: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._agents: set[str] = set()
        self._idle: dict[str, RemedyOutcome | None] = {}
        """Operations of this term whose method does not run now, by ID; with the outcome if it is not recorded yet."""
        self._saved: dict[str, float] = {}
        self._configuration: Configurations | None = None

    async def run(self) -> None:
        """Look and act until cancelled."""
        # Another controller may have led since the last term.
        self._flow_clock = FlowClock(self._clock)
        self._idle.clear()
        self._saved.clear()
        try:
            while True:
                try:
                    self._look()
                except Exception:  # a fault of this program; what is not decided is not done
                    log.exception("Cannot decide now")
                is_busy = bool(
                    self._sick
                    or self._marked
                    or self._tasks
                    or any(map(_is_open, self._watch.fences.items.values()))
                )
                await sleep_or(self._clock, LOOK_SECONDS if is_busy else 30.0, self._watch.changed)
                self._watch.changed.clear()
        finally:
            tasks = [*self._tasks.values(), *filter(None, [self._refreshing])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def view(self) -> ClusterView:
        """Return the cluster as it is decided on now."""
        fences = self._watch.fences.items
        names = {name for name, fence in fences.items() if _is_open(fence)} | self._sick
        now = self._clock.monotonic()
        names |= {name for name, since in self._marked.items() if now - since >= MARK_SECONDS}
        return ClusterView(
            now=self._flow_clock.now(),
            nodes=self._watch.nodes.items,
            fences=fences,
            events=ProblemEvents(self._watch.events.times),
            times={
                name: self._flow_clock.times(name, fences.get(name), is_well=name not in self._sick)
                for name in names
            },
            dumps={name: self._dump_of(name) for name in names},
            policy=PolicyView(
                own_node=self._own_node,
                sick=frozenset(self._sick),
                recent=frozenset(self._recent),
                starting=frozenset(self._starting),
                actors=self._leases.others(),
                doubts=self._surroundings.doubts,
                planned=self._surroundings.planned,
                problem=self._watch.problem,
                seen=self._flow_clock.seen(
                    node for name, node in self._watch.nodes.items.items() if name in names
                ),
            ),
        )

    def _look(self) -> None:
        self._find_sick()
        if self._sick and self._surroundings.is_due and self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(), name="remedy surroundings")
        view, configured = self.view(), self._configured()
        free = view.times.keys() - self._tasks.keys()
        plans = plan_all(view, configured, free & view.nodes.keys())
        # A machine that was switched off is switched on before the next one is switched off.
        for plan in sorted(
            plans, key=lambda plan: not (isinstance(plan.decision, Act) and plan.decision.place)
        ):
            change = plan.decision
            if self._runs_agent(plan):
                if len(self._agents) >= configured.settings.max_agents:
                    continue
                self._agents.add(plan.node.name)
            if isinstance(change, Change) and starts(plan.fence, change.fence):
                self._starting.add(plan.node.name)
            if isinstance(change, Stay) and not self._is_upkeep_due(plan):
                continue
            self._start(plan.node.name, self._carry_out(plan))
        touched, self._watch.fences.touched = self._watch.fences.touched, set()
        for name in touched & view.fences.keys() - self._tasks.keys():
            fence = view.fences[name]
            if fence.is_over and not fence.problem and fence.status != fence.flow.status:
                self._start(name, self._mirror(fence))  # its writer ended between the two requests
        gone = view.fences.keys() - view.nodes.keys() - self._watch.nodes.unreadable
        for name in gone - self._tasks.keys():
            if not view.policy.problem:
                self._start(name, self._forget(name))

    def _runs_agent(self, plan: FlowPlan) -> bool:
        operation = plan.fence.flow.operation if plan.fence is not None else None
        is_agent = isinstance(plan.decision, Act) and plan.decision.method.kind == "agent"
        return is_agent and (operation is None or operation.id in self._idle)

    async def _refresh(self) -> None:
        nodes = self._watch.nodes.items
        well = {name for name, node in nodes.items() if node.is_ready} - self._sick
        try:
            await self._surroundings.refresh(well, nodes.get(self._own_node))
        finally:
            self._refreshing = None
            self._watch.changed.set()

    def _find_sick(self) -> None:
        """Update the sets of nodes. Only changed nodes are looked at, or all of them after a change of the configuration."""
        configured, nodes = self._configured(), self._watch.nodes
        names = nodes.touched
        if configured is not self._configuration:
            self._configuration, names = configured, {*nodes.items, *names}
        self._watch.events.forget(names - nodes.items.keys() - nodes.unreadable)
        now, events = self._flow_clock.now(), ProblemEvents(self._watch.events.times)
        for name in {*names, *self._sick}:
            node = nodes.items.get(name)
            is_sick = node is not None and bool(
                sickness_of(node, configured, now, events, self._watch.fences.items.get(name))
            )
            (self._sick.add if is_sick else self._sick.discard)(name)
        for name in {*names, *self._marked, *self._watch.fences.touched}:
            node, fence = nodes.items.get(name), self._watch.fences.items.get(name)
            is_marked = node is not None and bool(node.metadata.annotations.get(NOTE))
            if is_marked and (fence is None or fence.is_over):
                self._marked.setdefault(name, self._clock.monotonic())
            else:
                self._marked.pop(name, None)
        self._recent = {
            name
            for name in {*names, *self._recent}
            if name in nodes.items and has_recovered(nodes.items[name], configured, now)
        }
        nodes.touched = set()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except Conflict as error:  # another writer was faster; the next look sees its record
                log.info("A record has changed meanwhile", node=name, err=str(error))
                await self._clock.sleep(LOOK_SECONDS)
            except KubeletxError as error:
                log.warning("Cannot treat the node now", node=name, err=str(error))
                await self._clock.sleep(LOOK_SECONDS * 4)
            except Exception:  # a fault of an action
                log.exception("Treatment of the node failed", node=name)
                await self._clock.sleep(LOOK_SECONDS * 10)
            finally:
                self._tasks.pop(name, None)
                self._starting.discard(name)
                self._agents.discard(name)
                self._watch.changed.set()

        self._tasks[name] = asyncio.create_task(run(), name=f"remedy {name}")

    async def _carry_out(self, plan: FlowPlan) -> None:
        decision: Decision = plan.decision
        if not self._may_act() or not await self._has_lease(plan):
            return
        match decision:
            case Change():
                await self._write(plan, decision)
                if decision.fence.is_over:
                    await self._leases.drop(plan.node.name)
            case Act():
                await self._act(plan, decision)
            case Release():
                assert plan.fence is not None
                await self._release_pods(plan, plan.fence)
            case _:
                fence, now = plan.fence, self._clock.monotonic()
                is_waiting = fence is not None and bool(fence.flow.left) and not plan.facts.pauses
                if fence is not None and is_waiting and now >= self._tries.get(fence.node, now):
                    await self._release_pods(plan, fence)
                await self._save(plan)

    async def _has_lease(self, plan: FlowPlan) -> bool:
        """Take or keep the node's Lease while its flow acts. Return False if another actor has it: nothing is done then."""
        match plan.decision:
            case Act(method=method):
                return await self._leases.take(plan.node, method.seconds + KILL_SECONDS)
            case Change(fence=fence) if fence.present_status is FlowStatus.RUNNING:
                return await self._leases.take(plan.node)
            case Release():
                return await self._leases.take(plan.node)
            case Stay() if plan.fence is not None and is_busy(plan.fence) and not plan.facts.pauses:
                return await self._leases.take(plan.node)
            case _:
                return True

    async def _release_pods(self, plan: FlowPlan, fence: NodeFence) -> None:
        self._tries[fence.node] = self._clock.monotonic() + BUDGET_SECONDS
        result = await self._release.release(fence)
        if isinstance(plan.decision, Release) or result.left != fence.flow.left:
            await self._write(plan, released(fence, str(result), result.left))

    async def _act(self, plan: FlowPlan, act: Act) -> None:
        fence, method = plan.fence, act.method
        assert fence is not None
        operation = fence.flow.operation
        is_repeat = operation is not None
        if operation is None:
            # A request of a built-in method either arrives at once or has no effect: it names the object's version.
            acts = 0.0 if method.kind == "builtin" else method.seconds
            operation = operation_of(act, uuid.uuid4().hex, acts + KILL_SECONDS)
            self._idle[operation.id] = None
            flow = replace(fence.flow, operation=operation)
            jobs = (job_name(operation.id, method.name),) if method.kind == "job" else ()
            recorded = replace(fence, flow=flow, jobs=(*fence.jobs, *jobs))
            fence = await self._write(plan, Change(recorded, ""))
        elif operation.id not in self._idle:
            log.info(
                "A former controller may still act",
                node=fence.node,
                method=method.name,
                seconds=operation.rest,
            )
            await self._clock.sleep(operation.rest)
            self._idle[operation.id] = None
            return  # the node and its record may have changed meanwhile
        if not is_repeat and act.step is FlowStep.POWER and act.place == 0:
            try:
                is_sick = await self._is_still_sick(plan)
            except KubeletxError:
                await self._withdraw(plan, fence, operation)
                raise
            if not is_sick:
                await self._withdraw(plan, fence, operation)
                return
        outcome = self._idle.pop(operation.id)
        if outcome is None:
            if not self._may_act():
                return
            task = RemedyTask(
                node=plan.node,
                fence=fence,
                step=act.step,
                method=method,
                operation=operation,
                is_repeat=is_repeat,
            )
            outcome = await self._run_method(task)
        self._idle[operation.id] = outcome  # until it is recorded
        await self._write(plan, after(fence, plan.facts, outcome))
        if outcome.result is MethodResult.UNKNOWN:
            self._idle[operation.id] = None
        else:
            self._idle.pop(operation.id)

    async def _withdraw(self, plan: FlowPlan, intent: NodeFence, operation: FenceOperation) -> None:
        """Record that the method has not begun, so that no later try counts as a repeat."""
        assert plan.fence is not None
        await self._write(plan, Change(replace(plan.fence, metadata=intent.metadata), ""))
        self._idle.pop(operation.id)

    async def _is_still_sick(self, plan: FlowPlan) -> bool:
        """Read the node: the requests since the plan may have taken a minute, and a watch may be silent."""
        node = await self._watch.read_node(plan.node.name)
        now, events = self._flow_clock.now(), ProblemEvents(self._watch.events.times)
        is_same = node.metadata.uid == plan.node.metadata.uid
        return is_same and bool(sickness_of(node, self._configured(), now, events, plan.fence))

    async def _run_method(self, task: RemedyTask) -> RemedyOutcome:
        kind = task.method.kind
        action = self._actions.get(kind)
        if action is None:
            problem = f"nothing carries out methods of kind {kind!r}"
            return RemedyOutcome(result=MethodResult.FAILED, message=problem)
        began = self._clock.monotonic()
        try:
            outcome = await action.run(task)
        except Exception as error:  # a fault of an action, such as one of a plugin
            log.exception("A method has raised an error", node=task.node.name, method=task.method.name)
            outcome = RemedyOutcome(result=MethodResult.UNKNOWN, message=f"it raised {error!r}")
        self._ended(task, outcome, self._clock.monotonic() - began)
        log.info(
            "A method has ended",
            node=task.node.name,
            method=task.method.name,
            result=outcome.result.value,
            detail=outcome.message,
        )
        return outcome

    async def _write(self, plan: FlowPlan, change: Change) -> NodeFence:
        if not self._may_act():
            raise Conflict("this controller is not the leader any more")
        if change.fence.is_over and plan.fence is not None and not plan.fence.is_over:
            await self._clean(plan)
        is_new_flow = plan.fence is None or (plan.fence.is_over and not change.fence.is_over)
        stored = await self._records.write(change, is_new_flow=is_new_flow)
        self._watch.fences.put(stored)
        if change.message:
            log.info(
                "A flow has changed",
                node=stored.node,
                step=stored.step,
                status=stored.flow.status,
                detail=change.message,
            )
            self._report(plan, msgspec.structs.replace(change, fence=stored))
        return stored

    async def _clean(self, plan: FlowPlan) -> None:
        """Delete the objects of the flow's methods before its end is recorded. Raises Unavailable and TimedOut."""
        methods = [
            method for course in plan.facts.courses for step in FlowStep for method in course.methods(step)
        ]
        for method in methods:
            action = self._actions.get(method.kind)
            if not isinstance(action, CleaningAction):
                continue
            try:
                await action.clean(plan.node, method)
            except (Unavailable, TimedOut):
                raise
            except KubeletxError as error:
                log.warning(
                    "Cannot delete what a method left",
                    node=plan.node.name,
                    method=method.name,
                    err=str(error),
                )

    def _is_upkeep_due(self, plan: FlowPlan) -> bool:
        """Return True if a waiting flow needs its Lease, its last pods, and a record of its times for the next leader."""
        fence = plan.fence
        if fence is None or fence.is_over or fence.problem or plan.facts.pauses:
            return False
        now = self._clock.monotonic()
        if now - self._saved.setdefault(fence.node, now) < SAVE_SECONDS:
            return False
        self._saved[fence.node] = now
        return True

    async def _save(self, plan: FlowPlan) -> None:
        fence = plan.fence
        if fence is None or fence.flow.terminal:
            return
        facts, dump = plan.facts, plan.facts.dump.seconds if plan.facts.dump.is_running else None
        flow = replace(fence.flow, waited=facts.waited, quiet=facts.quiet, dump=dump)
        await self._write(plan, Change(replace(fence, flow=flow), ""))

    async def _mirror(self, fence: NodeFence) -> None:
        if self._may_act():
            self._watch.fences.put(await self._records.mirror(fence))

    async def _forget(self, name: str) -> None:
        fence = self._watch.fences.items.get(name)
        if fence is None:
            return
        log.info("The node is gone; its flow ends", node=name)
        self._flow_clock.forget(name)
        try:
            await self._records.delete(fence)
        except NotFound:
            pass
        self._watch.fences.items.pop(name, None)


def _is_open(fence: NodeFence) -> bool:
    return not fence.is_over
