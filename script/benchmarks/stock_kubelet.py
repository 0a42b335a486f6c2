"""Runs a stock kubelet without an API server, on the manifests and the containerd of the benchmarks.

Its configuration is a KubeletConfiguration file, as an operator writes one, with the same values that the
benchmarks' agent gets by flags. ``--kubelet`` takes every program that reads such a file, so ``kubeletx`` itself
too.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec

from kubeletx_testing.lab import sweep
from kubeletx_testing.lab.cgroups import remove_cgroups
from kubeletx_testing.lab.cni import network_name
from kubeletx_testing.lab.mounts import unmount_below
from kubeletx_testing.lab.process import Daemon
from kubeletx_testing.lab.registry import free_port
from kubeletx_testing.lab.tools import daemon_environment

from .lab import NODE, BenchLab, wait_until

_CGROUPS = Path("/sys/fs/cgroup")


class StockKubelet:
    """Context manager that runs a stock kubelet; its files are removed at the end."""

    def __init__(self, program: Path, bench: BenchLab) -> None:
        self._program = program
        self._bench = bench
        self._directory = bench.lab.base_dir / "kubelet"
        self._cgroup_root = f"{network_name(bench.lab.base_dir)}/kubelet"
        self._healthz_port = free_port()
        self._daemon = Daemon(
            name="kubelet", argv=self.argv(), directory=bench.lab.base_dir, env=daemon_environment()
        )

    def argv(self) -> list[str]:
        """Command line of the kubelet."""
        return [
            str(self._program),
            f"--config={self._directory / 'config.json'}",
            f"--root-dir={self._directory}",
            f"--cert-dir={self._directory / 'pki'}",
            f"--hostname-override={NODE}",
        ]

    def configuration(self) -> dict[str, object]:
        """Content of its configuration file. Source: KubeletConfiguration v1beta1 of Kubernetes v1.36."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": str(self._bench.manifests),
            "podLogsDir": str(self._directory / "pod-logs"),
            "containerRuntimeEndpoint": self._bench.containerd.endpoint,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup_root}",
            "enforceNodeAllocatable": ["none"],
            "failSwapOn": False,
            "failCgroupV1": False,
            "enableServer": False,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": self._healthz_port,
            "maxPods": 200,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }

    def remove_pods(self) -> None:
        """Remove all manifests and wait until no ready sandbox is left on the containerd; then remove stopped ones."""
        for path in self._bench.manifests.glob("*.json"):
            path.unlink()
        with self._bench.containerd.cri() as cri:
            wait_until(lambda: not cri.sandboxes(ready_only=True), "removal of all pods", pause_seconds=0.2)
            cri.remove_all()  # a kubelet removes stopped sandboxes later

    def __enter__(self) -> StockKubelet:
        self._directory.mkdir(parents=True)
        (self._directory / "config.json").write_bytes(msgspec.json.encode(self.configuration()))
        for top in (_CGROUPS, *_CGROUPS.iterdir()):  # a kubelet wants its cgroupRoot to be there
            if (top / "cgroup.procs").exists():
                (top / self._cgroup_root).mkdir(parents=True, exist_ok=True)
        self._daemon.start()
        self._daemon.wait_until(self._is_serving, what="answer at /healthz", timeout_seconds=60)
        time.sleep(2.5)  # as long as the benchmarks wait for the agent's start to be over
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._daemon.stop(grace_seconds=20)
        sweep.end_processes(sweep.list_processes(self._directory))
        unmount_below(self._directory)
        remove_cgroups(self._cgroup_root)
        sweep.remove_tree(self._directory)

    def _is_serving(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._healthz_port}/healthz", timeout=5
            ) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False
