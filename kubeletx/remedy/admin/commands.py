"""Verbs of ``kubeletx remedy`` that read and direct the flows."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from kubeletx.api import NotFound, PermissionDenied, SystemClock, first_of
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import EVENTS, NODES
from kubeletx.kube.types.event import EventList

from ..decisions import Act, Change, Release, Stay
from ..fences import FenceRecords
from ..model import NODE_FENCES, KernelDump, NodeFence, NodeFenceList, NodeViewList
from ..planner import ClusterView, FlowPlan, FlowTimes, ProblemEvents, has_recovered, plan_all, sickness_of
from ..policy import PolicyView
from ..safety.leases import NodeLeases
from ..safety.node_events import NodeEvents
from ..safety.surroundings import Surroundings
from ..sources import ConfigSources
from .client import client_of, open_client
from .orders import add_orders

READ_SECONDS = 30.0


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verbs to the command line."""

    def add(verb: str, text: str, command: Callable[..., Any]) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(
            verb, parents=[common], help=text, description=text
        )
        parser.set_defaults(command=command)
        return parser

    plan = add("plan", "Show what would be done now for each node, and what holds it back.", show_plan)
    history = add("history", "Show a node's problems, and what was done about them.", show_history)
    for parser, which in ((plan, "?"), (history, None)):
        parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
        parser.add_argument("node", nargs=which, metavar="NODE", default="", help="only this node")
    add_orders(add)


async def show_plan(options: argparse.Namespace) -> int:
    """Print the plan for all nodes, or one."""
    rows = [row(plan) for plan in await _plans(options) if options.node in ("", plan.node.name)]
    if options.output == "json":
        print(msgspec.json.encode(rows).decode())
        return 0
    for line in plan_lines(rows):
        print(line)
    return 0


def plan_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of plans."""
    if not rows:
        yield "all nodes are well"
        return
    width = max(len("NODE"), *(len(row["node"]) for row in rows))
    yield f"{'NODE':<{width}}  {'STATE':<23}  NEXT"
    for row in rows:
        state = f"{row['step']} {row['status']}" if row["step"] else "no flow yet"
        following = row["next"] or ("nothing" if not row["blockedBy"] else "wait")
        yield f"{row['node']:<{width}}  {state:<23}  {following}"
        for reason in row["blockedBy"]:
            yield from textwrap.wrap(reason, columns(), initial_indent="  - ", subsequent_indent="    ")


async def show_history(options: argparse.Namespace) -> int:
    """Print a node's problems and the changes of its flows."""
    async with open_client(options) as client:
        try:
            fence = await FenceRecords(client, SystemClock()).read(options.node)
        except NotFound as error:
            raise NotFound(f"node {options.node} has no record: it has had no flow") from error
    if options.output == "json":
        print(msgspec.json.encode(history_of(fence)).decode())
        return 0
    for line in history_lines(fence):
        print(line)
    return 0


def history_of(fence: NodeFence) -> dict[str, Any]:
    """Return a node's history for programs."""
    return {
        "node": fence.node,
        "step": fence.step,
        "status": fence.flow.status,
        "problems": fence.problems,
        "starts": fence.starts,
        "history": fence.history,
    }


def history_lines(fence: NodeFence) -> Iterator[str]:
    """Yield a node's history for people."""
    flow = fence.flow
    rows = {
        "Node": fence.node,
        "State": f"{fence.step} {flow.status}{' (stopped)' if flow.stopped else ''}",
        "Reasons": ", ".join(flow.reasons) if not fence.is_over else "",
        "Remedy": flow.remedy_name if not fence.is_over else "",
        "Last result": flow.message,
        "Problems": ", ".join(f"{reason} x{count}" for reason, count in sorted(fence.problems.items())),
        "Flows": f"{len(fence.starts)}, the last at {_moment(fence.starts[-1])}" if fence.starts else "",
    }
    for name, value in rows.items():
        if value:
            yield from textwrap.wrap(
                value, columns(), initial_indent=f"{name + ':':<14}", subsequent_indent=" " * 14
            )
    if fence.history:
        yield ""
        yield f"{'TIME':<22}{'STATE':<25}MESSAGE"
    for line in fence.history:
        start = f"{_moment(line.time):<22}{f'{line.step} {line.status}':<25}"
        indent = " " * 4 if columns() <= 80 else " " * len(start)
        yield from textwrap.wrap(
            line.message or "-", columns(), initial_indent=start, subsequent_indent=indent
        )


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def columns() -> int:
    """Return the width of the terminal; 80 if there is none."""
    return max(60, shutil.get_terminal_size().columns)


