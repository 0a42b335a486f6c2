"""The lab that the benchmarks with real daemons share: two containerds, and one agent at a time.

Floor and agent start the same pods: `floor_pods` makes from a manifest exactly the requests that the agent makes
from it, with the same labels, limits, mounts, log and cgroup directories. Their files are written before the clock
runs.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.api import Mount, RuntimeName
from kubeletx.kube.manifests.hashes import pod_hash
from kubeletx.pods.model.node_context import NodeContext
from kubeletx.pods.specs.inputs import SandboxInputs, UnitInputs
from kubeletx.pods.specs.sandbox import build_sandbox_spec
from kubeletx.pods.specs.unit import build_unit_spec
from kubeletx.static.manifest import ManifestReader
from kubeletx_testing.lab import CriCalls, Lab, PrivateAgent, PrivateContainerd, pod_manifest
from kubeletx_testing.lab.cni import network_name
from kubeletx_testing.lab.process import LabError

from .cpu import CpuAccount, cpu_account
from .floor import FloorPod

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / ".demo" / "bench"
NODE = "bench"
FIRST, SECOND = "containerd-a", "containerd-b"
LIMITS = {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}


class BenchLab(msgspec.Struct, kw_only=True):
    """A started lab with an empty manifest directory. `account`: CPU time of the lab."""

    lab: Lab
    manifests: Path
    account: CpuAccount

    @property
    def containerd(self) -> PrivateContainerd:
        """The containerd on which pods are measured."""
        return self.lab[FIRST]

    def cpu_seconds(self) -> float:
        """CPU seconds so far of everything that starts pods; 0 if the kernel does not account for them."""
        return self.account.seconds() or 0.0

    def agent(
        self,
        *,
        endpoints: str | None = None,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> PrivateAgent:
        """Make an agent, not started, for these endpoints; None: the first containerd only.

        `env`: added to the agent's environment.
        """
        return PrivateAgent(
            self.lab,
            manifest_dir=self.manifests,
            node_name=NODE,
            endpoints=endpoints or f"container:{FIRST}:{self.containerd.endpoint}",
            flags=("--max-pods=200", *flags),
            env=env,
        )

    def floor_pods(self, count: int) -> list[FloorPod]:
        """Make the requests that the agent would send to the first containerd."""
        directory = self.lab.base_dir / "floor"
        context = NodeContext(
            agent_id="floor",
            node_name=NODE,
            root_dir=directory,
            pod_logs_dir=directory / "logs",
            host_ips=("127.0.0.1",),
            cgroup_version=2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
            cgroup_root=network_name(self.lab.base_dir),
        )
        return [self._floor_pod(number, context) for number in range(count)]

    def _floor_pod(self, number: int, context: NodeContext) -> FloorPod:
        now = datetime.now(UTC)
        data = msgspec.json.encode(manifest(f"floor-{number}"))
        reader = ManifestReader(node_name=NODE)
        (pod,) = reader.read(data, origin=f"floor-{number}", source="file", seen_at=now).pods
        (container,) = pod.spec.containers
        (context.log_directory(pod) / container.name).mkdir(parents=True, exist_ok=True)
        files = context.root_dir / "pods" / pod.uid
        files.mkdir(parents=True, exist_ok=True)
        (files / "hosts").write_text("127.0.0.1 localhost\n")
        (files / "message").write_text("")
        sandbox = build_sandbox_spec(
            SandboxInputs(
                pod=pod,
                node=context,
                attempt=0,
                handler="",
                runtime_name=RuntimeName(FIRST),
                runtime_kind="containerd",
                workload_type="container",
                source="file",
                spec_hash=pod_hash(pod),
                cgroup_parent=f"/{context.cgroup_root}/floor/pod{pod.uid}",
            )
        )
        unit = build_unit_spec(
            UnitInputs(
                pod=pod,
                container=container,
                node=context,
                attempt=0,
                runtime_name=RuntimeName(FIRST),
            ),
            mounts=(
                Mount(source=str(files / "hosts"), target="/etc/hosts", selinux_relabel=True),
                Mount(source=str(files / "message"), target="/dev/termination-log", selinux_relabel=True),
            ),
        )
        return FloorPod(sandbox, (unit,))

    def pull_image(self, name: str = FIRST) -> None:
        """Pull the pods' image on this containerd."""
        with self.lab[name].cri() as cri:
            image = manifest("any")["spec"]["containers"][0]["image"]
            cri.call("PullImage", image={"image": image})

    def put_pods(self, names: Sequence[str], *, runtime: str | None = None) -> int:
        """Put manifests of benchmark pods in place at once; returns the wall-clock nanoseconds afterwards."""
        return self.put_manifests({name: manifest(name, runtime=runtime) for name in names})

    def put_manifests(self, manifests: Mapping[str, Mapping[str, object]]) -> int:
        """Write manifests (name → content) and rename them into place at once.

        Returns the wall-clock nanoseconds after the last rename.
        """
        ready = []
        for name, body in manifests.items():
            path = self.manifests.parent / f".{name}.json"
            path.write_bytes(msgspec.json.encode(body))
            ready.append((path, self.manifests / f"{name}.json"))
        for path, target in ready:
            path.rename(target)
        return time.time_ns()

    def remove_pods(self, agent: PrivateAgent) -> None:
        """Remove all manifests and wait until the agent has removed every pod."""
        for path in self.manifests.glob("*.json"):
            path.unlink()
        # Frozen pods are thawed first, and hundreds take minutes.
        wait_until(lambda: not agent.pods(), "removal of all pods", seconds=600, pause_seconds=0.2)


