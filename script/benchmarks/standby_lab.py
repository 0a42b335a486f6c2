"""Parts that the benchmarks of standby share: an agent that they control, pods that answer, and the freezer's files.

A pod that answers runs ``nc -e cat``, which returns what its connection receives. The bytes are sent before the thaw
and wait in the socket of the frozen process, so that the answer comes as soon as it gets CPU time again. Benchmark,
agent and pods share one monotonic clock.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import msgspec

from kubeletx.api import names
from kubeletx_testing.lab import CriCalls, PrivateAgent, pod_manifest
from kubeletx_testing.lab.cgroups import list_container_cgroups
from kubeletx_testing.lab.process import LabError

from .lab import FIRST, LIMITS, NODE, ROOT, SECOND, BenchLab, wait_until
from .standby_agent import SOCKET_VARIABLE, Done, Order

ECHO_PORT: Final = 7
ECHO: Final = ("sh", "-c", f"trap 'exit 0' TERM; nc -ll -p {ECHO_PORT} -e cat & wait")
QUARK, PAUSE = "quark", "pause"
"""Names of the agent's runtimes: strategy freezer on the first containerd, and strategy pause on the second."""
MAX_PODS: Final = 500
ORDER_SECONDS: Final = 600.0
"""Deadline of an order."""
_VERSION_1 = {"FROZEN\n": True, "FREEZING\n": False, "THAWED\n": False}


class StandbyAgent(PrivateAgent):
    """A private agent that also takes the orders of `standby_agent`."""

    _control: socket.socket | None = None
    _answers: BinaryIO | None = None

    def argv(self) -> list[str]:
        """Return the command line of `standby_agent`."""
        return [sys.executable, "-m", "script.benchmarks.standby_agent", *super().argv()[1:]]

    @property
    def control_path(self) -> Path:
        """Path of the control socket."""
        return self.lab.base_dir / "control.sock"

    def begin(self, verb: str, pods: Iterable[str]) -> None:
        """Give an order without waiting for its answer; `end` returns it."""
        if self._control is None:
            self._control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._control.settimeout(ORDER_SECONDS)
            self._control.connect(str(self.control_path))
            self._answers = self._control.makefile("rb")
        self._control.sendall(msgspec.json.encode(Order(verb=verb, pods=tuple(pods))) + b"\n")

    def end(self) -> Done:
        """Wait for the answer to the order that `begin` gave. Raises LabError if it failed."""
        assert self._answers is not None
        answer = self._answers.readline()
        if not answer:
            raise LabError("the agent ended while it carried out an order")
        done = msgspec.json.decode(answer, type=Done)
        if done.error:
            raise LabError(f"the agent failed to carry out an order: {done.error}")
        return done

    def order(self, verb: str, pods: Iterable[str]) -> Done:
        """Give an order, and wait for its answer. Raises LabError if it failed."""
        self.begin(verb, pods)
        return self.end()

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def stop(self, *, grace_seconds: float = 20) -> None:
        """Close the connection of the orders, and stop the agent."""
        if self._control is not None and self._answers is not None:
            self._answers.close()
            self._control.close()
        self._control = self._answers = None
        super().stop(grace_seconds=grace_seconds)


def standby_agent(bench: BenchLab, *, flags: Sequence[str] = ()) -> StandbyAgent:
    """Make an agent, not started, with runtimes `QUARK` and `PAUSE`."""
    path = bench.lab.base_dir / "control.sock"
    path.unlink(missing_ok=True)
    return StandbyAgent(
        bench.lab,
        manifest_dir=bench.manifests,
        node_name=NODE,
        endpoints=endpoints(bench),
        flags=(f"--max-pods={MAX_PODS}", *flags),
        env={SOCKET_VARIABLE: str(path), "PYTHONPATH": str(ROOT)},
    )


def endpoints(bench: BenchLab) -> str:
    """Value of --container-runtime-endpoint for runtimes `QUARK` and `PAUSE`."""
    return (
        f"container:{QUARK}:{bench.lab[FIRST].endpoint}?handler=runc;"
        f"container:{PAUSE}:{bench.lab[SECOND].endpoint}?handler=runc&plugin=quark&strategy=pause"
    )