async def _plans(options: argparse.Namespace) -> list[FlowPlan]:
    clock = SystemClock()
    client = client_of(options, clock)
    sources = ConfigSources(options.config, client=client, namespace=options.namespace, clock=clock)
    sources.read_files()
    try:
        await first_of("plan", sources.ready.wait(), sources.run(), clock.sleep(READ_SECONDS))
        nodes = {
            node.name: node
            async for page in list_pages(client, NODES.path(), NodeViewList)
            for node in page.items
        }
        fences: dict[str, NodeFence] = {}
        with contextlib.suppress(NotFound):  # no controller has run yet
            async for records in list_pages(client, NODE_FENCES.path(), NodeFenceList):
                fences |= {fence.node: fence for fence in records.items}
        events = NodeEvents(lambda _: None)
        async for happened in list_pages(
            client, EVENTS.path(), EventList, field_selector="involvedObject.kind=Node"
        ):
            for event in happened.items:
                events.put(event)
        now, configured = clock.now(), sources.configurations
        view = ClusterView(
            now=now,
            nodes=nodes,
            fences=fences,
            times={name: _times(fence, now.timestamp()) for name, fence in fences.items()},
            events=ProblemEvents(events.times),
            dumps={
                name: KernelDump(is_running=True, seconds=fence.flow.dump)
                for name, fence in fences.items()
                if fence.flow.dump is not None  # this process hears no messages of fence_kdump itself
            },
        )
        sick = {
            name
            for name, node in nodes.items()
            if sickness_of(node, configured, now, view.events, fences.get(name))
        }
        around = Surroundings(client, clock, lambda: configured.settings)
        await around.refresh(nodes.keys() - sick, None)
        leases = NodeLeases(client, clock, lambda: configured.settings.lease_namespace or options.namespace)
        actors: dict[str, str] = {}
        with contextlib.suppress(PermissionDenied):  # a user may see less than the controller
            actors = await leases.read_others()
        policy = PolicyView(
            sick=frozenset(sick),
            recent=frozenset(name for name, node in nodes.items() if has_recovered(node, configured, now)),
            actors=actors,
            doubts=around.doubts,
            planned=around.planned,
        )
    finally:
        await client.close()
    return list(plan_all(replace(view, policy=policy), configured))


def row(plan: FlowPlan) -> dict[str, Any]:
    """Return a node's plan for people and programs."""
    fence, decision = plan.fence, plan.decision
    blocked: tuple[str, ...] = ()
    match decision:
        case Stay():
            following, blocked = decision.next, decision.reasons
        case Change():
            following = decision.message
        case Act():
            following = f"{decision.step.value}: {decision.method.name}"
        case Release():
            following = "release the pods"
    return {
        "node": plan.node.name,
        "flow": fence.flow.remedy_name if fence is not None else "",
        "step": fence.step if fence is not None else "",
        "status": fence.flow.status if fence is not None else "",
        "next": following,
        "blockedBy": list(blocked),
    }


def _times(fence: NodeFence, now: float) -> FlowTimes:
    since = fence.flow.since
    waited = now - since.timestamp() if since is not None else 0.0
    return FlowTimes(waited=max(fence.flow.waited, waited), quiet=fence.flow.quiet)