def manifest(name: str, *, runtime: str | None = None) -> dict[str, Any]:
    """Manifest of the pod that all benchmarks start: one container that sleeps, with requests and limits."""
    return pod_manifest(name, runtime=runtime, container={"resources": LIMITS})


def wait_until(
    is_so: Callable[[], bool], what: str, *, seconds: float = 120, pause_seconds: float = 0.02
) -> None:
    """Poll until `is_so` is true. Raises LabError, naming `what`, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise LabError(f"no {what} within {seconds} s")
        time.sleep(pause_seconds)


def wait_running(
    cri: CriCalls,
    names: Sequence[str],
    *,
    pause_seconds: float = 0.25,
    suffix: str = f"-{NODE}",
    seconds: float = 120,
) -> dict[str, int]:
    """Wait until the runtime lists a running container of each pod; returns pod name → startedAt in nanoseconds.

    The agent is not asked. `suffix`: ending of the pods' names on the node, which static pods have. Raises LabError after
    `seconds`.
    """
    wanted = {name + suffix for name in names}
    ids: dict[str, str] = {}

    def all_run() -> bool:
        running = cri.call("ListContainers", filter={"state": {"state": 1}}).containers
        ids.update({container.labels["io.kubernetes.pod.name"]: container.id for container in running})
        return wanted <= ids.keys()

    wait_until(all_run, f"start of {len(names)} pods", seconds=seconds, pause_seconds=pause_seconds)
    return {name: cri.call("ContainerStatus", container_id=ids[name]).status.started_at for name in wanted}


def wait_ready(agent: PrivateAgent) -> None:
    """Wait until every runtime of the agent is ready, and 2.5 s more for work that follows its start."""
    wait_until(lambda: all(runtime.status == "Ready" for runtime in agent.runtimes()), "ready runtimes")
    time.sleep(2.5)


@contextmanager
def bench_lab() -> Iterator[BenchLab]:
    """Context manager: starts the lab, with the image on both containerds; everything is removed afterwards."""
    with (
        cpu_account(network_name(BASE)) as account,
        Lab(BASE, containerds=(FIRST, SECOND), cache_dir=ROOT / ".cache" / "images") as lab,
    ):
        manifests = BASE / "manifests"
        manifests.mkdir()
        bench = BenchLab(lab=lab, manifests=manifests, account=account)
        bench.pull_image(FIRST)
        bench.pull_image(SECOND)
        yield bench


def is_open(path: Path) -> bool:
    """True if a process listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
