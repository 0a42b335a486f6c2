"""Benchmark of node remedy: a controller of many nodes whose agents report their status, and the time of a decision.

The nodes are objects of the API double, which is another thread of this process; their writes are not part of the figures.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubeletx_testing.apiserver import ApiServerDouble

from .idle import cpu_seconds, resident_mib, rest_figure
from .model import Result, Sizes, figure, now

REPORT_SECONDS = 10.0
PERIOD_SECONDS = 3
CPU_SECONDS_PER_MINUTE = 6.0
"""A tenth of a core."""
RESIDENT_MIB = 150.0
DECISION_SECONDS = 1.0
FENCES = "/apis/ha.k8s.io/v1/nodefences"
CONFIGURATION = f"""
apiVersion: node-remedy/v1alpha
kind: Configuration
thresholdConfigs:
- nodeConditionType: Ready
  nodeConditionStatus: false
  nodeConditionPeriod: {PERIOD_SECONDS}s
  remedy1: {{name: cordon}}
"""


def remedy(sizes: Sizes) -> Result:
    """Measure a controller at rest beside nodes that report, and decisions about nodes that fail one after the other."""
    with tempfile.TemporaryDirectory() as base, _cluster(Path(base), sizes.fleet_nodes) as cluster:
        cluster.report(REPORT_SECONDS / 2)
        before, began = cpu_seconds(cluster.pid), time.monotonic()
        cluster.report(sizes.idle_seconds)
        cpu, seconds = cpu_seconds(cluster.pid) - before, time.monotonic() - began
        memory = resident_mib(cluster.pid)
        delays = [cluster.decision(f"node-{number}") for number in range(sizes.runs)]
    return Result(
        name="remedy",
        figures=(
            rest_figure(f"a controller of {sizes.fleet_nodes} nodes", cpu, seconds, CPU_SECONDS_PER_MINUTE),
            figure("resident memory of the controller", "MiB", memory, at_most=RESIDENT_MIB, digits=1),
            figure("decision after the end of the period", "s", delays, at_most=DECISION_SECONDS, digits=2),
        ),
        notes=(f"each node writes its status every {REPORT_SECONDS:g} s",),
        measured_at=now(),
    )


class _Cluster:
    def __init__(self, api: ApiServerDouble, nodes: int, pid: int) -> None:
        self.pid = pid
        self._api = api
        self._names = itertools.cycle([f"node-{number}" for number in range(nodes)])
        self._pause = REPORT_SECONDS / nodes

    def report(self, seconds: float) -> None:
        """Let the nodes write their status, one after the other, for `seconds`."""
        began = time.monotonic()
        for count in itertools.count(1):
            write_status(self._api, next(self._names), "True", at="2026-01-01T00:00:00Z")
            left = began + count * self._pause - time.monotonic()
            if time.monotonic() - began >= seconds:
                return
            time.sleep(max(0.0, left))

    def decision(self, name: str) -> float:
        """Let a node fail, and return the seconds from the end of its period to the beginning of its isolation."""
        at = datetime.now(UTC).replace(microsecond=0)
        write_status(self._api, name, "False", at=at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            reply = self._api.admin.send("GET", f"{FENCES}/node-fence-{name}")
            if reply.code == 200 and reply.json.get("status", "New") != "New":
                return max(0.0, time.time() - at.timestamp() - PERIOD_SECONDS)
            time.sleep(0.01)
        raise TimeoutError(f"{name} was not treated within 60 s")


def write_status(api: ApiServerDouble, name: str, status: str, *, at: str) -> None:
    """Write the Ready condition of a node with a new heartbeat."""
    heartbeat = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": status, "lastTransitionTime": at, "lastHeartbeatTime": heartbeat}
    api.admin.patch("nodes", name, {"status": {"conditions": [ready]}}, subresource="status")


@contextmanager
def _cluster(base: Path, nodes: int) -> Iterator[_Cluster]:
    (base / "remedy.yaml").write_text(CONFIGURATION)
    with ApiServerDouble(base / "api") as api:
        for number in range(nodes):
            node: dict[str, Any] = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"node-{number}"},
            }
            api.admin.create("nodes", node)
            write_status(api, f"node-{number}", "True", at="2026-01-01T00:00:00Z")
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kubeletx.remedy",
                f"--kubeconfig={api.admin_kubeconfig()}",
                f"--config={base}/remedy.yaml",
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while api.admin.send("GET", FENCES).code != 200:
                time.sleep(0.1)
            yield _Cluster(api, nodes, process.pid)
        finally:
            process.terminate()
            process.wait(30)
