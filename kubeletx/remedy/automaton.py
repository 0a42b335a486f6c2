"""Automaton of one flow: `advance` says what comes next for a node, `after` records the result of a method. Pure.

    New ─period─► Isolation ─► Done ─still sick for power_wait─► Power-Management ─► Done ─well for quiet_time─► Recovery ─► Final
                                └──────────── well again: no power action ────────────────────────┘
    a step fails ─► Error ─retries─► the step again ─► the next remedy ─► the whole flow again, `restarts` times ─► terminal

Readings of what the proposal leaves open are in docs/decisions/0020.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from .decisions import Act, Change, Decision, FlowFacts, Release, Stay
from .model import (
    FenceFlow,
    FenceMethod,
    FenceOperation,
    FenceProof,
    FlowStatus,
    FlowStep,
    MethodResult,
    NodeFence,
    NodeView,
    RemedyCourse,
    RemedyOutcome,
)
from .safety.kdump import DUMP_PAUSE

CLEAN_PODS: Final = "clean-pods"
RESTORE: Final = FenceMethod(name="restore", kind="builtin")
"""Last method of every recovery: removes the cordon and the taints that the flow has set."""
STOPPED: Final = "stopped by an administrator; recovery begins when the node is well"


def begin(
    name: str, facts: FlowFacts, configuration: str, threshold: str, before: NodeFence | None = None
) -> Change:
    """Return the record of a new flow. `before`: the node's record of an earlier flow, which keeps its counters.

    `configuration`, `threshold`: names of the configuration and of the threshold whose courses the flow follows.
    """
    node = facts.node
    flow = FenceFlow(
        node_uid=node.metadata.uid,
        configuration=configuration,
        threshold=threshold,
        status=FlowStatus.NEW.value,
        reasons=facts.reasons,
        boot_id=node.status.node_info.boot_id,
        remedy_name=facts.courses[0].name if facts.courses else "",
    )
    fence = before or NodeFence(node=name)
    fence = replace(fence, step=FlowStep.ISOLATION.value, retries=0, jobs=(), flow=flow)
    return Change(fence, f"the node is sick: {', '.join(facts.reasons)}", is_warning=True)


def begin_recovery(node: NodeView, before: NodeFence | None) -> Change:
    """Return the record of a flow that only removes what a flow without a record has set on the node."""
    flow = FenceFlow(node_uid=node.metadata.uid, boot_id=node.status.node_info.boot_id)
    fence = before or NodeFence(node=node.name)
    fence = replace(fence, step=FlowStep.RECOVERY.value, retries=0, jobs=(), flow=flow)
    return Change(fence, "the record of the flow that treated the node is gone", is_warning=True)


def advance(fence: NodeFence, facts: FlowFacts) -> Decision:
    """Return what comes next for a node that has a record."""
    if fence.problem:
        return Stay((fence.problem,))
    if fence.flow.node_uid != facts.node.metadata.uid:
        return _renewed(fence, facts)
    if facts.pauses and not fence.is_over:
        return Stay((*facts.pauses, *_left_off(fence, facts)), _next(fence, facts))
    if (decision := _dumping(fence, facts)) is not None:
        return decision
    match fence.present_status:
        case FlowStatus.FINAL:
            return Stay()  # a sick node gets a new flow from the planner
        case FlowStatus.NEW:
            return _new(fence, facts)
        case FlowStatus.RUNNING:
            return _running(fence, facts)
        case FlowStatus.DONE:
            return _done(fence, facts)
        case FlowStatus.ERROR:
            return _error(fence, facts)


def _dumping(fence: NodeFence, facts: FlowFacts) -> Decision | None:
    """Return what a kernel dump brings about by itself: the proof that no pod runs on the node, and the release of its pods."""
    course, step = course_of(fence, facts), fence.present_step
    has_begun = step is FlowStep.POWER or (
        step is FlowStep.ISOLATION and fence.present_status is not FlowStatus.NEW
    )
    if course is None or not (course.kdump and facts.dump.is_running and has_begun and facts.reasons):
        return None
    if FenceProof.POWER.value not in fence.flow.proofs:
        message = "the node writes a kernel dump, so it runs no pod"
        proofs = (*fence.flow.proofs, FenceProof.POWER.value)
        boot_id = facts.node.status.node_info.boot_id
        flow = replace(fence.flow, proofs=proofs, fenced_boot=boot_id, message=message)
        return Change(replace(fence, flow=flow), message)
    releasable = _releasable(fence, course)
    return Release(releasable) if releasable else None


def after(fence: NodeFence, facts: FlowFacts, outcome: RemedyOutcome) -> Change:
    """Return the record after the present method has ended with `outcome`."""
    flow = fence.flow
    operation = flow.operation
    name = operation.name if operation is not None else ""
    message = f"{name}: {outcome.message}" if outcome.message else f"{name} {outcome.result.value}"
    flow = _with_proofs(fence, facts, outcome)
    if outcome.result is MethodResult.DONE:
        place = (operation.method if operation is not None else flow.method) + 1
        flow = replace(flow, operation=None, method=place, message=message)
        return Change(replace(fence, flow=flow), message)
    kept = operation if outcome.result is MethodResult.UNKNOWN else None
    return _failed(replace(fence, flow=replace(flow, operation=kept)), facts, message)


def _with_proofs(fence: NodeFence, facts: FlowFacts, outcome: RemedyOutcome) -> FenceFlow:
    """Return the flow with what the present method has proven."""
    flow, methods = fence.flow, methods_of(fence, facts)
    place = flow.operation.method if flow.operation is not None else flow.method
    method = methods[place] if place < len(methods) else None
    found = set(outcome.proofs) - {FenceProof.NONE}
    # A machine with two power supplies is off only after the last of them is switched off.
    rest = takewhile(lambda method: method.name != CLEAN_PODS, methods[place + 1 :])
    proven = sorted(proof.value for proof in found - {method.proof for method in rest})
    flow = replace(flow, proofs=tuple(dict.fromkeys((*flow.proofs, *proven))))
    if FenceProof.STORAGE in found:
        scopes = outcome.storage or (method.storage if method is not None else ()) or ("*",)
        flow = replace(flow, fenced=tuple(dict.fromkeys((*flow.fenced, *scopes))))
    if FenceProof.POWER.value in proven:
        flow = replace(flow, fenced_boot=facts.node.status.node_info.boot_id)
    if method is not None and method.name == CLEAN_PODS and outcome.result is MethodResult.DONE:
        flow = replace(flow, released=True)
    return flow


def released(fence: NodeFence, message: str, left: int = 0) -> Change:
    """Return the record after the node's pods were released. `left`: pods that wait for their disruption budgets."""
    flow = fence.flow
    flow = replace(flow, released=True, released_for=_reach(flow), left=left, message=message)
    return Change(replace(fence, flow=flow), message)


