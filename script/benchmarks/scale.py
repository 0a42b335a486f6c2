"""Benchmark with thousands of pods on a runtime in memory: the whole agent, except its servers.

Each size runs in a process of its own (``python -m script.benchmarks.scale SIZE``), twice: once for time, once
under tracemalloc for memory. The agent's memory is what remains without the runtime's own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from timeit import default_timer

import msgspec
import structlog

from kubeletx.agent.assembly import assemble
from kubeletx.agent.config.tree import (
    AgentConfig,
    CgroupSettings,
    EndpointText,
    LogSettings,
    NodeSettings,
    RuntimeSettings,
    ServerSettings,
)
from kubeletx.agent.host.logging import set_up_logging
from kubeletx.agent.lifecycle import Assembly
from kubeletx.api import SystemClock
from kubeletx.kube.types.core import Pod
from kubeletx.plugins import loading
from kubeletx.static.manifest import ManifestReader
from kubeletx_testing.lab import pod_manifest

from . import fake_plugin
from .idle import resident_mib
from .lab import ROOT
from .model import Figure, Result, Sizes, figure, median, now

URL = "fake://bench"
CHANGES = 200
SETTLE_SECONDS = 3.0
"""Time within which all recorded changes are written."""
REST_SECONDS = 5.0
MEMORY_KIB = 40.0
RECOVERY_SECONDS = 5.0
LOOK_UP_MICROSECONDS = 1.0
FLAT = 1.5


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one process; the unit is in each name.

    `change_cpu_ms`: for one container that ends and is restarted.
    """

    pods: int
    start_cpu_ms: float = 0.0
    start_seconds: float = 0.0
    change_cpu_ms: float = 0.0
    rest_cpu_ms_per_second: float = 0.0
    recovery_seconds: float = 0.0
    recovery_cpu_seconds: float = 0.0
    look_up_us: float = 0.0
    resident_mib: float = 0.0
    kib_per_pod: float = 0.0


def scale(sizes: Sizes) -> Result:
    """Measure the cost of changes, memory and recovery by number of pods."""
    timed = [_in_process(count, "time") for count in sizes.scale_pods]
    weighed = [_in_process(count, "memory") for count in sizes.scale_pods]
    least, most = timed[0], timed[-1]
    flat = most.change_cpu_ms / least.change_cpu_ms
    figures = [
        Figure(
            label=f"CPU per change, {most.pods} pods",
            value=round(most.change_cpu_ms, 2),
            unit="ms",
            goal=f"≤ {FLAT:g} x that with {least.pods}",
            is_met=flat <= FLAT,
            floor=round(least.change_cpu_ms, 2),
            ratio=round(flat, 2),
        ),
        figure(f"CPU per pod start, {most.pods} pods", "ms", most.start_cpu_ms, digits=2),
    ]
    for weight in weighed:
        if weight.pods >= 1000 or weight is weighed[-1]:
            figures.append(
                figure(
                    f"memory per pod, {weight.pods} pods",
                    "KiB",
                    weight.kib_per_pod,
                    at_most=MEMORY_KIB,
                    digits=1,
                )
            )
    for times in timed:
        if times.pods >= 1000 or times is timed[-1]:
            figures.append(
                figure(
                    f"recovery, {times.pods} pods",
                    "s",
                    times.recovery_seconds,
                    at_most=RECOVERY_SECONDS,
                    digits=2,
                )
            )
    figures.append(
        figure(
            f"late binding look-up, {most.pods} pods",
            "µs",
            most.look_up_us,
            at_most=LOOK_UP_MICROSECONDS,
            digits=3,
        )
    )
    series = {
        "pods": [float(times.pods) for times in timed],
        "change cpu ms": [times.change_cpu_ms for times in timed],
        "start cpu ms": [times.start_cpu_ms for times in timed],
        "recovery seconds": [times.recovery_seconds for times in timed],
        "rest cpu ms per second": [times.rest_cpu_ms_per_second for times in timed],
        "resident MiB": [times.resident_mib for times in timed],
        "kib per pod": [weight.kib_per_pod for weight in weighed],
    }
    return Result(name="scale", figures=tuple(figures), series=series, measured_at=now())