def echo_manifest(name: str, *, runtime: str = QUARK, standby: str = "") -> dict[str, Any]:
    """Manifest of a pod that sends back what it receives on `ECHO_PORT`. `standby`: value of the annotation."""
    return pod_manifest(
        name,
        runtime=runtime,
        command=ECHO,
        container={"resources": LIMITS},
        metadata=annotated(standby),
    )


def annotated(standby: str) -> dict[str, Any]:
    """Metadata with annotation ``kubeletx.io/standby``; empty for an empty value."""
    return {"annotations": {names.STANDBY: standby}} if standby else {}


class Freezer:
    """The freezer of one container, by bare reads and writes of its cgroup's files."""

    def __init__(self, container_id: str) -> None:
        """`container_id`: of a container that runs."""
        cgroups = list_container_cgroups({container_id})
        version_1 = [cgroup / "freezer.state" for cgroup in cgroups if (cgroup / "freezer.state").exists()]
        version_2 = [cgroup / "cgroup.freeze" for cgroup in cgroups if (cgroup / "cgroup.freeze").exists()]
        self._is_old = bool(version_1)
        self._file = (version_1 or version_2)[0]

    def write(self, *, frozen: bool) -> None:
        """Write the file, as plugins do, and do not wait."""
        words = ("THAWED", "FROZEN") if self._is_old else ("0", "1")
        with os.fdopen(os.open(self._file, os.O_WRONLY), "w") as file:
            file.write(words[frozen])

    def is_frozen(self) -> bool:
        """Return True if all processes are frozen."""
        if self._is_old:
            return _VERSION_1[self._file.read_text()]
        return "frozen 1" in (self._file.parent / "cgroup.events").read_text()

    def wait(self, *, frozen: bool) -> None:
        """Wait until all processes are frozen, or not."""
        wait_until(lambda: self.is_frozen() is frozen, "change of a freezer", pause_seconds=0.001)


def wait_all(freezers: Iterable[Freezer], *, frozen: bool) -> int:
    """Wait until all are frozen, or none; returns the monotonic nanoseconds then."""
    waiting = list(freezers)
    deadline = time.monotonic() + 120
    while waiting:
        waiting = [freezer for freezer in waiting if freezer.is_frozen() is not frozen]
        if time.monotonic() > deadline:
            raise LabError(f"{len(waiting)} containers did not change")
        if waiting:
            time.sleep(0.001)
    return time.monotonic_ns()


def containers(cri: CriCalls, pods: Iterable[str]) -> dict[str, str]:
    """Return the ids of the running containers, by pod name."""
    wanted = {f"{name}-{NODE}": name for name in pods}
    running = cri.call("ListContainers", filter={"state": {"state": 1}}).containers
    return {
        wanted[container.labels["io.kubernetes.pod.name"]]: container.id
        for container in running
        if container.labels["io.kubernetes.pod.name"] in wanted
    }


def addresses(agent: PrivateAgent, pods: Iterable[str]) -> dict[str, str]:
    """Return the IP addresses of pods, by name; waits until the agent shows them."""
    wanted = {f"{name}-{NODE}": name for name in pods}
    found: dict[str, str] = {}

    def all_known() -> bool:
        for pod in agent.pods():
            if pod.metadata.name in wanted and pod.status.pod_ip:
                found[wanted[pod.metadata.name]] = pod.status.pod_ip
        return len(found) == len(wanted)

    wait_until(all_known, "addresses of the pods", pause_seconds=0.2)
    return found


@contextmanager
def connections(ips: Mapping[str, str]) -> Iterator[dict[str, socket.socket]]:
    """Context manager: a connection to each pod that answers, by name; each has answered once."""
    with ExitStack() as stack:
        found = {}
        for name, address in ips.items():
            found[name] = stack.enter_context(connect(address, ECHO_PORT))
            found[name].sendall(b".")
            receive(found[name])
        yield found


def connect(address: str, port: int, *, seconds: float = 30) -> socket.socket:
    """Connect to a server that may not listen yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            client = socket.create_connection((address, port), timeout=seconds)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
        else:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return client


def receive(client: socket.socket) -> int:
    """Wait for an answer; returns the monotonic nanoseconds then."""
    data = client.recv(4096)
    at = time.monotonic_ns()
    if not data:
        raise LabError("a pod closed its connection instead of answering")
    return at
