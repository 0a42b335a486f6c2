"""The attacked agent: a private process with two runtimes and a witness pod, and the checks after each round.

The witness runs on the sound runtime. Whatever is attacked, its container must stay the same one, Running and
Ready with no restart, the agent must stay the same process, answer its admin socket and stay small.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, PrivateAgent, pod_manifest, put_manifest
from kubeletx_testing.lab.agent import is_ready
from kubeletx_testing.lab.process import LabError

from .servers import SOUND, Servers, until

WITNESS = "witness"
KEPT_LOG = Path(__file__).resolve().parents[2] / ".demo" / "logs" / "attack.log"
"""The last agent's log."""
MEMORY_BYTES = 300 << 20
"""Maximum of the agent's resident memory during an attack; it has about 100 MiB when idle."""
ANSWER_SECONDS = 5.0
"""Maximum time of the admin socket's answer to a list of pods, on a busy machine."""
READY_SECONDS = 60.0


class Broken(Exception):
    """Raised when an attack succeeded; the message says what was seen."""


class Target:
    """One attacked agent with its manifests, its runtimes (`servers`) and the witness pod."""

    def __init__(self, place: Path, servers: Servers, flags: Sequence[str] = ()) -> None:
        self.place = place
        self.servers = servers
        self.manifests = place / "manifests"
        self.manifests.mkdir()
        network = SimpleNamespace(conf_dir=place / "cni", bin_dir=place / "cni-bin")
        lab = cast("Lab", SimpleNamespace(base_dir=place, network=network, endpoints=servers.endpoints))
        self.agent = PrivateAgent(
            lab,
            manifest_dir=self.manifests,
            node_name="target",
            flags=("--file-check-frequency=1s", "--max-pods=1000", *flags),
        )
        self.slowest_answer = 0.0
        self._pid = 0
        self._witness = ""

    def start(self) -> None:
        """Start the agent and wait until the witness runs."""
        self.put(WITNESS)
        self.agent.start()
        self._pid = self.agent.pid
        self._witness = container_id(self.agent.wait_for(WITNESS, timeout_seconds=READY_SECONDS))

    def put(self, name: str, runtime: str = SOUND, **parts: Any) -> Path:
        """Write the manifest of a plain pod; returns its path."""
        return put_manifest(self.manifests, pod_manifest(name, runtime=runtime, **parts))

    def restarted(self) -> None:
        """Accept the agent's new process, after the attack itself has restarted it."""
        self._pid = self.agent.pid

    def pods(self) -> tuple[Pod, ...]:
        """List all pods, and record the time of the slowest answer in `slowest_answer`."""
        began = time.monotonic()
        pods = self.agent.pods()
        self.slowest_answer = max(self.slowest_answer, time.monotonic() - began)
        return pods

    def wait_pods(self, names: set[str], *, seconds: float = READY_SECONDS) -> None:
        """Wait until the pods are exactly those of these manifests and the witness, all ready.

        Raises Broken after `seconds`.
        """
        wanted = {f"{name}-target" for name in {*names, WITNESS}}

        def is_so() -> bool:
            pods = self.pods()
            return {pod.metadata.name for pod in pods} == wanted and all(is_ready(pod) for pod in pods)

        if not until(is_so, seconds=seconds):
            seen = {pod.metadata.name: (pod.status.phase, is_ready(pod)) for pod in self.pods()}
            raise Broken(f"after {seconds:g} s the pods are {_short(seen)}; wanted ready: {sorted(wanted)}")

    def check(self) -> None:
        """Raise Broken if the agent ended, is slow, too large or logged a bug, or if the witness was restarted."""
        if not self.agent.is_running or self.agent.pid != self._pid:
            raise Broken(f"the agent ended by itself; its log ends with:\n{self.agent.log_tail(30)}")
        try:
            pods = self.pods()
        except LabError as err:
            raise Broken(f"the admin socket does not answer: {err}") from err
        witness = next((pod for pod in pods if pod.metadata.name == f"{WITNESS}-target"), None)
        if witness is None or not is_ready(witness) or container_id(witness) != self._witness:
            raise Broken(f"the witness is no longer what it was: {witness.status if witness else 'unknown'}")
        if (peak := self.peak_bytes()) > MEMORY_BYTES:
            raise Broken(f"the agent took {peak >> 20} MiB; {MEMORY_BYTES >> 20} MiB are allowed")
        if self.slowest_answer > ANSWER_SECONDS:
            raise Broken(f"a list of pods took {self.slowest_answer:.1f} s; {ANSWER_SECONDS:g} s are allowed")
        if bug := re.search(r"^.*(with a bug|Traceback)", log := self.log(), re.MULTILINE):
            raise Broken(f"the agent's log tells of a bug:\n{log[bug.start() : bug.start() + 6000]}")

    def log(self) -> str:
        """The agent's whole log."""
        return self.agent.log_path.read_text(errors="replace")

    def peak_bytes(self) -> int:
        """Peak of the agent's resident memory (VmHWM), in bytes."""
        status = Path(f"/proc/{self.agent.pid}/status").read_text()
        return int(next(line for line in status.split("\n") if line.startswith("VmHWM:")).split()[1]) << 10

    def stop(self) -> None:
        """End the agent, keep its log and remove its other files."""
        self.agent.stop()
        if self.agent.log_path.exists():
            KEPT_LOG.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.agent.log_path, KEPT_LOG)
        self.agent.remove_files()


@contextlib.contextmanager
def target(*flags: str) -> Iterator[Target]:
    """Context manager: yields a started target in a temporary directory, and stops it at the end."""
    with tempfile.TemporaryDirectory(prefix="kx-attack-") as name, Servers(Path(name)) as servers:
        node = Target(Path(name), servers, flags)
        try:
            node.start()
            yield node
        finally:
            node.stop()


def container_id(pod: Pod) -> str:
    """Container id and restart count of the pod's first container."""
    first = pod.status.container_statuses[0]
    return f"{first.container_id} {first.restart_count}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 1000 else f"{text[:1000]}…"
