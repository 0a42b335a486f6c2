"""Benchmarks of virtual machines as pods, against bare libvirt calls; see `machine_lab`.

Floor and agent take turns. The agent is stopped with SIGSTOP while the floor runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.runtime import LibvirtRuntime

from kubeletx.api import ImageSpec, Machine, Resources, SupportsStats, UnitSpec
from kubeletx.testing import FakeHost, endpoint, sandbox_spec
from kubeletx_testing.lab import PrivateAgent

from .floor import CALLERS
from .idle import cpu_during, cpu_seconds, rest_figure
from .lab import BenchLab, wait_ready, wait_until
from .machine_lab import STARTED, STOPPED, UNDEFINED, MachineLab, Pattern, end_bare, machine_lab, start_bare
from .model import Figure, Result, Sizes, figure, median, now, over_floor

APPLY_MILLISECONDS = 100.0
DELETE_MILLISECONDS = 50.0
SHARE_OF_FLOOR = 0.9
LIST_MILLISECONDS = 50.0
CPU_SECONDS_PER_MINUTE = 0.3
SETTLE_SECONDS = 20.0
_MIB = 1 << 20


class _Times(msgspec.Struct):
    """Milliseconds of one side, the floor or the agent, one value for each run.

    `ends`: from the deletion to the undefined domain. `afters`: the part of it after the machine's end. `gone`:
    from the deletion until the agent no longer lists the pod.
    """

    starts: list[float] = []
    ends: list[float] = []
    afters: list[float] = []
    gone: list[float] = []


def machine(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure one machine on an idle agent.

    Times: from its manifest to running, and from its deletion to the undefined domain. Pods are applied and deleted
    through the admin socket, as the command line does it: the deletion of a manifest file takes effect only 0.2 s
    later.
    """
    bare, ours = _Times(), _Times()
    with machine_lab(bench) as lab, lab.agent() as agent:
        wait_ready(agent)
        pattern = _warm_up(lab, agent)
        for number in range(sizes.machine_runs):
            ready = lab.floor_machines(pattern, 1)
            try:
                with _paused(agent):
                    bare.starts.append(start_bare(lab, ready, 1) * 1000)
                    bare.ends.append(end_bare(lab, ready[0]) * 1000)
            finally:
                lab.remove_floor(ready)
            _one(lab, agent, f"machine-{number}", ours)
            last = [
                f"{who} {times.starts[-1]:.0f} ms, deletion {times.ends[-1]:.0f} ms"
                for who, times in (("floor", bare), ("agent", ours))
            ]
            print(f"   {'; '.join(last)}, of that {ours.afters[-1]:.0f} after the end", flush=True)
    return Result(
        name="machine",
        figures=(
            *over_floor("one machine", ours.starts, bare.starts, APPLY_MILLISECONDS),
            *over_floor("deletion of one machine", ours.ends, bare.ends, DELETE_MILLISECONDS),
            figure("deletion, from the machine's end to no domain", "ms", ours.afters, digits=1),
            figure("deletion, until the pod is forgotten", "ms", ours.gone, digits=1),
        ),
        series={
            "floor": bare.starts,
            "agent": ours.starts,
            "floor deletion": bare.ends,
            "agent deletion": ours.ends,
        },
        measured_at=now(),
    )