def course_of(fence: NodeFence, facts: FlowFacts) -> RemedyCourse | None:
    """Return the present course; None if the configuration no longer has it."""
    index = fence.flow.remedy
    return facts.courses[index] if index < len(facts.courses) else None


def methods_of(fence: NodeFence, facts: FlowFacts) -> tuple[FenceMethod, ...]:
    """Return the methods of the present step, in order."""
    course = course_of(fence, facts)
    methods = course.methods(fence.present_step) if course is not None else ()
    return (*methods, RESTORE) if fence.present_step is FlowStep.RECOVERY else methods


# --- one function per status ---


def _new(fence: NodeFence, facts: FlowFacts) -> Decision:
    step, settings = fence.present_step, facts.settings
    if step is FlowStep.RECOVERY:
        return _before_recovery(fence, facts)
    if not facts.reasons:
        if step is FlowStep.ISOLATION and fence.flow.remedy == 0 and fence.flow.restarts == 0:
            return _moved(fence, FlowStatus.FINAL, "the node is well again before anything was done")
        return _to_recovery(fence, "the node is well again")
    if fence.flow.stopped:
        return Stay((STOPPED,))
    if step is FlowStep.ISOLATION and fence.flow.remedy == 0 and not facts.is_due and not fence.flow.restarts:
        return Stay(("the period of the threshold is not over",), _next(fence, facts))
    if fence.flow.restarts and facts.waited < settings.retry_wait and step is FlowStep.ISOLATION:
        return Stay(
            (_left("the flow begins again", settings.retry_wait - facts.waited),), _next(fence, facts)
        )
    if holds := _holds(fence, facts):
        return Stay(holds, _next(fence, facts))
    course = course_of(fence, facts)
    if course is None or course.problem:
        return _failed(
            fence, facts, course.problem if course is not None else "no remedy is configured for the node"
        )
    return _moved(fence, FlowStatus.RUNNING, f"{step.value} begins ({course.name})")


