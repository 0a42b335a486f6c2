"""Benchmarks of freezing and waking pods: one pod until its process answers, and many pods at once.

Floor and agent take turns. The floor of a wake is a bare write of the freezer's file, or containerd's own Resume; that
of many pods is the plugin's own call for each container, all at once, in the same agent process.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

import grpc
import msgspec

from kubeletx.cri.stubs import containerd_tasks_pb2 as tasks
from kubeletx_testing.lab import pod_manifest

from .lab import FIRST, LIMITS, SECOND, BenchLab, wait_ready, wait_running
from .model import Figure, Result, Sizes, figure, median, now, percentile
from .standby_lab import (
    PAUSE,
    QUARK,
    Freezer,
    StandbyAgent,
    addresses,
    annotated,
    connections,
    containers,
    echo_manifest,
    receive,
    standby_agent,
    wait_all,
)

WAKE_MILLISECONDS: Final = 2.0
"""Goal of a wake by the freezer, over one scheduling turn."""
LAST_WAKE_MILLISECONDS: Final = 10.0
PAUSE_MILLISECONDS: Final = 3.0
"""Goal of a wake by containerd's Resume, over the bare call."""
SHARE_OF_FLOOR: Final = 0.8
WAKING_PODS: Final = 4


def standby_wake(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure how soon a frozen process answers: after a bare write or call, a plugin's call, a request in the agent."""
    figures: list[Figure] = []
    series: dict[str, list[float]] = {}
    with standby_agent(bench) as agent:
        wait_ready(agent)
        for strategy, runtime, containerd in (("freezer", QUARK, FIRST), ("pause", PAUSE, SECOND)):
            names = [f"wake-{strategy}-{number}" for number in range(min(WAKING_PODS, sizes.wakes))]
            bench.put_manifests({name: echo_manifest(name, runtime=runtime) for name in names})
            with bench.lab[containerd].cri() as cri:
                wait_running(cri, names)
                ids = containers(cri, names)
            agent.order("wait running", names)
            with connections(addresses(agent, names)) as open_connections:
                pods = [_Pod(agent, name, open_connections[name], ids[name]) for name in names]
                if strategy == "freezer":
                    times = _wakes(pods, sizes.wakes, _Pod.wake_by_file)
                else:
                    with closing(_BareCalls(bench.lab[containerd].endpoint)) as bare:
                        times = _wakes(pods, sizes.wakes, bare.wake)
            bench.remove_pods(agent)
            figures += _wake_figures(strategy, times)
            series |= {f"{strategy} {way}": found for way, found in times.items()}
    return Result(
        name="standby-wake",
        figures=tuple(figures),
        series=series,
        notes=(
            "a scheduling turn: the answer of the same process while it is awake",
            "floor: a bare write of the freezer's file, or containerd's bare Resume, and the same answer",
        ),
        measured_at=now(),
    )


class _Pod:
    """A pod that answers, with each way to freeze and wake it. All wakes return milliseconds until the answer."""

    def __init__(self, agent: StandbyAgent, name: str, connection: socket.socket, container_id: str) -> None:
        self.container_id = container_id
        self._agent = agent
        self._names = (name,)
        self._connection = connection
        self._freezer = Freezer(container_id)

    def answer(self) -> float:
        """Return how long the awake process takes to answer."""
        began = time.monotonic_ns()
        self._connection.sendall(b".")
        return (receive(self._connection) - began) / 1e6

    def wake_bare(self, thaw: Callable[[], Any]) -> float:
        """Freeze by the agent, stop the agent, and thaw by a bare call. The call must not block."""
        self._freeze()
        assert self._agent.daemon is not None
        self._agent.daemon.pause()
        try:
            self._connection.sendall(b".")
            began = time.monotonic_ns()
            pending = thaw()
            answered = receive(self._connection)
            if pending is not None:
                pending.result()
        finally:
            self._agent.daemon.resume()
        self._agent.order("running", self._names)
        self._agent.order("wait running", self._names)
        return (answered - began) / 1e6

    def wake_by_file(self) -> float:
        """Thaw by a bare write."""
        return self.wake_bare(lambda: self._freezer.write(frozen=False))

    def wake_by_plugin(self) -> float:
        """Thaw by the plugin's own call, without the agent's knowledge."""
        return self._wake("thaw")

    def wake_by_agent(self) -> float:
        """Thaw by a request in the agent."""
        return self._wake("running")

    def _wake(self, verb: str) -> float:
        self._freeze()
        self._connection.sendall(b".")
        self._agent.begin(verb, self._names)
        answered = receive(self._connection)
        began = self._agent.end().began_ns
        self._agent.order("wait running", self._names)
        return (answered - began) / 1e6

    def _freeze(self) -> None:
        self._agent.order("standby", self._names)
        self._agent.order("wait standby", self._names)
        self._freezer.wait(frozen=True)


class _BareCalls:
    """The floor of strategy pause: calls of containerd's task service without the plugin."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint, options=[("grpc.enable_http_proxy", 0)])

    def wake(self, pod: _Pod) -> float:
        """Resume the pod's container by containerd's task service."""
        return pod.wake_bare(
            lambda: self._call("Resume", tasks.ResumeTaskRequest(container_id=pod.container_id))
        )

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _call(self, method: str, request: Any) -> Any:
        call = self._channel.unary_unary(
            f"/containerd.services.tasks.v1.Tasks/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=bytes,
        )
        return call.future(request, metadata=(("containerd-namespace", "k8s.io"),), timeout=30)


def _wakes(pods: Sequence[_Pod], count: int, bare: Callable[[_Pod], float]) -> dict[str, list[float]]:
    """Wake the pods `count` times in each way, one pod after the other; returns milliseconds by way."""
    ways: dict[str, Callable[[_Pod], float]] = {
        "turn": _Pod.answer,
        "floor": bare,
        "plugin": _Pod.wake_by_plugin,
        "agent": _Pod.wake_by_agent,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for pod in pods:  # the first wake of each way is a warm-up
        for wake in ways.values():
            wake(pod)
    for number in range(count):
        for way, wake in ways.items():
            times[way].append(round(wake(pods[number % len(pods)]), 4))
    for way, found in times.items():
        print(f"   {way}: p50 {median(found):.2f} ms, p99 {percentile(found, 0.99):.2f} ms", flush=True)
    return times


def _wake_figures(strategy: str, times: dict[str, list[float]]) -> list[Figure]:
    turn, floor = median(times["turn"]), median(times["floor"])
    figures = []
    for way, words in (("plugin", "from the plugin's call"), ("agent", "from a request in the agent")):
        p50 = median(times[way])
        if strategy == "freezer":
            goal, allowed = "≤ 2 ms + a scheduling turn", WAKE_MILLISECONDS + turn
        else:
            goal, allowed = "≤ floor + 3 ms", PAUSE_MILLISECONDS + floor
        figures.append(
            Figure(
                label=f"wake by {strategy}, {words}, p50",
                value=p50,
                unit="ms",
                goal=goal,
                is_met=p50 <= allowed,
                floor=floor,
                ratio=p50 / floor,
            )
        )
        p99 = percentile(times[way], 0.99)
        last = percentile(times["floor"], 0.99)
        is_limited = strategy == "freezer"
        figures.append(
            Figure(
                label=f"wake by {strategy}, {words}, p99",
                value=p99,
                unit="ms",
                goal=f"≤ {LAST_WAKE_MILLISECONDS:g}" if is_limited else "",
                is_met=p99 <= LAST_WAKE_MILLISECONDS if is_limited else None,
                floor=last,
                ratio=p99 / last,
            )
        )
    figures.append(figure(f"scheduling turn, beside {strategy}, p50", "ms", turn))
    return figures


class _Burst(msgspec.Struct):
    """Pods per second of one side. `shown`: until the agent shows all pods in the new state."""

    freeze: list[float] = []
    thaw: list[float] = []
    freeze_shown: list[float] = []
    thaw_shown: list[float] = []


def standby_burst(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure how fast many pods are frozen and thawed at once, until the kernel shows all of them so."""
    names = [f"burst-{number}" for number in range(sizes.burst_pods)]
    bare, ours = _Burst(), _Burst()
    with standby_agent(bench) as agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        bench.put_manifests({name: sleeping(name) for name in names})
        wait_running(cri, names)
        agent.order("wait running", names)
        freezers = [Freezer(one) for one in containers(cri, names).values()]
        for number in range(sizes.runs + 1):
            one, other = _Burst(), _Burst()
            _burst_by_plugin(agent, names, freezers, one)
            _burst_by_agent(agent, names, freezers, other)
            print(
                f"   freeze {one.freeze[0]:.0f}, {other.freeze[0]:.0f}/s; thaw {one.thaw[0]:.0f}, {other.thaw[0]:.0f}/s",
                flush=True,
            )
            if number:  # the first run is a warm-up
                for side, found in ((bare, one), (ours, other)):
                    for field in _Burst.__struct_fields__:
                        getattr(side, field).extend(getattr(found, field))
        bench.remove_pods(agent)
    count = len(names)
    return Result(
        name="standby-burst",
        figures=(
            figure(f"{count} pods frozen at once", "pods/s", ours.freeze, bare.freeze, share=SHARE_OF_FLOOR),
            figure(f"{count} pods thawed at once", "pods/s", ours.thaw, bare.thaw, share=SHARE_OF_FLOOR),
            figure("the same freeze, until the agent shows it", "pods/s", median(ours.freeze_shown)),
            figure("the same thaw, until the agent shows it", "pods/s", median(ours.thaw_shown)),
        ),
        series={
            "freeze": ours.freeze,
            "thaw": ours.thaw,
            "floor freeze": bare.freeze,
            "floor thaw": bare.thaw,
        },
        notes=("floor: the plugin's call for each container, all at once, in the same process",),
        measured_at=now(),
    )


def sleeping(name: str, *, standby: str = "") -> dict[str, Any]:
    """Manifest of a sleeping pod on the node's network. `standby`: value of the annotation; empty: none."""
    return pod_manifest(
        name,
        runtime=QUARK,
        container={"resources": LIMITS},
        spec={"hostNetwork": True},
        metadata=annotated(standby),
    )


def _burst_by_plugin(
    agent: StandbyAgent, names: Sequence[str], freezers: Sequence[Freezer], rates: _Burst
) -> None:
    for verb, state, found in (("freeze", "standby", rates.freeze), ("thaw", "running", rates.thaw)):
        agent.begin(verb, names)
        ended = wait_all(freezers, frozen=verb == "freeze")
        found.append(len(names) / ((ended - agent.end().began_ns) / 1e9))
        agent.order(f"wait {state}", names)


def _burst_by_agent(
    agent: StandbyAgent, names: Sequence[str], freezers: Sequence[Freezer], rates: _Burst
) -> None:
    for verb, found, shown in (
        ("standby", rates.freeze, rates.freeze_shown),
        ("running", rates.thaw, rates.thaw_shown),
    ):
        agent.begin(verb, names)
        ended = wait_all(freezers, frozen=verb == "standby")
        began = agent.end().began_ns
        found.append(len(names) / ((ended - began) / 1e9))
        shown.append(len(names) / ((agent.order(f"wait {verb}", names).ended_ns - began) / 1e9))
