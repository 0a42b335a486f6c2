"""Benchmarks of a cluster's node: pods that the API server binds to it, against the floor of static pods, and at rest.

The API server is a real kube-apiserver where KUBEBUILDER_ASSETS names one, else the double in a thread of this
process; each result says which. Both run on the measured machine and use its processors.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPSConnection
from itertools import repeat
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from kubeletx_testing.apiserver import ApiServerDouble, StatusError
from kubeletx_testing.lab import PrivateAgent
from kubeletx_testing.lab.kube_apiserver import KubeApiServer, missing_binaries
from kubeletx_testing.lab.process import LabError

from .floor import CALLERS, measure
from .idle import cpu_during, resident_mib, rest_figure
from .lab import NODE, BenchLab, manifest, wait_ready, wait_running, wait_until
from .model import Result, Sizes, figure, now, over_floor
from .pods import Run, fastest, floor_start, start_figures

ONE_POD_MILLISECONDS = 60.0
SHARE_OF_FLOOR = 0.9
CPU_SECONDS_PER_MINUTE = 0.8
REQUESTS_PER_MINUTE = 30.0
RESIDENT_MB = 120.0
_AT_ONCE = 8

ApiServer = ApiServerDouble | KubeApiServer


class ClusterLab(msgspec.Struct, kw_only=True):
    """A started API server, and an agent that is registered there as a node."""

    bench: BenchLab
    api: ApiServer
    agent: PrivateAgent

    def bind(self, names: Sequence[str]) -> int:
        """Create pods that are already bound to the node; returns the wall-clock nanoseconds before the first request.

        Connections are opened before that, as schedulers and controllers keep theirs open.
        """
        callers = min(_AT_ONCE, len(names))
        with ExitStack() as stack:
            connections = [stack.enter_context(closing(self._connect())) for _ in range(callers)]
            shares = [[_bound(name) for name in names[caller::callers]] for caller in range(callers)]
            pool = stack.enter_context(ThreadPoolExecutor(callers))
            headers = {"Content-Type": "application/json", **self.api.admin.headers}
            began_ns = time.time_ns()
            list(pool.map(_create_all, connections, shares, repeat(headers)))
        return began_ns

    def _connect(self) -> HTTPSConnection:
        address = urlsplit(self.api.url)
        made = HTTPSConnection(address.hostname or "", address.port, context=self.api.admin.tls, timeout=60)
        made.connect()
        return made

    def remove(self, names: Sequence[str]) -> None:
        """Delete these pods and wait until the agent has no pods."""
        for name in names:
            self.api.admin.delete("pods", name, namespace="default", gracePeriodSeconds=1)
        wait_until(lambda: not self.agent.pods(), "removal of all pods", pause_seconds=0.2)


def _bound(name: str) -> bytes:
    body = manifest(name)
    spec = {**body["spec"], "nodeName": NODE, "automountServiceAccountToken": False}
    return msgspec.json.encode({**body, "spec": spec})


def _create_all(connection: HTTPSConnection, pods: Sequence[bytes], headers: dict[str, str]) -> None:
    for pod in pods:
        connection.request("POST", "/api/v1/namespaces/default/pods", pod, headers)
        with connection.getresponse() as response:
            answer = response.read()
            if response.status != 201:
                raise LabError(f"a pod was not made: {answer.decode()}")


class Watch:
    """Watches pods in the API, in a thread of its own, and records when each becomes Running."""

    def __init__(self, lab: ClusterLab) -> None:
        self._client = lab.api.admin
        self._running: dict[str, int] = {}
        threading.Thread(target=self._follow, daemon=True).start()

    def wait(self, name: str) -> int:
        """Wait until the pod is Running in the API; returns the wall-clock nanoseconds at which that was received."""
        wait_until(lambda: name in self._running, f"{name} Running in the API", pause_seconds=0.001)
        return self._running[name]

    def _follow(self) -> None:
        for event in self._client.watch("pods", namespace="default"):
            pod = event["object"]
            if pod.get("status", {}).get("phase") == "Running":
                self._running.setdefault(pod["metadata"]["name"], time.time_ns())


def api_pod(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure one pod on an idle agent: from its creation in the API, bound to the node, until it is Running there."""
    floors, ours = [], []
    with cluster_lab(bench) as lab:
        watch = Watch(lab)
        assert lab.agent.daemon is not None
        for number in range(sizes.single_runs + 1):
            lab.agent.daemon.pause()
            floor = asyncio.run(measure(bench.containerd.endpoint, bench.floor_pods(1), 1))
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
        note = note_of(lab.api)
    return Result(
        name="api-pod",
        figures=over_floor("bound in the API to Running there", ours, floors, ONE_POD_MILLISECONDS),
        series={"floor": floors, "agent": ours},
        notes=(note,),
        measured_at=now(),
    )