def _in_process(count: int, what: str) -> Measured:
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(count), what],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
        cwd=ROOT,
    )
    measured = msgspec.json.decode(done.stdout.splitlines()[-1], type=Measured)
    print(f"   {what}: {measured}", flush=True)
    return measured


@asynccontextmanager
async def running_agent(root: Path) -> AsyncIterator[tuple[Assembly, float, float]]:
    """Context manager: runs an agent on the fake runtime.

    Yields the assembly, and the seconds and CPU seconds until its pods were found again.
    """
    config = AgentConfig(
        root_dir=root,
        runtimes=RuntimeSettings(endpoints=(EndpointText(text=f"container:fake:{URL}", origin="bench"),)),
        node=NodeSettings(hostname_override="bench", max_pods=100_000),
        logs=LogSettings(pod_logs_dir=root / "pod-logs"),
        cgroups=CgroupSettings(per_qos=False),
        server=ServerSettings(healthz_port=0),
    )
    entry_points = [EntryPoint(name="bench", value=fake_plugin.__name__, group="kubeletx")]
    began, cpu = default_timer(), time.process_time()
    loaded = loading.load_plugins(entry_points)
    async with assemble(config, plugins=loaded, clock=SystemClock()) as parts, asyncio.TaskGroup() as group:
        tasks = [group.create_task(parts.registry.run(), name="runtimes")]
        await asyncio.gather(*(handle.wait_listed() for handle in parts.registry.handles()))
        await parts.manager.recover()
        ready = asyncio.Event()
        tasks.append(group.create_task(parts.manager.run(ready=ready), name="pods"))
        await ready.wait()
        await until(lambda: all(worker.plan is not None for worker in parts.manager.workers.values()))
        yield parts, default_timer() - began, time.process_time() - cpu
        for task in tasks:
            task.cancel()


async def until(is_so: Callable[[], bool], *, pause_seconds: float = 0.05) -> None:
    """Poll until `is_so` is true; an event would need code in the agent that is measured."""
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(pause_seconds)


def make_pods(count: int) -> list[Pod]:
    """Make pods from manifests, as the file source does."""
    reader = ManifestReader(node_name="bench")
    moment = datetime.now(UTC)
    return [
        reader.read(
            json.dumps(pod_manifest(f"p{number}")).encode(),
            origin=f"/manifests/p{number}.json",
            source="file",
            seen_at=moment,
        ).pods[0]
        for number in range(count)
    ]


def feed(parts: Assembly, pods: list[Pod]) -> None:
    """Pass the pods to the pod manager, as a source does."""
    for pod in pods:
        parts.manager.update("file", pod)
    parts.manager.synced("file")


def all_run(parts: Assembly, count: int) -> bool:
    """True if there are `count` pods and each has status Running."""
    workers = parts.manager.workers
    return len(workers) == count and all(
        worker.facts.previous_status is not None and worker.facts.previous_status.phase == "Running"
        for worker in workers.values()
    )


async def measure_time(
    count: int, root: Path, *, settle_seconds: float = SETTLE_SECONDS, rest_seconds: float = REST_SECONDS
) -> Measured:
    """Start the pods, change some, rest, look pods up and restart the agent; measures the time of each."""
    async with running_agent(root) as (parts, _, _):
        pods = make_pods(count)
        began, cpu = default_timer(), time.process_time()
        feed(parts, pods)
        await until(lambda: all_run(parts, count))
        start_seconds, start_cpu = default_timer() - began, time.process_time() - cpu
        del pods
        gc.collect()
        gc.freeze()
        await asyncio.sleep(settle_seconds)
        change_cpu = await _changes(parts, min(CHANGES, count))
        await asyncio.sleep(settle_seconds)
        cpu, began = time.process_time(), default_timer()
        await asyncio.sleep(rest_seconds)
        rest = (time.process_time() - cpu) / (default_timer() - began)
        look_up = _look_up(parts)
        memory = resident_mib(os.getpid())
    async with running_agent(root) as (parts, seconds, cpu_seconds):
        if not all_run(parts, count):
            raise RuntimeError("recovery lost pods")
    return Measured(
        pods=count,
        start_cpu_ms=start_cpu / count * 1000,
        start_seconds=start_seconds,
        change_cpu_ms=change_cpu,
        rest_cpu_ms_per_second=rest * 1000,
        recovery_seconds=seconds,
        recovery_cpu_seconds=cpu_seconds,
        look_up_us=look_up,
        resident_mib=memory,
    )


