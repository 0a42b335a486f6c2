"""A node of a cluster: pods that the API server binds to it, against the same floor as static pods, and at rest.

The API server is a real kube-apiserver where KUBEBUILDER_ASSETS names one, else the double in a thread of this
process; each result says which. Both run on the measured machine and take their share of its processors.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import bench_floor
import msgspec
from bench_idle import cpu_during, resident_mib, rest_figure
from bench_lab import NODE, BenchLab, manifest, wait_ready, wait_running, wait_until
from bench_model import Figure, Result, Sizes, median, now, over_floor

from kubeletx.testing.apiserver import ApiServerDouble, StatusError
from kubeletx.testing.lab import PrivateAgent
from kubeletx.testing.lab.kube_apiserver import KubeApiServer, missing_binaries

ONE_POD_MILLISECONDS = 60.0
SHARE_OF_FLOOR = 0.85
CPU_SECONDS_PER_MINUTE = 0.8
REQUESTS_PER_MINUTE = 30.0
RESIDENT_MB = 120.0
_AT_ONCE = 8


class ClusterLab(msgspec.Struct, kw_only=True):
    """A started API server and an agent that is its node."""

    bench: BenchLab
    api: ApiServerDouble | KubeApiServer
    agent: PrivateAgent

    @property
    def note(self) -> str:
        """Which API server it is."""
        return (
            "with the API server double"
            if isinstance(self.api, ApiServerDouble)
            else "with a real kube-apiserver"
        )

    def bind(self, names: Sequence[str]) -> int:
        """Make pods that are bound already; wall-clock nanoseconds before the first request."""

        def one(name: str) -> None:
            body = manifest(name)
            spec = {**body["spec"], "nodeName": NODE, "automountServiceAccountToken": False}  # type: ignore[dict-item]
            self.api.admin.create("pods", {**body, "spec": spec}, namespace="default")

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            began_ns = time.time_ns()
            list(pool.map(one, names))
        return began_ns

    def remove(self, names: Sequence[str]) -> None:
        """Delete pods and wait until the agent has none."""
        for name in names:
            self.api.admin.delete("pods", name, namespace="default", gracePeriodSeconds=1)
        wait_until(lambda: not self.agent.pods(), "removal of all pods", pause_seconds=0.2)


class Watch:
    """Hears in a thread of its own when pods become Running in the API."""

    def __init__(self, lab: ClusterLab) -> None:
        self._client = lab.api.admin
        self._running: dict[str, int] = {}
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self, name: str) -> int:
        """Wall-clock nanoseconds at which the API said Running."""
        wait_until(lambda: name in self._running, f"{name} Running in the API", pause_seconds=0.001)
        return self._running[name]

    def _follow(self) -> None:
        for event in self._client.watch("pods", namespace="default"):
            pod = event["object"]
            if pod.get("status", {}).get("phase") == "Running":
                self._running.setdefault(pod["metadata"]["name"], time.time_ns())


def api_pod(bench: BenchLab, sizes: Sizes) -> Result:
    """One pod on an idle agent: from its binding in the API to Running there."""
    floors, ours = [], []
    with cluster_lab(bench) as lab:
        watch = Watch(lab)
        assert lab.agent.daemon is not None
        for number in range(sizes.single_runs + 1):
            lab.agent.daemon.pause()
            floor = asyncio.run(bench_floor.measure(bench.containerd.endpoint, bench.floor_pods(1), 1))
            lab.agent.daemon.resume()
            time.sleep(0.7)
            name = f"api-{number}"
            began_ns = lab.bind([name])
            seen_ns = watch.wait(name)
            lab.remove([name])
            time.sleep(0.3)
            if number:  # the first warms both
                floors.append(floor.seconds * 1000)
                ours.append((seen_ns - began_ns) / 1e6)
        note = lab.note
    return Result(
        name="api-pod",
        figures=over_floor("bound in the API to Running there", ours, floors, ONE_POD_MILLISECONDS),
        series={"floor": floors, "agent": ours},
        notes=(note,),
        measured_at=now(),
    )


def api_pods(bench: BenchLab, sizes: Sizes) -> Result:
    """Many pods that are bound at once."""
    count = max(sizes.pods)
    floors: dict[int, list[float]] = {callers: [] for callers in bench_floor.CALLERS}
    ours = []
    for run in range(sizes.runs):
        for callers, rates in floors.items():
            ready = bench.floor_pods(count)
            found = asyncio.run(bench_floor.measure(bench.containerd.endpoint, ready, callers))
            rates.append(count / found.seconds)
        with cluster_lab(bench) as lab, bench.containerd.cri() as cri:
            names = [f"many-{run}-{number}" for number in range(count)]
            began_ns = lab.bind(names)
            started = wait_running(cri, names, pause_seconds=0.5, suffix="")
            ours.append(count * 1e9 / (max(started.values()) - began_ns))
            lab.remove(names)
            note = lab.note
        print(f"   {count} pods of the API: {ours[-1]:.2f}/s", flush=True)
    best = max(floors, key=lambda callers: median(floors[callers]))
    floor, rate = median(floors[best]), median(ours)
    return Result(
        name="api-pods",
        figures=(
            Figure(
                label=f"{count} pods bound at once",
                value=rate,
                unit="pods/s",
                goal=f"≥ {SHARE_OF_FLOOR:g} x floor",
                is_met=rate / floor >= SHARE_OF_FLOOR,
                floor=floor,
                ratio=rate / floor,
                samples=tuple(ours),
            ),
        ),
        series={"floor": floors[best], "agent": ours},
        notes=(note,),
        measured_at=now(),
    )


def api_rest(bench: BenchLab, sizes: Sizes) -> Result:
    """A node at rest with many pods of the API: its CPU time, its requests, its memory. Counted by the double."""
    names = [f"rest-{number}" for number in range(sizes.idle_pods)]
    with cluster_lab(bench, real=False) as lab, bench.containerd.cri() as cri:
        assert isinstance(lab.api, ApiServerDouble)
        lab.bind(names)
        wait_running(cri, names, pause_seconds=0.5, suffix="")
        time.sleep(min(20.0, sizes.idle_seconds))
        lab.api.requests.clear()
        cpu, seconds = cpu_during(lab.agent.pid, sizes.idle_seconds)
        asked = len(lab.api.requests.all(user=f"system:node:{NODE}"))
        memory = resident_mib(lab.agent.pid) * 1.048576
        lab.remove(names)
    per_minute = round(asked * 60 / seconds, 1)
    return Result(
        name="api-rest",
        figures=(
            rest_figure(f"{sizes.idle_pods} pods of the API", cpu, seconds, CPU_SECONDS_PER_MINUTE),
            Figure(
                label=f"requests to the API server at rest, {sizes.idle_pods} pods",
                value=per_minute,
                unit="1/min",
                goal=f"≤ {REQUESTS_PER_MINUTE:g}",
                is_met=per_minute <= REQUESTS_PER_MINUTE,
            ),
            Figure(
                label=f"resident memory, {sizes.idle_pods} pods of the API",
                value=round(memory, 1),
                unit="MB",
                goal=f"≤ {RESIDENT_MB:g}",
                is_met=memory <= RESIDENT_MB,
            ),
        ),
        measured_at=now(),
    )


@contextmanager
def cluster_lab(bench: BenchLab, *, real: bool = True) -> Iterator[ClusterLab]:
    """An API server and a Ready node. `real`: a kube-apiserver if there is one."""
    directory = Path(bench.lab.base_dir) / f"api-{time.monotonic_ns()}"
    server = ApiServerDouble if not real or missing_binaries() else KubeApiServer
    with server(directory) as api:
        try:
            api.admin.create("serviceaccounts", {"metadata": {"name": "default"}}, namespace="default")
        except StatusError as error:
            if error.code != 409:
                raise
        agent = bench.agent(flags=[f"--kubeconfig={api.node_kubeconfig(NODE)}"])
        with agent:
            wait_ready(agent)
            yield ClusterLab(bench=bench, api=api, agent=agent)