def _running(fence: NodeFence, facts: FlowFacts) -> Decision:
    methods, flow = methods_of(fence, facts), fence.flow
    place = flow.operation.method if flow.operation is not None else flow.method
    is_recovery = fence.present_step is FlowStep.RECOVERY
    if flow.operation is None and not is_recovery and (proofs := _releasable(fence, course_of(fence, facts))):
        return Release(proofs)
    if flow.stopped and flow.operation is None and not is_recovery:
        place = _left_on(fence, methods)
        if place == len(methods):
            words = "; ".join((STOPPED, *_left_off(fence, facts)))
            return _moved(fence, FlowStatus.DONE, words, is_warning=words != STOPPED)
    if place >= len(methods):
        return _moved(fence, FlowStatus.DONE, f"{fence.step} is done")
    if fence.present_step is FlowStep.POWER and place == 0 and not facts.reasons:
        return _to_recovery(fence, "the node is well again before any power action")
    return Act(methods[place], place, fence.present_step)


def _done(fence: NodeFence, facts: FlowFacts) -> Decision:
    step, flow, settings = fence.present_step, fence.flow, facts.settings
    course = course_of(fence, facts)
    if step is FlowStep.RECOVERY:
        return _moved(fence, FlowStatus.FINAL, "the node is back")
    if proofs := _releasable(fence, course):
        return Release(proofs)
    if not facts.reasons:
        return _to_recovery(fence, "the node is well again")
    if flow.stopped:
        return Stay((STOPPED, *_left_off(fence, facts)))
    if step is FlowStep.ISOLATION and course is not None and course.power:
        if facts.waited < settings.power_wait:
            left = settings.power_wait - facts.waited
            return Stay((_left("power management", left),), _next(fence, facts))
        if facts.holds:
            return Stay(facts.holds, _next(fence, facts))
        return _moved(
            fence, FlowStatus.NEW, "the node is still sick after its isolation", step=FlowStep.POWER
        )
    limit = (course.period if course is not None else 0.0) or settings.settle_time
    if facts.waited < limit:
        return Stay((_left("the node may take time to come back; the next remedy", limit - facts.waited),))
    return _next_remedy(fence, facts, f"the node is still sick {limit:g} s after {fence.step}")


def _error(fence: NodeFence, facts: FlowFacts) -> Decision:
    flow, settings = fence.flow, facts.settings
    if not facts.reasons and fence.present_step is not FlowStep.RECOVERY:  # also after an unknown result
        return _to_recovery(fence, "the node is well again")
    if flow.stopped and fence.present_step is not FlowStep.RECOVERY:
        is_repeated = flow.operation is None and fence.retries < settings.retries
        if not (is_repeated and _left_on(fence, methods_of(fence, facts)) == flow.method):
            words = "; ".join((STOPPED, *_left_off(fence, facts)))
            if words in (STOPPED, flow.message):
                return Stay((words,))
            return Change(replace(fence, flow=replace(flow, message=words)), words, is_warning=True)
    is_recovery = fence.present_step is FlowStep.RECOVERY
    if is_recovery and facts.reasons and flow.operation is None:
        return _before_recovery(fence, facts)
    if flow.terminal and not is_recovery:
        words = f"failed for good ({flow.message}); repair the node, or try again"
        return Stay((f"{words} (kubeletx remedy resume {fence.node})",))
    # A node that is well is always released in the end, so its recovery is tried without limit.
    wait = max(settings.retry_wait, settings.settle_time) if flow.terminal else settings.retry_wait
    if facts.waited < wait:
        left = wait - facts.waited
        return Stay((_left(f"{fence.step} is tried again", left), flow.message), _next(fence, facts))
    if fence.present_step is not FlowStep.RECOVERY and (holds := _holds(fence, facts)):
        return Stay(holds, _next(fence, facts))
    again = replace(fence, retries=fence.retries + 1)
    return _moved(
        again, FlowStatus.RUNNING, f"{fence.step} is tried again ({again.retries} of {settings.retries})"
    )


# --- changes ---


def _renewed(fence: NodeFence, facts: FlowFacts) -> Change:
    flow = FenceFlow(node_uid=facts.node.metadata.uid, status=FlowStatus.FINAL.value)
    renewed = replace(fence, step=FlowStep.RECOVERY.value, retries=0, jobs=(), flow=flow)
    return Change(renewed, "another node with this name has joined; the flow of the former one has ended")