def machines(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure many small machines that start at once. The floor is the number of callers with the best median."""
    count = sizes.machines
    bare: dict[int, list[float]] = {callers: [] for callers in CALLERS}
    ours: list[float] = []
    with machine_lab(bench) as lab, lab.agent() as agent:
        wait_ready(agent)
        pattern = _warm_up(lab, agent)
        for number in range(sizes.runs):
            for callers in (*CALLERS[number % len(CALLERS) :], *CALLERS[: number % len(CALLERS)]):
                ready = lab.floor_machines(pattern, count)
                try:
                    with _paused(agent):  # shorter than libvirtd's patience with a silent client
                        bare[callers].append(count / start_bare(lab, ready, callers))
                finally:
                    lab.remove_floor(ready)
                time.sleep(1)
                print(f"   floor with {callers} callers {bare[callers][-1]:.2f}/s", flush=True)
                began_ns = lab.put([f"many-{number}" for number in range(count)])
                moments = lab.listener.wait(STARTED, count, began_ns)
                ours.append(count / ((moments[-1].at_ns - began_ns) / 1e9))
                bench.remove_pods(agent)
                time.sleep(1)
                print(f"   agent {ours[-1]:.2f}/s", flush=True)
    best = max(CALLERS, key=lambda callers: median(bare[callers]))
    return Result(
        name="machines",
        figures=(figure(f"{count} machines at once", "machines/s", ours, bare[best], share=SHARE_OF_FLOOR),),
        notes=(f"floor: {best} callers",),
        series={"agent": ours, **{f"{callers} callers": rates for callers, rates in bare.items()}},
        measured_at=now(),
    )


def machine_rest(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure the agent's CPU time while machines run and nothing changes."""
    count = sizes.machines
    with machine_lab(bench) as lab, lab.agent() as agent:
        wait_ready(agent)
        names = [f"rest-{number}" for number in range(count)]
        lab.put(names)
        for name in names:
            wait_until(partial(_is_running, agent, name), f"status of {name}")
        time.sleep(min(SETTLE_SECONDS, sizes.idle_seconds))
        cpu, seconds = cpu_during(agent.pid, sizes.idle_seconds)
        bench.remove_pods(agent)
    return Result(
        name="machine-rest",
        figures=(rest_figure(f"{count} machines", cpu, seconds, CPU_SECONDS_PER_MINUTE),),
        measured_at=now(),
    )


def machine_image(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure bytes moved and CPU time of the agent and its children for two machines of the same image.

    Only the first machine may read the image.
    """
    with machine_lab(bench) as lab, lab.agent() as agent:
        wait_ready(agent)
        _warm_up(lab, agent)
        image = lab.directory / "large.img"
        head = lab.image.read_bytes()
        with image.open("wb") as file:
            file.write(head)
            for _ in range(sizes.image_mib - 1):
                file.write(os.urandom(_MIB))
        costs = []
        for name in ("first", "second"):
            moved, cpu = moved_bytes(agent.pid), cpu_seconds(agent.pid)
            lab.put([name], image=image)
            wait_until(partial(_is_running, agent, name), f"status of {name}")
            costs.append((moved_bytes(agent.pid) - moved, cpu_seconds(agent.pid) - cpu))
        bench.remove_pods(agent)
        image.unlink()
    (first, first_cpu), (second, second_cpu) = costs
    figures = (
        Figure(
            label=f"read and written for the second machine of an image of {sizes.image_mib} MiB",
            value=round(second / _MIB, 3),
            unit="MiB",
            goal="no image data",
            is_met=second < _MIB,
            floor=None,
            ratio=None,
        ),
        figure("the same for the first machine", "MiB", first / _MIB, digits=1),
        figure("CPU of the agent for the second machine", "s", second_cpu, digits=2),
        figure("CPU of the agent for the first machine", "s", first_cpu, digits=2),
    )
    return Result(name="machine-image", figures=figures, measured_at=now())


def machine_list(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure the plugin's list and statistics of many machines, against the one libvirt call that returns both."""
    with machine_lab(bench) as lab:
        return asyncio.run(_machine_list(lab, sizes))


async def _machine_list(lab: MachineLab, sizes: Sizes) -> Result:
    count = sizes.listed_machines
    state = lab.directory / "state"
    state.mkdir()
    runtime = LibvirtRuntime(
        endpoint(lab.libvirtd.url, workload_type="vm"),
        Settings(accelerator="qemu", image_directories=(str(lab.directory),)),
        FakeHost(state),
    )
    await runtime.open()
    figures = []
    try:
        for number in range(count):
            sandbox = sandbox_spec(f"listed-{number}", log_directory=str(lab.directory / "logs"))
            sandbox_id = await runtime.create_sandbox(sandbox)
            ref = await runtime.images.pull_image(ImageSpec(requested=str(lab.image)), None, sandbox)
            spec = UnitSpec(
                name="main",
                image=ImageSpec(requested=str(lab.image), ref=ref),
                detail=Machine(power="paused"),
                resources=Resources(cpu_limit_millicores=1000, memory_limit_bytes=32 * _MIB),
                log_path=f"{number}.log",
            )
            await runtime.start_unit(await runtime.create_unit(sandbox_id, spec, sandbox))
        figures.append(await _list_figure(runtime, sizes, f"list and statistics of {count} paused machines"))
        for unit in await runtime.list_units({}):
            await runtime.stop_unit(unit.id, 0)
        figures.append(
            await _list_figure(runtime, sizes, f"list and statistics of {count} machines that are off")
        )
        for left in await runtime.list_sandboxes({}):
            await runtime.remove_sandbox(left.id)
    finally:
        await runtime.close()
    return Result(name="machine-list", figures=tuple(figures), measured_at=now())


async def _list_figure(runtime: LibvirtRuntime, sizes: Sizes, label: str) -> Figure:
    stats = runtime.capability(SupportsStats)
    assert stats is not None
    times = []
    for number in range(sizes.machine_runs + 1):
        began = time.monotonic()
        await runtime.list_units({})
        listed = time.monotonic()
        await stats.list_unit_stats({})
        print(f"   {(listed - began) * 1000:.1f} + {(time.monotonic() - listed) * 1000:.1f} ms", flush=True)
        if number:
            times.append((time.monotonic() - began) * 1000)
    return figure(label, "ms", times, at_most=LIST_MILLISECONDS, digits=1)


def _warm_up(lab: MachineLab, agent: PrivateAgent) -> Pattern:
    """Start and remove one machine; returns its XML and seed as a pattern for the floor."""
    lab.put(["warm"])
    wait_until(lambda: _is_running(agent, "warm"), "status of warm")
    pattern = lab.take_pattern()
    lab.bench.remove_pods(agent)
    time.sleep(1)
    return pattern


def _one(lab: MachineLab, agent: PrivateAgent, name: str, times: _Times) -> None:
    """Start one machine and delete it, and append the times of both to `times`."""
    began_ns = lab.apply(agent, name)
    (moment,) = lab.listener.wait(STARTED, 1, began_ns)
    times.starts.append((moment.at_ns - began_ns) / 1e6)
    wait_until(lambda: _is_running(agent, name), f"status of {name}")
    lab.wait_up(agent, name)
    began_ns = lab.delete(agent, name)
    (ended,) = lab.listener.wait(STOPPED, 1, began_ns)
    (moment,) = lab.listener.wait(UNDEFINED, 1, began_ns)
    times.ends.append((moment.at_ns - began_ns) / 1e6)
    times.afters.append((moment.at_ns - ended.at_ns) / 1e6)
    wait_until(lambda: agent.pod(name) is None, f"removal of {name}")
    times.gone.append((time.time_ns() - began_ns) / 1e6)
    time.sleep(0.5)


@contextmanager
def _paused(agent: PrivateAgent) -> Iterator[None]:
    """Stop the agent during the block; afterwards, wait until it has handled the events of that time."""
    assert agent.daemon is not None
    agent.daemon.pause()
    try:
        yield
    finally:
        agent.daemon.resume()
        time.sleep(0.7)


def _is_running(agent: PrivateAgent, name: str) -> bool:
    pod = agent.pod(name)
    return pod is not None and pod.status.phase == "Running"


def moved_bytes(pid: int) -> int:
    """Bytes that the process and the children it waited for have read and written, disk or cache."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"]) + int(fields["wchar"])
