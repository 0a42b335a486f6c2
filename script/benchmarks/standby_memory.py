"""Benchmark of the memory of an instance: warm, frozen, reclaimed into zram, and awake again; and of its first answers.

An instance is a small web server (`instances`). Its memory is the working set of its container (usage without inactive
file pages, as the kubelet counts it) and, once it is reclaimed, also the memory of its compressed pages in zram. One
instance exists at a time. Requests are sent before the wake and wait in the socket of the frozen server.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Final

from kubeletx_testing.lab import CriCalls
from kubeletx_testing.lab.cgroups import list_container_cgroups
from kubeletx_testing.lab.process import LabError
from kubeletx_testing.lab.registry import free_port

from .instances import Instance, find_instances
from .lab import BenchLab, wait_ready, wait_running
from .model import Figure, Result, Sizes, figure, median, now
from .plots import INSTANCES
from .standby_lab import StandbyAgent, connect, containers, standby_agent
from .zram import Zram, zram_swap

SHARE_OF_WARM: Final = 0.25
WARM_REQUESTS: Final = 50
_SAMPLE_SECONDS: Final = 0.05
_MIB: Final = 1 << 20
_REQUEST: Final = b"GET / HTTP/1.0\r\nHost: bench\r\n\r\n"


def standby_memory(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure memory and first answers of a Python and a Node.js instance."""
    instances, missing = find_instances()
    instances = instances[: sizes.instances]
    figures: list[Figure] = []
    series: dict[str, list[float]] = {}
    with zram_swap() as zram, standby_agent(bench) as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        for instance in instances:
            instance.push(bench.lab)
            cri.call("PullImage", image={"image": instance.image}, timeout_seconds=120)
            measured = _Measurement(bench, agent, cri, instance, zram, sizes)
            measured.run()
            figures += measured.figures()
            series |= measured.series()
        algorithm = zram.algorithm
    return Result(
        name="standby-memory",
        figures=tuple(figures),
        series=series,
        notes=(f"zram with {algorithm}", *(f"no interpreter on this machine: {kind}" for kind in missing)),
        measured_at=now(),
    )


class _Memory(threading.Thread):
    """Samples the memory of one container and of zram, until `stop`."""

    def __init__(self, container_id: str, zram: Zram, baseline_bytes: int) -> None:
        """`baseline_bytes`: memory of zram before the instance existed."""
        super().__init__(name="memory", daemon=True)
        cgroups = list_container_cgroups({container_id})
        self._directory = next(
            cgroup for cgroup in cgroups if (cgroup / "memory.stat").exists() and _usage(cgroup).exists()
        )
        self._zram = zram
        self._baseline_bytes = baseline_bytes
        self._ends = threading.Event()
        self._began = time.monotonic()
        self.times: list[float] = []
        self.in_memory: list[float] = []
        self.compressed: list[float] = []

    def run(self) -> None:
        """Take samples until `stop` is called."""
        while not self._ends.wait(_SAMPLE_SECONDS):
            working, compressed = self.read()
            self.times.append(round(self.seconds(), 3))
            self.in_memory.append(working)
            self.compressed.append(compressed)

    def stop(self) -> None:
        """End the thread."""
        self._ends.set()
        self.join()

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def read(self) -> tuple[float, float]:
        """Return the working set and the memory of its compressed pages, in MiB."""
        usage = int(_usage(self._directory).read_text())
        stat = dict(line.split() for line in (self._directory / "memory.stat").read_text().splitlines())
        inactive = int(stat.get("total_inactive_file", stat["inactive_file"]))
        compressed = max(self._zram.used_bytes() - self._baseline_bytes, 0)
        return round(max(usage - inactive, 0) / _MIB, 2), round(compressed / _MIB, 2)