def api_pods(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure many pods that are created at once, bound to the node."""
    count = max(sizes.pods)
    floors: dict[int, list[Run]] = {callers: [] for callers in CALLERS}
    ours: list[Run] = []
    with api_server(bench) as api:  # one for all: what it does after its own start is not measured
        note = note_of(api)
        for number in range(sizes.runs):
            for callers, runs in floors.items():
                runs.append(floor_start(bench, count, callers))
            run = _start_bound(bench, api, [f"many-{number}-{pod}" for pod in range(count)])
            ours.append(run)
            print(
                f"   {count} pods of the API: {count / run.seconds:.2f}/s, CPU {run.cpu_seconds / count * 1000:.0f} ms each",
                flush=True,
            )
    floor = floors[fastest(floors)]
    return Result(
        name="api-pods",
        figures=tuple(
            start_figures("pods bound at once", "pods of the API", count, ours, floor, SHARE_OF_FLOOR)
        ),
        series={
            "floor": [count / run.seconds for run in floor],
            "agent": [count / run.seconds for run in ours],
        },
        notes=(note,),
        measured_at=now(),
    )


def _start_bound(bench: BenchLab, api: ApiServer, names: Sequence[str]) -> Run:
    """Create bound pods on a new agent; measures from the first creation to the last container's start."""
    with node_of(bench, api) as lab, bench.containerd.cri() as cri:
        cpu = bench.cpu_seconds()
        began_ns = lab.bind(names)
        started = wait_running(cri, names, pause_seconds=0.5, suffix="")
        cpu = bench.cpu_seconds() - cpu
        lab.remove(names)
    seconds = sorted((at - began_ns) / 1e9 for at in started.values())
    return Run(seconds[-1], cpu, seconds)


def api_rest(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure a node at rest with many pods of the API: CPU time, memory, and requests as the double counts them."""
    names = [f"rest-{number}" for number in range(sizes.idle_pods)]
    with cluster_lab(bench, real=False) as lab, bench.containerd.cri() as cri:
        assert isinstance(lab.api, ApiServerDouble)
        lab.api.requests.clear()
        lab.bind(names)
        wait_running(cri, names, pause_seconds=0.5, suffix="")
        time.sleep(min(20.0, sizes.idle_seconds))
        starting = len(lab.api.requests.all(user=f"system:node:{NODE}"))
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
            figure(
                f"requests to the API server for the start of a pod, {sizes.idle_pods} at once",
                "requests",
                starting / sizes.idle_pods,
                digits=2,
            ),
            figure(
                f"requests to the API server at rest, {sizes.idle_pods} pods",
                "1/min",
                per_minute,
                at_most=REQUESTS_PER_MINUTE,
            ),
            figure(
                f"resident memory, {sizes.idle_pods} pods of the API",
                "MB",
                memory,
                at_most=RESIDENT_MB,
                digits=1,
            ),
        ),
        measured_at=now(),
    )


@contextmanager
def cluster_lab(bench: BenchLab, *, real: bool = True) -> Iterator[ClusterLab]:
    """Context manager: starts an API server and a Ready node. `real`: with kube-apiserver if it is installed."""
    with api_server(bench, real=real) as api, node_of(bench, api) as lab:
        yield lab


@contextmanager
def api_server(bench: BenchLab, *, real: bool = True) -> Iterator[ApiServer]:
    """Context manager: starts an API server with the objects that a pod needs.

    `real`: kube-apiserver if it is installed.
    """
    directory = Path(bench.lab.base_dir) / f"api-{time.monotonic_ns()}"
    server = ApiServerDouble if not real or missing_binaries() else KubeApiServer
    with server(directory) as api:
        try:
            api.admin.create("serviceaccounts", {"metadata": {"name": "default"}}, namespace="default")
        except StatusError as error:
            if error.code != 409:
                raise
        yield api


@contextmanager
def node_of(bench: BenchLab, api: ApiServer) -> Iterator[ClusterLab]:
    """Context manager: starts an agent as a node of this API server, and waits until it is ready."""
    agent = bench.agent(flags=[f"--kubeconfig={api.node_kubeconfig(NODE)}", "--cluster-dns=10.96.0.10"])
    with agent:
        wait_ready(agent)
        yield ClusterLab(bench=bench, api=api, agent=agent)


def note_of(api: ApiServer) -> str:
    """Text for the results that says which kind of API server was used."""
    return "with the API server double" if isinstance(api, ApiServerDouble) else "with a real kube-apiserver"
