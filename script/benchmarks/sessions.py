"""Benchmarks of sessions that a core opens, on real containers that are really frozen between them.

The applications of `session-open` run in the frozen containers. Those of `session-idle` and `session-restart` are one
process of the node with the certificate of each pod, since 200 interpreters would measure the machine's memory; their
containers are frozen all the same.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from kubeletx_testing.lab.process import Daemon

from .floor import measure
from .idle import cpu_during, cpu_seconds, resident_mib, rest_figure
from .lab import ROOT, BenchLab
from .model import Figure, Result, Sizes, figure, median, now, over_floor, percentile
from .session_floor import BareService
from .session_lab import MANY_SECONDS, SessionNode, plain, resting, session_node, with_application
from .standby_lab import Freezer
from .standby_rest import SETTLE_SECONDS

RATE: Final = 25.0
P50_MILLISECONDS, P99_MILLISECONDS = 10.0, 50.0
SUSTAINED: Final = 60.0
COLD_MILLISECONDS: Final = 60.0
CPU_SECONDS_PER_MINUTE: Final = 0.3
RESIDENT_MB: Final = 150.0
LIST_SECONDS: Final = 2.0
_MB_PER_MIB: Final = 1.048576


def session_open(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure sessions on frozen pods: times at a fixed rate, the highest rate, and the agent's own share."""
    return asyncio.run(_session_open(bench, sizes))