class _Measurement:
    """Measurement of one instance. Memory is in MiB, answers are in milliseconds."""

    def __init__(
        self,
        bench: BenchLab,
        agent: StandbyAgent,
        cri: CriCalls,
        instance: Instance,
        zram: Zram,
        sizes: Sizes,
    ) -> None:
        self._bench = bench
        self._agent = agent
        self._cri = cri
        self._instance = instance
        self._zram = zram
        self._sizes = sizes
        self._port = 0
        self.memory: dict[str, list[float]] = {
            key: [] for key in ("warm", "frozen", "reclaimed", "compressed", "awake")
        }
        self.answers: dict[str, list[float]] = {key: [] for key in ("cold", "hibernated", "frozen", "warm")}
        self.reclaim_seconds: list[float] = []
        self.timeline: _Memory | None = None
        self.marks: list[float] = []
        """Seconds of the timeline at which the instance was frozen, reclaimed and woken."""

    def run(self) -> None:
        """Repeat the measurement: start the instance, freeze, wake, hibernate and wake it."""
        for number in range(self._sizes.answers):
            name = f"{self._instance.kind}-{number}"
            before = self._zram.used_bytes()
            self._port = free_port()
            began = time.monotonic()
            self._bench.put_manifests({name: self._instance.manifest(name, self._port, self._sizes.heap_mib)})
            self._answer(began, "cold")
            wait_running(self._cri, [name], pause_seconds=0.05)
            self._agent.order("wait running", [name])
            self._frozen(name)
            memory = _Memory(containers(self._cri, [name])[name], self._zram, before)
            memory.start()
            try:
                self._hibernated(name, memory, is_first=number == 0)
            finally:
                memory.stop()
            self._bench.remove_pods(self._agent)
        for key, found in (*self.memory.items(), *self.answers.items()):
            print(f"   {self._instance.kind} {key}: {median(found):.4g}", flush=True)

    def _frozen(self, name: str) -> None:
        """Measure answers of the warm instance, and the first answer after a freeze."""
        for _ in range(WARM_REQUESTS):
            began = time.monotonic()
            self._answer(began, "warm")
        self._agent.order("standby", [name])
        self._agent.order("wait standby", [name])
        self._woken(name, "frozen")

    def _hibernated(self, name: str, memory: _Memory, *, is_first: bool) -> None:
        """Measure the memory of each state, and the first answer after a hibernation. `is_first`: for the plot."""
        hold = self._sizes.hold_seconds if is_first else min(self._sizes.hold_seconds, 0.2)
        time.sleep(hold)
        self.memory["warm"].append(memory.read()[0])
        marks = [memory.seconds()]
        self._agent.order("standby", [name])
        self._agent.order("wait standby", [name])
        time.sleep(hold)
        self.memory["frozen"].append(memory.read()[0])
        marks.append(memory.seconds())
        self._agent.order("hibernated", [name])
        self._agent.order("wait hibernated", [name])
        self.reclaim_seconds.append(memory.seconds() - marks[-1])
        time.sleep(hold)
        left, compressed = memory.read()
        self.memory["reclaimed"].append(left)
        self.memory["compressed"].append(compressed)
        marks.append(memory.seconds())
        self._woken(name, "hibernated")
        time.sleep(hold)
        for _ in range(WARM_REQUESTS):
            self._answer(time.monotonic(), "")
        time.sleep(hold)
        self.memory["awake"].append(sum(memory.read()))
        if is_first:
            self.timeline, self.marks = memory, marks

    def _woken(self, name: str, key: str) -> None:
        """Send a request to the frozen instance, wake it, and wait for the answer."""
        with connect("127.0.0.1", self._port) as client:
            client.sendall(_REQUEST)
            self._agent.begin("running", [name])
            answered = _whole_answer(client)
            began = self._agent.end().began_ns / 1e9
        self.answers[key].append(round((answered - began) * 1000, 3))
        self._agent.order("wait running", [name])

    def _answer(self, began: float, key: str) -> None:
        """Wait for one answer. `began`: monotonic start of its time. `key` empty: the time is not kept."""
        with connect("127.0.0.1", self._port, seconds=60) as client:
            client.sendall(_REQUEST)
            answered = _whole_answer(client)
        if key:
            self.answers[key].append(round((answered - began) * 1000, 3))

    def figures(self) -> list[Figure]:
        """Make the figures of this instance."""
        what = INSTANCES[self._instance.kind]
        warm = median(self.memory["warm"])
        resident = median(self.memory["reclaimed"])
        both = median(
            [sum(pair) for pair in zip(self.memory["reclaimed"], self.memory["compressed"], strict=True)]
        )
        cold = median(self.answers["cold"])
        memory = [
            Figure(
                label=f"memory of a reclaimed {what} instance",
                value=resident,
                unit="MiB",
                goal="≤ 25 % of warm",
                is_met=resident <= SHARE_OF_WARM * warm,
                floor=warm,
                ratio=resident / warm,
            ),
            Figure(
                label=f"memory of a reclaimed {what} instance, with its compressed pages in zram",
                value=both,
                unit="MiB",
                goal="≤ 25 % of warm",
                is_met=both <= SHARE_OF_WARM * warm,
                floor=warm,
                ratio=both / warm,
            ),
            *(
                figure(f"memory of a {what} instance, {words}", "MiB", median(self.memory[key]), warm)
                for key, words in (
                    ("frozen", "frozen"),
                    ("awake", "awake again"),
                )
            ),
            figure(f"reclaim of the {what} instance", "s", median(self.reclaim_seconds)),
        ]
        answers = [
            Figure(
                label=f"first answer of {what}, {words}",
                value=round(median(self.answers[key]), 2),
                unit="ms",
                floor=round(cold, 1) if key in ("hibernated", "frozen") else None,
                ratio=median(self.answers[key]) / cold if key in ("hibernated", "frozen") else None,
                samples=tuple(self.answers[key]) if key != "warm" else (),
            )
            for key, words in (
                ("cold", "cold start"),
                ("hibernated", "hibernated"),
                ("frozen", "frozen"),
                ("warm", "warm"),
            )
        ]
        return [*memory, *answers]

    def series(self) -> dict[str, list[float]]:
        """Make the series for the plots."""
        kind, timeline = self._instance.kind, self.timeline
        assert timeline is not None
        return {
            f"{kind} seconds": timeline.times,
            f"{kind} in memory": timeline.in_memory,
            f"{kind} compressed": timeline.compressed,
            f"{kind} marks": [round(mark, 3) for mark in self.marks],
            **{f"{kind} answers {key}": found for key, found in self.answers.items() if key != "warm"},
        }


def _whole_answer(client: socket.socket) -> float:
    """Read an answer to its end; returns the monotonic seconds then. Raises LabError for any status but 200."""
    data = b""
    while part := client.recv(1 << 16):
        data += part
    if b" 200 " not in data[:20]:
        raise LabError(f"an instance answered {data[:60]!r}")
    return time.monotonic()


def _usage(directory: Path) -> Path:
    old = directory / "memory.usage_in_bytes"
    return old if old.exists() else directory / "memory.current"