async def measure_memory(
    count: int, root: Path, *, settle_seconds: float = SETTLE_SECONDS, shows_top: bool = False
) -> Measured:
    """Measure the memory that the agent keeps for each pod, without the runtime's."""
    async with running_agent(root) as (parts, _, _):
        tracemalloc.start()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        feed(parts, make_pods(count))
        await until(lambda: all_run(parts, count), pause_seconds=0.5)
        await asyncio.sleep(settle_seconds)
        backend = fake_plugin.backends[URL]
        kept = (backend.sandboxes, backend.units, backend._keys, backend._by_pod)
        held = [dict(one) for one in kept]
        gc.collect()
        with_runtime = tracemalloc.get_traced_memory()[0]
        for one in kept:
            one.clear()
        held.clear()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        if shows_top:
            _show_top(tracemalloc.take_snapshot(), count)
        tracemalloc.stop()
        print(f"runtime {(with_runtime - after) / count / 1024:.1f} KiB for each pod", file=sys.stderr)
        for task in asyncio.all_tasks():
            if task.get_name().startswith("pod "):
                task.cancel()
    return Measured(pods=count, kib_per_pod=(after - before) / count / 1024)


async def _changes(parts: Assembly, count: int) -> float:
    """Let `count` containers end and wait until they are restarted; returns the CPU milliseconds for each."""
    backend = fake_plugin.backends[URL]
    workers = list(parts.manager.workers.values())
    chosen = [workers[index * len(workers) // count] for index in range(count)]
    units = {worker.uid: worker.facts.snapshot.units[0].id for worker in chosen if worker.facts.snapshot}
    cpu = time.process_time()
    for unit_id in units.values():
        backend.exit_unit(unit_id, 1)
    await until(lambda: all(_restarts(worker) == 1 for worker in chosen))
    return (time.process_time() - cpu) / count * 1000


def _restarts(worker: object) -> int:
    status = worker.facts.previous_status  # type: ignore[attr-defined]
    container = status.container_statuses[0] if status is not None else None
    return container.restart_count if container is not None and container.state.running is not None else 0


def _look_up(parts: Assembly) -> float:
    """Microseconds of one call of `runtime_by_pod_id`, with the cost of the loop around it."""
    uids = list(parts.manager.workers)
    find = parts.registry.runtime_by_pod_id
    times = []
    for _ in range(7):
        began = default_timer()
        for _ in range(max(1, 20_000 // len(uids))):
            for uid in uids:
                find(uid)
        rounds = max(1, 20_000 // len(uids)) * len(uids)
        times.append((default_timer() - began) / rounds * 1e6)
    return median(times)


def _show_top(snapshot: tracemalloc.Snapshot, count: int) -> None:
    for stat in snapshot.statistics("lineno")[:60]:
        print(f"{stat.size / count:8.0f} B {stat.count / count:6.1f}  {stat.traceback}", file=sys.stderr)


def main() -> None:
    """Measure one number of pods in one way; the last line of standard output is the result as JSON."""
    count, what = int(sys.argv[1]), sys.argv[2]
    set_up_logging()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="kubeletx-bench-") as directory:
        root = Path(directory)
        memory = partial(measure_memory, shows_top="--top" in sys.argv)
        measured = asyncio.run((measure_time if what == "time" else memory)(count, root))
    print(msgspec.json.encode(measured).decode())


if __name__ == "__main__":
    main()
