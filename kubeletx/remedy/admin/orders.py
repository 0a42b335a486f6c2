"""Verbs of ``kubeletx remedy`` that direct the flows: pause, resume and stop of one node's flow, or of all.

A pause is an annotation of the Node, and of all nodes a ConfigMap, so that it also holds for flows that begin later. A stop is
a part of the record. The controller reads all of them before each step.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Conflict, NotFound, SystemClock
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.client.lists import list_pages
from kubeletx.kube.client.resources import CONFIG_MAPS, NODES
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import ConfigMap

from ..decisions import Change
from ..fences import FenceRecords
from ..model import NODE_FENCES, FlowStep, NodeFence, NodeFenceList, NodeView
from ..planner import CONFIRMED
from ..policy import PAUSE
from ..sources import PAUSE_MAP
from .client import open_client

_TRIES: Final = 10
"""Tries to change a record that the controller changes at the same time."""
_REASON: Final = "reason"


def add_orders(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the verbs to the command line; `add` makes the parser of one verb."""
    pause = add("pause", "Do nothing for a node, or for all, until they are resumed.", _pause)
    resume = add(
        "resume",
        "Take back pause and stop of a node, confirm that it is well if it waits for its recovery, and try again what "
        "failed for good. With --all: take back pause --all.",
        _resume,
    )
    stop = add("stop", "Take no step for a node's flow, or all flows, but recovery once it is well.", _stop)
    for parser in (pause, resume, stop):
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("node", nargs="?", metavar="NODE", help="this node")
        which.add_argument("--all", action="store_true", help="all nodes")
    pause.add_argument("--reason", default="", metavar="TEXT", help="a line for other administrators")


async def _pause(options: argparse.Namespace) -> int:
    async with open_client(options) as client:
        if options.node:
            await _mark(client, options.node, options.reason)
            print(f"{options.node} is paused. A method that runs now runs to its end.")
            return 0
        meta = ObjectMeta(name=PAUSE_MAP, namespace=options.namespace)
        made = ConfigMap(metadata=meta, data={_REASON: options.reason})
        path = CONFIG_MAPS.path(options.namespace)
        try:
            await client.create(path, made, ConfigMap)
        except AlreadyExists:
            patch = {"data": {_REASON: options.reason}}
            await client.patch(f"{path}/{PAUSE_MAP}", patch, ConfigMap, kind=Patch.MERGE)
        print("All nodes are paused. Methods that run now run to their end.")
        return 0


async def _resume(options: argparse.Namespace) -> int:
    async with open_client(options) as client:
        if not options.node:
            try:
                await client.delete(CONFIG_MAPS.path(options.namespace, PAUSE_MAP))
                print("The pause of all nodes is taken back.")
            except NotFound:
                print("All nodes were not paused.")
            return 0
        await _mark(client, options.node, None)
        fence = await _change(client, options.node, _resumed, "resumed by an administrator")
        confirmed = fence is not None and CONFIRMED in fence.metadata.annotations
        print(f"{options.node} is resumed{' and confirmed to be well' if confirmed else ''}.")
        return 0


async def _stop(options: argparse.Namespace) -> int:
    async with open_client(options) as client:
        names = [options.node] if options.node else await _with_flow(client)
        for name in names:
            fence = await _change(client, name, _stopped, "stopped by an administrator")
            if fence is None or fence.is_over:
                if options.all:
                    continue
                raise NotFound(f"node {name} has no flow that could be stopped")
            runs = fence.flow.operation
            print(f"{name} is stopped; recovery begins when the node is well.")
            if runs is not None:
                print(f"    {runs.name} runs to its end")
        if not names:
            print("No node has a flow.")
        return 0


async def _mark(client: KubeClient, node: str, reason: str | None) -> None:
    """Pause a node; `reason` None: take the pause back. Raises NotFound."""
    patch = {"metadata": {"annotations": {PAUSE: reason}}}
    await client.patch(NODES.path(name=node), patch, NodeView, kind=Patch.MERGE)


async def _with_flow(client: KubeClient) -> list[str]:
    found: list[str] = []
    try:
        async for page in list_pages(client, NODE_FENCES.path(), NodeFenceList):
            found += [fence.node for fence in page.items if not fence.is_over]
    except NotFound:  # no controller has run yet
        return []
    return sorted(found)


async def _change(
    client: KubeClient, node: str, change: Callable[[NodeFence], NodeFence], message: str
) -> NodeFence | None:
    """Change a node's record and return it; None if it has none."""
    records = FenceRecords(client, SystemClock())
    for left in reversed(range(_TRIES)):
        try:
            fence = await records.read(node)
            changed = change(fence)
            return fence if changed == fence else await records.write(Change(changed, message))
        except NotFound:
            return None
        except Conflict:
            if not left:
                raise
    return None


def _stopped(fence: NodeFence) -> NodeFence:
    return fence if fence.is_over else replace(fence, flow=replace(fence.flow, stopped=True))


def _resumed(fence: NodeFence) -> NodeFence:
    """Return the record without pause and stop. Only a node that waits for its recovery is confirmed: before, it is sick."""
    notes = {name: value for name, value in fence.metadata.annotations.items() if name != PAUSE}
    if fence.present_step is FlowStep.RECOVERY and not fence.is_over:
        notes[CONFIRMED] = fence.flow.node_uid
    retries = 0 if fence.flow.terminal else fence.retries
    flow = replace(fence.flow, stopped=False, terminal=False)
    return replace(fence, metadata=replace(fence.metadata, annotations=notes), retries=retries, flow=flow)