def cold_open(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure a new pod and its first session, beside the bare CRI calls for the same pod."""
    return asyncio.run(_cold_open(bench, sizes))


def core_changes(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure pods whose containers really change, from the command of the core to the report to it."""
    return asyncio.run(_core_changes(bench, sizes))


def session_idle(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure CPU time and memory of the agent while all its pods are frozen and have certificates."""
    return asyncio.run(_session_idle(bench, sizes))


def session_restart(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure how soon after a crash a core has a complete list of pods and sessions."""
    return asyncio.run(_session_restart(bench, sizes))


async def _session_open(bench: BenchLab, sizes: Sizes) -> Result:
    async with session_node(bench) as node:
        pods = await node.create(
            [with_application(f"app-{number}") for number in range(sizes.session_pods)], "Standby"
        )
        for pod in pods:  # a warm-up
            await node.open(pod)
            await node.close_all(pod)
        times = await _at_rate(node, pods, sizes.sessions)
        before, began = cpu_seconds(node.agent.pid), time.monotonic()
        each = max(sizes.sessions // len(pods), 1)
        await asyncio.gather(*(_repeat(node, pod, each) for pod in pods))
        rate = each * len(pods) / (time.monotonic() - began)
        cpu = (cpu_seconds(node.agent.pid) - before) * 1000 / (each * len(pods))
        await asyncio.to_thread(node.agent.stop)
        moments = node.agent.moments()
        inside = [
            (moments.told[id] - moments.asked[id]) / 1e6
            for number in range(len(pods), len(pods) + len(times))
            if (id := f"bench/s{number + 1}") in moments.told
        ]
        floors = await _bare(node, pods, sizes.sessions)
        await node.start()
    share = median(inside) - median(floors)
    last = percentile(inside, 0.99) - percentile(floors, 0.99)
    return Result(
        name="session-open",
        figures=(
            figure(f"session on a frozen pod at {RATE:g}/s, p50", "ms", median(times), median(floors)),
            figure("the same, p99", "ms", percentile(times, 0.99), percentile(floors, 0.99)),
            figure("the same, agent's own share, p50", "ms", share, at_most=P50_MILLISECONDS, digits=2),
            figure("the same, agent's own share, p99", "ms", last, at_most=P99_MILLISECONDS, digits=2),
            Figure(
                label="sessions opened, closed and frozen again, sustained",
                value=round(rate, 1),
                unit="/s",
                goal=f"≥ {SUSTAINED:g}",
                is_met=rate >= SUSTAINED,
            ),
            figure("CPU of the agent for each of these", "ms", cpu, digits=2),
        ),
        series={"core": times, "agent": inside, "floor": floors},
        notes=(
            f"{len(pods)} pods; the SDK runs in the containers, the core in the benchmark's process",
            "floor: a bare session service that thaws by the freezer's file",
        ),
        measured_at=now(),
    )


async def _at_rate(node: SessionNode, pods: Sequence[str], count: int) -> list[float]:
    """Open `count` sessions at `RATE`, each on a pod that is frozen; returns milliseconds, none is lost."""
    frozen: asyncio.Queue[str] = asyncio.Queue()
    for pod in pods:
        frozen.put_nowait(pod)

    async def one() -> float:
        pod = await frozen.get()
        taken = await node.open(pod)
        await node.close_all(pod)
        frozen.put_nowait(pod)
        return round(taken, 4)

    return await _paced(one, count)


async def _repeat(node: SessionNode, pod: str, times: int) -> None:
    for _ in range(times):
        await node.open(pod)
        await node.close_all(pod)


async def _paced(one: Callable[[], Coroutine[None, None, float]], count: int) -> list[float]:
    """Start `one` `count` times at `RATE`; returns what they return, in order of their starts."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
            tasks.append(group.create_task(one(), name=f"session-{number}"))
    return [task.result() for task in tasks]


async def _bare(node: SessionNode, pods: Sequence[str], count: int) -> list[float]:
    """Do the same as `_at_rate` without the agent, which has stopped."""
    freezers = await asyncio.to_thread(_freezers, node)
    for freezer in freezers.values():
        freezer.write(frozen=False)
    service = BareService()
    server = await service.serve(node.agent.root_dir / "sessions", pods)
    idle: asyncio.Queue[str] = asyncio.Queue()
    for pod in pods:
        idle.put_nowait(pod)

    async def one() -> float:
        pod = await idle.get()
        taken = await service.wake(pod, freezers[pod])
        idle.put_nowait(pod)
        return round(taken, 4)

    found = await _paced(one, count)
    await server.stop(None)
    return found


def _freezers(node: SessionNode) -> dict[str, Freezer]:
    """Return the freezer of the container of each pod."""
    with node.bench.containerd.cri() as cri:
        running = cri.call("ListContainers", filter={"state": {"state": 1}}).containers
    label = "io.kubernetes.pod."
    return {
        f"{one.labels[label + 'namespace']}/{one.labels[label + 'name']}": Freezer(one.id) for one in running
    }


async def _cold_open(bench: BenchLab, sizes: Sizes) -> Result:
    ours, floors = [], []
    async with session_node(bench) as node:
        for number, floor_pod in enumerate(bench.floor_pods(sizes.single_runs + 1)):
            bare = await measure(bench.containerd.endpoint, [floor_pod], 1)
            began = time.monotonic()
            (pod,) = await node.create([plain(f"cold-{number}")], "Running")
            await node.open(pod)
            if number:  # the first one is a warm-up
                ours.append(round((time.monotonic() - began) * 1000, 1))
                floors.append(round(bare.slowest_pod_seconds * 1000, 1))
            node.core.terminate_pod(pod)
            await node.until(lambda: not node.core.state.pods, "end of the pod")
    return Result(
        name="cold-open",
        figures=over_floor("cold open: create, start, open", ours, floors, COLD_MILLISECONDS),
        notes=("floor: the same CRI calls by a bare client", "pods whose sessions need no application"),
        measured_at=now(),
    )


async def _core_changes(bench: BenchLab, sizes: Sizes) -> Result:
    cycles = max(sizes.sessions // sizes.session_pods, 1)
    figures: list[Figure] = []
    async with session_node(bench) as node:
        core, count = node.core, sizes.session_pods

        async def measured(what: str, changes: int, work: Awaitable[object]) -> None:
            before, began = cpu_seconds(node.agent.pid), time.monotonic()
            await work
            rate = changes / (time.monotonic() - began)
            cpu = (cpu_seconds(node.agent.pid) - before) * 1000 / changes
            figures.append(figure(f"{count} pods of a core, {what}", "/s", rate, digits=1))
            figures.append(figure(f"CPU of the agent for each of these, {what}", "ms", cpu, digits=2))

        async def cycle(pod: str) -> None:
            for _ in range(cycles):
                core.hibernate_pod(pod)
                await node.until(lambda: node.are_in("Standby", [pod]), f"frozen pod {pod}")
                core.activate_pod(pod)
                await node.until(lambda: node.are_in("Running", [pod]), f"running pod {pod}")

        requests = [plain(f"change-{number}") for number in range(count)]
        await measured("created, until Running", count, node.create(requests, "Running"))
        pods = tuple(core.state.pods)
        await measured("hibernated or activated", 2 * cycles * count, asyncio.gather(*map(cycle, pods)))
        await measured("terminated, until gone", count, node.end())
    return Result(
        name="core-changes",
        figures=tuple(figures),
        notes=("from the command of a core to its report; containers really start, freeze, thaw and end",),
        measured_at=now(),
    )


async def _session_idle(bench: BenchLab, sizes: Sizes) -> Result:
    async with _many(bench, sizes) as (node, pods):
        await asyncio.sleep(min(SETTLE_SECONDS, sizes.idle_seconds))
        cpu, seconds = await asyncio.to_thread(cpu_during, node.agent.pid, min(sizes.idle_seconds, 60.0))
        memory = round(resident_mib(node.agent.pid) * _MB_PER_MIB, 1)
    what = f"{len(pods)} standby pods with certificates"
    return Result(
        name="session-idle",
        figures=(
            rest_figure(what, cpu, seconds, CPU_SECONDS_PER_MINUTE),
            figure(f"resident memory with {what}", "MB", memory, at_most=RESIDENT_MB, digits=1),
        ),
        notes=("containers are frozen; their applications are one process of the node",),
        measured_at=now(),
    )


async def _session_restart(bench: BenchLab, sizes: Sizes) -> Result:
    async with _many(bench, sizes) as (node, pods):
        for begin in range(0, len(pods), 20):
            await asyncio.gather(*(node.open(pod) for pod in pods[begin : begin + 20]))
        before = await asyncio.to_thread(_containers, node)
        await asyncio.to_thread(node.agent.kill)
        await node.core.restart()  # it has forgotten all pods, so what it knows then is from the list
        began = time.monotonic()
        starting = asyncio.create_task(asyncio.to_thread(node.agent.start), name="start")
        state = node.core.state
        is_listed = lambda: len(state.pods) == len(pods)  # noqa: E731
        await node.until(is_listed, "list of all pods", MANY_SECONDS)
        seconds = time.monotonic() - began
        live = sum(one.is_live for one in state.sessions.values())
        await starting
        await asyncio.sleep(SETTLE_SECONDS)
        after = await asyncio.to_thread(_containers, node)
        ended = len(pods) - sum(one.is_live for one in state.sessions.values())
    if live != len(pods) or ended or after != before:
        raise RuntimeError(
            f"of {len(pods)} sessions {live} were listed and {ended} ended; {len(after ^ before)} containers differ"
        )
    return Result(
        name="session-restart",
        figures=(
            figure(
                f"start after SIGKILL to the complete list of {len(pods)} pods and sessions",
                "s",
                seconds,
                at_most=LIST_SECONDS,
                digits=2,
            ),
        ),
        notes=("no container was started again, no session has ended",),
        measured_at=now(),
    )


@asynccontextmanager
async def _many(bench: BenchLab, sizes: Sizes) -> AsyncIterator[tuple[SessionNode, list[str]]]:
    """Context manager: a node with frozen pods, whose applications are in another process."""
    async with session_node(bench) as node:
        requests = [resting(f"rest-{number}") for number in range(sizes.standby_pods)]
        ids = [node.core.create_pod(one).id for one in requests]
        root = node.agent.root_dir
        applications = Daemon(
            name="applications",
            argv=[
                *(sys.executable, "-m", "script.benchmarks.session_apps", str(root)),
                *(f"{node.core.pod(id).pod.metadata.uid}={id}" for id in ids),
            ],
            directory=bench.lab.base_dir,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        applications.start()
        try:
            await node.until(partial(node.are_in, "Standby", ids), "frozen pods", MANY_SECONDS)
            yield node, ids
        finally:
            await asyncio.to_thread(applications.stop)


def _containers(node: SessionNode) -> set[str]:
    with node.bench.containerd.cri() as cri:
        return {one.id for one in cri.call("ListContainers", filter={"state": {"state": 1}}).containers}