def _moved(
    fence: NodeFence,
    status: FlowStatus,
    message: str,
    *,
    step: FlowStep | None = None,
    is_warning: bool = False,
) -> Change:
    """Return the record in another status, and perhaps step, with new times."""
    flow = replace(fence.flow, status=status.value, waited=0.0, since=None)
    if step is not None and step is not fence.present_step:
        flow = replace(flow, method=0, operation=None)
        fence = replace(fence, step=step.value, retries=0)
    return Change(replace(fence, flow=flow), message, is_warning)


def _to_recovery(fence: NodeFence, message: str) -> Change:
    is_done, before = fence.present_status is FlowStatus.DONE, fence.step
    if not is_done:  # only what was done counts if the node falls sick again
        before = FlowStep.ISOLATION.value if fence.present_step is FlowStep.POWER else ""
    flow = replace(fence.flow, before=before, quiet=0.0)
    return _moved(replace(fence, flow=flow), FlowStatus.NEW, message, step=FlowStep.RECOVERY)


def _before_recovery(fence: NodeFence, facts: FlowFacts) -> Decision:
    flow, settings, node = fence.flow, facts.settings, facts.node
    if facts.reasons:  # such as Unknown, then False, during a reboot: no second remedy
        step = FlowStep(flow.before or FlowStep.ISOLATION.value)
        status = FlowStatus.DONE if flow.before else FlowStatus.ERROR
        # `since` stays, because events count from it.
        change = _moved(fence, status, "the node is sick again before its recovery", step=step)
        return Change(
            replace(change.fence, flow=replace(change.fence.flow, released=flow.released, since=flow.since)),
            change.message,
        )
    if not node.is_ready:  # such as a threshold of DiskPressure, which a node that is off does not report
        return Stay(("the node is not Ready",), "Recovery")
    if facts.quiet < settings.quiet_time:
        return Stay(
            (_left("the node stays well until its recovery", settings.quiet_time - facts.quiet),), "Recovery"
        )
    if settings.manual_confirmation and not facts.is_confirmed:
        return Stay(
            ("a person has to confirm that the node is well (kubeletx remedy resume NODE)",), "Recovery"
        )
    boot_id = node.status.node_info.boot_id
    has_restarted = bool(boot_id and flow.boot_id) and boot_id != flow.boot_id
    is_proven = FenceProof.POWER.value in flow.proofs or has_restarted
    if flow.released and not is_proven and not facts.is_confirmed:
        return Stay(
            ("the node has not restarted since its pods were released, so it may still run them",), "Recovery"
        )
    return _moved(fence, FlowStatus.RUNNING, "recovery begins")


def _failed(fence: NodeFence, facts: FlowFacts, message: str) -> Change:
    fence = replace(fence, flow=replace(fence.flow, message=message))
    if fence.retries < facts.settings.retries or fence.flow.stopped:
        return _moved(fence, FlowStatus.ERROR, f"{fence.step} failed: {message}", is_warning=True)
    return _next_remedy(fence, facts, message)


def _next_remedy(fence: NodeFence, facts: FlowFacts, message: str) -> Change:
    """Return the record at the beginning of the next remedy, or of the restarted flow, or at its end."""
    flow = fence.flow
    if fence.present_step is not FlowStep.RECOVERY and flow.remedy + 1 < len(facts.courses):
        name = facts.courses[flow.remedy + 1].name
        # The node may have booted since it was switched off; storage stays fenced until the recovery.
        proofs = tuple(proof for proof in flow.proofs if proof != FenceProof.POWER.value)
        flow = replace(flow, remedy=flow.remedy + 1, remedy_name=name, method=0, operation=None)
        flow = replace(flow, proofs=proofs, fenced_boot="")
        flow = replace(flow, released_for=tuple(one for one in flow.released_for if one in _reach(flow)))
        fence = replace(fence, step=FlowStep.ISOLATION.value, retries=0, flow=flow)
        return _moved(fence, FlowStatus.NEW, f"{message}; the next remedy is {name}", is_warning=True)
    if fence.present_step is not FlowStep.RECOVERY and flow.restarts < facts.settings.restarts:
        first = facts.courses[0].name if facts.courses else ""
        flow = replace(
            flow,
            remedy=0,
            remedy_name=first,
            method=0,
            operation=None,
            proofs=(),
            fenced=(),
            fenced_boot="",
            released_for=(),
            left=0,
            restarts=flow.restarts + 1,
        )
        fence = replace(fence, step=FlowStep.ISOLATION.value, retries=0, flow=flow)
        return _moved(fence, FlowStatus.NEW, f"{message}; the flow begins again", is_warning=True)
    fence = replace(fence, flow=replace(flow, terminal=True, message=message))
    return _moved(
        fence, FlowStatus.ERROR, f"{message}; nothing is left to try: repair the node", is_warning=True
    )


