"""The link to a FornaxCore without runtimes: changes of one node, and a fleet of nodes in one process.

The core is `kubeletx fornaxcore-sim`, a process of its own. The floor is a bare gRPC client in the same process as the
node's link was: it makes the same calls with the same bytes, one after the other's answer, since a core handles calls in
parallel and only so their order is kept. Both take turns.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path

import grpc.aio

from kubeletx.fornax import wire
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as k8s
from kubeletx_testing.lab.fornaxcore import PrivateCores

from .fornax_fleet import REVISION, SUFFIX, FleetNode, all_ready, fleet, poll, wait_until
from .model import Result, Sizes, figure, now

MOST_WAITING = 200
"""Changes that wait at most; a longer queue of the link is replaced by a full state."""
RATIO = 0.7


def link_changes(sizes: Sizes) -> Result:
    """Measure changes of pods through the link of one node, and through a bare client."""
    with (
        tempfile.TemporaryDirectory() as directory,
        PrivateCores(Path(directory), flags=["--no-line"]) as cores,
    ):
        ours, floors = asyncio.run(_changes(cores, sizes))
        broken = cores.violations()
    if broken:
        raise RuntimeError(f"the core got a wrong order: {broken[:5]}")
    return Result(
        name="link-changes",
        figures=(figure("changes through the link alone", "/s", ours, floors, share=RATIO, digits=0),),
        notes=("floor: a bare gRPC client that makes the same calls", "the core saw no gap and lost nothing"),
        measured_at=now(),
    )


def fornax_fleet(sizes: Sizes) -> Result:
    """Measure how many nodes and changes one core and the real link carry."""
    with (
        tempfile.TemporaryDirectory() as directory,
        PrivateCores(Path(directory), flags=["--no-line"]) as cores,
    ):
        ready_seconds, rate = asyncio.run(_fleet(cores, sizes))
        broken = cores.violations()
    if broken:
        raise RuntimeError(f"the core got a wrong order: {broken[:5]}")
    return Result(
        name="fornax-fleet",
        figures=(
            figure(f"{sizes.fleet_nodes} nodes register with one core", "s", ready_seconds, digits=2),
            figure(f"changes of {sizes.fleet_nodes} nodes, in all", "/s", rate, digits=0),
        ),
        measured_at=now(),
    )


async def _changes(cores: PrivateCores, sizes: Sizes) -> tuple[list[float], list[float]]:
    ours, floors = [], []
    async with fleet(cores.addresses[0], 1) as (node,):
        await wait_until(lambda: all_ready([node]), 60, "ready node")
        for run in range(sizes.runs):
            ours.append(await _through_link(node, run, sizes.link_changes))
            if _reports(cores) != (run + 1) * sizes.link_changes:
                raise RuntimeError(f"{_reports(cores)} of {(run + 1) * sizes.link_changes} changes arrived")
            floors.append(await _through_bare_client(cores.addresses[0], run, sizes.link_changes))
    return ours, floors


def _reports(cores: PrivateCores) -> int:
    """Reports of the node's own pods; those of the floor have another node."""
    found = cores.call("GET", "/log?last=0")
    return sum(one["nodes"].get("fornax.centaurusinfra.io/node-0 POD_STATE", 0) for one in found.values())


async def _through_link(node: FleetNode, run: int, count: int) -> float:
    """Return changes per second, until the core has acknowledged the last one."""
    pods = [_pod(node.identifier, f"run-{run}-{number}") for number in range(count)]
    before = node.actor.revisions.current
    began = time.perf_counter()
    for number, pod in enumerate(pods):
        node.content.change(f"bench/{pod.metadata.name}", pod)
        if number % 20 == 0:
            await asyncio.sleep(0)
            await poll(partial(_has_room, node, before + number))
    await wait_until(
        lambda: node.actor.revisions.current - before == count and not node.waiting,
        120,
        "acknowledged changes",
    )
    return count / (time.perf_counter() - began)


async def _through_bare_client(address: str, run: int, count: int) -> float:
    node = f"bench/floor-{run}"
    messages = []
    for number in range(count):
        revision = number + 2
        state = pb.PodState(
            nodeRevision=revision, state=pb.PodState.Running, pod=_pod(node, f"floor-{run}-{number}")
        )
        state.pod.metadata.annotations[REVISION] = str(revision)
        identity = pb.NodeIdentifier(identifier=node)
        message = pb.FornaxCoreMessage(nodeIdentifier=identity, messageType=pb.POD_STATE, podState=state)
        messages.append(message.SerializeToString())
    first = pb.FornaxCoreMessage(
        nodeIdentifier=pb.NodeIdentifier(identifier=node), messageType=pb.NODE_REGISTER
    )
    first.nodeRegistry.nodeRevision = 1
    first.nodeRegistry.node.metadata.namespace, _, first.nodeRegistry.node.metadata.name = node.partition("/")
    async with grpc.aio.insecure_channel(address, options=wire.CHANNEL_OPTIONS) as channel:
        put = channel.unary_unary(wire.PUT_MESSAGE, None, None)
        await put(first.SerializeToString())
        began = time.perf_counter()
        for data in messages:
            await put(data)
        return count / (time.perf_counter() - began)


async def _fleet(cores: PrivateCores, sizes: Sizes) -> tuple[float, float]:
    began = time.perf_counter()
    async with fleet(cores.addresses[0], sizes.fleet_nodes) as nodes:
        await wait_until(lambda: all_ready(nodes), 600, "ready nodes")
        ready_seconds = time.perf_counter() - began
        began = time.perf_counter()
        for node in nodes:
            for number in range(sizes.fleet_pods):
                pod = _pod(node.identifier, f"{node.identifier.rpartition('/')[2]}-{number}")
                node.content.change(f"bench/{pod.metadata.name}", pod)
        count = sizes.fleet_nodes * sizes.fleet_pods
        await asyncio.sleep(0)
        await wait_until(lambda: all(_has_reported(node, sizes.fleet_pods) for node in nodes), 600, "reports")
        return ready_seconds, count / (time.perf_counter() - began)


def _has_room(node: FleetNode, last: int) -> bool:
    """Return True if few of the changes up to revision `last` still wait."""
    return last - (node.actor.revisions.current - node.waiting) <= MOST_WAITING


def _has_reported(node: FleetNode, pods: int) -> bool:
    return node.actor.revisions.current >= pods and not node.waiting


def _pod(node: str, name: str) -> k8s.Pod:
    """A pod of the size of a small real one."""
    pod = k8s.Pod()
    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = "bench", name, f"uid-{name}"
    pod.metadata.labels[f"application.core.{SUFFIX}"] = "bench/application"
    pod.metadata.annotations[f"node.{SUFFIX}"] = node
    container = pod.spec.containers.add(name="app", image="registry.local/app:1", command=["serve"])
    for number in range(8):
        container.env.add(name=f"VARIABLE_{number}", value="value")
    pod.status.phase = "Running"
    pod.status.containerStatuses.add(
        name="app", ready=True, image="registry.local/app:1", containerID="c" * 64
    )
    return pod
