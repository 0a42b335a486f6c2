"""Section of docs/states.md about node remedy (kubeletx/remedy)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.remedy.automaton import advance, after, begin
from kubeletx.remedy.decisions import Act, Change, FlowFacts
from kubeletx.remedy.model import (
    FenceMethod,
    FlowStatus,
    FlowStep,
    MethodResult,
    NodeFence,
    NodeView,
    RemedyCourse,
    RemedyOutcome,
)

from .text import Edge, drawing

_METHOD: Final = FenceMethod(name="method", kind="builtin")
_FACTS: Final = FlowFacts(
    node=NodeView(metadata=ObjectMeta(name="n", uid="u")),
    courses=(RemedyCourse(name="fence", isolation=(_METHOD,), power=(_METHOD,)),),
)
_LONG: Final = 1e6
_SICK: Final = replace(_FACTS, reasons=("Ready=Unknown",))
_CAUSES: Final[Mapping[str, FlowFacts]] = {
    "sick": _SICK,
    "sick, and the time is over": replace(_SICK, is_due=True, waited=_LONG),
    "well": _FACTS,
    "well, and the time is over": replace(_FACTS, waited=_LONG, quiet=_LONG),
}


def flow() -> str:
    """Drawing of a flow with one remedy."""
    first = begin("n", _SICK, "", "").fence
    todo, known, edges = [first], set[str](), []
    while todo:
        fence = todo.pop(0)
        name = _name(fence)
        key = f"{name} {min(fence.retries, 3)} {fence.flow.restarts} {fence.flow.method} {fence.flow.before} {fence.flow.terminal}"
        if key in known:
            continue
        known.add(key)
        for cause, later in _changes(fence):
            edges.append(Edge(name, cause, _name(later)))
            todo.append(later)
    return drawing(_name(first), edges, ["Final"])


def _changes(fence: NodeFence) -> Iterator[tuple[str, NodeFence]]:
    decisions = {cause: advance(fence, facts) for cause, facts in _CAUSES.items()}
    for cause, decision in decisions.items():
        if isinstance(decision, Act):
            for result in (MethodResult.DONE, MethodResult.FAILED):
                outcome = RemedyOutcome(result=result)
                yield "a method fails", after(fence, _CAUSES[cause], outcome).fence
            break
    changes = {cause: made.fence for cause, made in decisions.items() if isinstance(made, Change)}
    if len(changes) == len(_CAUSES) and len(set(map(_name, changes.values()))) == 1:
        is_running = fence.present_status is FlowStatus.RUNNING
        yield "its methods are done" if is_running else "at the next look", changes["sick"]
        return
    found: dict[str, str] = {}
    for cause, later in changes.items():
        word = cause.partition(",")[0]
        if found.get(word) != _name(later):  # a longer wait changes nothing more
            found[word] = _name(later)
            yield cause, later


def _name(fence: NodeFence) -> str:
    status = fence.present_status
    if status is FlowStatus.FINAL:
        return "Final"
    if fence.flow.terminal and status is FlowStatus.ERROR and fence.present_step is not FlowStep.RECOVERY:
        return "Terminal"
    return f"{fence.step.partition('-')[0]}{status.value}"