def _left_on(fence: NodeFence, methods: tuple[FenceMethod, ...]) -> int:
    """Return the place of the next method that switches on what this step has switched off; `len(methods)`: there is none.

    A stopped flow still carries it out, so that no stop leaves a machine off.
    """
    done = methods[: fence.flow.method]
    if fence.present_step is not FlowStep.POWER or not any(map(_switches_off, done)):
        return len(methods)
    left = range(fence.flow.method, len(methods))
    return next((place for place in left if _switches_on(methods[place])), len(methods))


def _left_off(fence: NodeFence, facts: FlowFacts) -> tuple[str, ...]:
    """Return a warning if power management has left the machine off, or may have."""
    flow, methods = fence.flow, methods_of(fence, facts)
    if fence.present_step is not FlowStep.POWER:
        return ()
    operation = flow.operation
    if operation is not None and operation.method < len(methods) and _switches_off(methods[operation.method]):
        return (f"the machine may be off: the result of {operation.name} is unknown",)
    last = next(
        (method for method in methods[: flow.method][::-1] if _switches_off(method) or _switches_on(method)),
        None,
    )
    return ("the machine is off",) if last is not None and _switches_off(last) else ()


def _switches_off(method: FenceMethod) -> bool:
    is_agent = method.kind == "agent"
    return method.parameters.get("action") == "off" if is_agent else method.proof is FenceProof.POWER


def _switches_on(method: FenceMethod) -> bool:
    """Return True if the method may switch the machine on: an agent that does, or a remedy of the administrator in the same step."""
    is_other = method.kind not in ("agent", "builtin") and method.proof is FenceProof.NONE
    return is_other or method.parameters.get("action") == "on"


def _releasable(fence: NodeFence, course: RemedyCourse | None) -> tuple[FenceProof, ...]:
    flow = fence.flow
    if course is None or not course.cleans or set(_reach(flow)) <= set(flow.released_for):
        return ()
    return tuple(FenceProof(text) for text in flow.proofs)


def _reach(flow: FenceFlow) -> tuple[str, ...]:
    """Return the proofs, and the scopes of storage, that pods can be released for."""
    return (*flow.proofs, *flow.fenced)


def _holds(fence: NodeFence, facts: FlowFacts) -> tuple[str, ...]:
    """Return why the present step may not begin: the policy, and for power management a kernel dump, which it would cut off."""
    course = course_of(fence, facts)
    if fence.present_step is not FlowStep.POWER or course is None or not course.kdump:
        return facts.holds
    dump, settings = facts.dump, facts.settings
    limit = settings.kdump_limit if dump.is_running else min(DUMP_PAUSE, settings.kdump_limit)
    if dump.seconds >= limit:
        return facts.holds
    what = "writes a kernel dump" if dump.is_running else "may write a kernel dump"
    return (*facts.holds, f"the node {what}: {_left('power management', limit - dump.seconds)} at the latest")


def _next(fence: NodeFence, facts: FlowFacts) -> str:
    """Return what comes after the present wait, for people."""
    step = fence.present_step
    if fence.present_status is FlowStatus.DONE and step is FlowStep.ISOLATION:
        step = FlowStep.POWER
    course = course_of(fence, facts)
    names = [method.name for method in course.methods(step)] if course is not None else []
    return f"{step.value}: {' '.join(names)}" if names else step.value


def _left(what: str, seconds: float) -> str:
    return f"{what} in {seconds:.0f} s"


def operation_of(act: Act, identity: str, rest: float) -> FenceOperation:
    """Return the intent of a method. `identity`: unique; `rest`: seconds for which the method may act."""
    return FenceOperation(id=identity, method=act.place, name=act.method.name, rest=rest)
