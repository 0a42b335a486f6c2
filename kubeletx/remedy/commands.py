"""Verbs of ``kubeletx remedy`` that read and direct the flows."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kubeletx.api import Clock, InvalidConfig, NotFound, SystemClock, first_of
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import NODES

from .automaton import Act, Change, Release, Stay
from .model import NODE_FENCES, NodeFence, NodeFenceList, NodeViewList
from .planner import ClusterView, FlowPlan, FlowTimes, has_recovered, plan_all, sickness_of
from .policy import PolicyView
from .sources import ConfigSources

READ_SECONDS = 30.0


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verbs to the command line."""
    text = "Show what would be done now for each node, and what holds it back."
    plan = verbs.add_parser("plan", parents=[common], help=text, description=text)
    plan.add_argument("-o", "--output", choices=("text", "json"), default="text")
    plan.add_argument("node", nargs="?", default="", help="only this node")
    plan.set_defaults(command=show_plan)


def client_of(options: argparse.Namespace, clock: Clock) -> KubeClient:
    """Return the client of the cluster that the options name."""
    path = options.kubeconfig or (Path(os.environ["KUBECONFIG"]) if os.environ.get("KUBECONFIG") else None)
    if path is None:
        raise InvalidConfig(
            field="--kubeconfig", problem="no API server is named", fix="write --kubeconfig FILE"
        )
    return KubeClient(load_kubeconfig(path), clock=clock, user_agent="kubeletx-remedy")


async def show_plan(options: argparse.Namespace) -> int:
    """Print the plan for all nodes, or one."""
    import msgspec

    rows = [row(plan) for plan in await _plans(options) if options.node in ("", plan.node.name)]
    if options.output == "json":
        print(msgspec.json.encode(rows).decode())
        return 0
    for line in rows:
        state = f"{line['step']} {line['status']} ({line['flow']})" if line["step"] else "no flow yet"
        print(f"{line['node']}: {state}; next: {line['next'] or 'nothing'}")
        for reason in line["blockedBy"]:
            print(f"    {reason}")
    if not rows:
        print("all nodes are well")
    return 0


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
    finally:
        await client.close()
    now, configured = clock.now(), sources.configurations
    view = ClusterView(
        now=now,
        nodes=nodes,
        fences=fences,
        times={name: _times(fence, now.timestamp()) for name, fence in fences.items()},
    )
    sick = {name for name, node in nodes.items() if sickness_of(node, configured, now, view.events)}
    recent = {name for name, node in nodes.items() if has_recovered(node, configured, now)}
    policy = PolicyView(sick=frozenset(sick), recent=frozenset(recent))
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
