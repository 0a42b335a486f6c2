"""A plugin that pip installs while the agent runs is found by ``kubeletx runtime reload``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import Daemon, sweep
from tests.integration.support.survival import until

PROGRAM = str(Path(sys.executable).parent / "kubeletx")
PLUGIN = """\
from kubeletx.api import CONTAINER, hookimpl
from kubeletx_local_process.runtime import ProcessRuntime

@hookimpl
def kubeletx_register_runtimes(register):
    register("late", ProcessRuntime, workload_types=(CONTAINER,), schemes=("late",), default_claim=True)
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  runtimeServiceName: {runtime}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - {{name: main, image: none, command: [sh, -c, "echo $$$$ >> {pid_file}; while :; do sleep 1; done"]}}
"""


class Agent:
    """An agent whose Python also looks into `site`, where pip installs plugins while it runs."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.site, self.root_dir = work / "site", work / "root"
        self.site.mkdir()
        argv = [
            PROGRAM,
            f"--root-dir={self.root_dir}",
            "--container-runtime-endpoint=container:local:process:///",
            f"--pod-logs-dir={work / 'logs'}",
            "--hostname-override=node",
            "--healthz-port=0",
        ]
        environment = {**os.environ, "PYTHONPATH": str(self.site)}
        self.daemon = Daemon(name="agent", argv=argv, directory=work, env=environment)

    def cli(self, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, f"--root-dir={self.root_dir}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=input)

    def install(self, name: str, plugin: str) -> None:
        """Build a wheel of one module and let pip install it."""
        wheel = self.work / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            info = f"{name}-1.0.dist-info"
            archive.writestr(f"{name}.py", plugin)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(
                f"{info}/WHEEL",
                "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            )
            archive.writestr(f"{info}/entry_points.txt", f"[kubeletx]\n{name} = {name}\n")
            archive.writestr(f"{info}/RECORD", "")
        options = ["--no-index", "--no-deps", "--disable-pip-version-check", "--target", str(self.site)]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", *options, str(wheel)], check=True, timeout=120
        )

    def plugins(self) -> dict[str, Any]:
        return {one["name"]: one for one in json.loads(self.cli("plugins", "-o", "json").stdout)["items"]}

    def run_pod(self, name: str, runtime: str) -> str:
        """Apply a pod and wait for its process."""
        pid_file = self.work / f"{name}.pid"
        done = self.cli("apply", "-f", "-", input=POD.format(name=name, runtime=runtime, pid_file=pid_file))
        assert done.returncode == 0, done.stderr
        return until(lambda: pid_file.exists() and pid_file.read_text(), f"the process of {name}")

    def end_pods(self) -> None:
        """End the processes of the pods, which continue to run after the agent."""
        for path in self.work.glob("*.pid"):
            for pid in path.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def agent() -> Iterator[Agent]:
    work = Path(tempfile.mkdtemp(prefix="kubeletx-reload-"))
    one = Agent(work)
    one.daemon.start()
    try:
        one.daemon.wait_until(lambda: one.cli("version").returncode == 0, what="answer")
        yield one
    finally:
        one.daemon.stop()
        sweep.end_processes(sweep.list_processes(work))
        one.end_pods()
        # An agent's exit may still rename a file here: what is gone needs no removal, what is left is removed again.
        while work.exists():
            shutil.rmtree(work, ignore_errors=True)


def test_a_plugin_that_pip_installs_is_loaded_without_a_restart(agent: Agent) -> None:
    agent_pid = agent.daemon.pid
    before = agent.run_pod("before", "local")
    refused = agent.cli("runtime", "add", "container:two:late:///")
    assert "no installed plugin serves container over late://" in refused.stderr
    assert agent.cli("runtime", "reload").stdout == "No new plugins found.\n"

    agent.install("kubeletx_late", PLUGIN)
    found = agent.cli("runtime", "reload")
    assert (found.returncode, found.stdout, found.stderr) == (
        0,
        "plugin/kubeletx_late ready (kinds: late)\n",
        "",
    )
    assert agent.plugins()["kubeletx_late"]["state"] == "ready"
    for name, url in (("two", "late:///"), ("three", "late:///?isolation=process")):
        assert agent.cli("runtime", "add", f"container:{name}:{url}").returncode == 0
        agent.run_pod(f"on-{name}", name)
    assert agent.daemon.pid == agent_pid
    assert agent.daemon.is_running
    assert (agent.work / "before.pid").read_text() == before, "the pod of before was restarted"


def test_a_broken_plugin_is_reported_and_the_agent_goes_on(agent: Agent) -> None:
    before = agent.run_pod("before", "local")
    agent.install("kubeletx_broken", "raise SystemExit('not today')\n")
    agent.install("kubeletx_twice", PLUGIN.replace('"late"', '"process"'))
    agent.install("kubeletx_late", PLUGIN)
    found = agent.cli("runtime", "reload")
    assert found.returncode == 1
    assert found.stdout == "plugin/kubeletx_late ready (kinds: late)\n"
    broken, twice = found.stderr.splitlines()
    assert broken.startswith("Error: plugin kubeletx_broken: SystemExit: not today (at ")
    assert broken.endswith("/kubeletx_broken.py:1)")
    assert twice == (
        "Error: plugin kubeletx_twice: runtime kind 'process' of plugin kubeletx_twice (kubeletx_twice 1.0) is "
        "registered already by plugin process (kubeletx-local-process 0.1.0); uninstall one of them"
    )
    states = {name: one["state"] for name, one in agent.plugins().items()}
    assert (states["kubeletx_broken"], states["kubeletx_twice"], states["process"]) == (
        "failed",
        "failed",
        "ready",
    )
    assert agent.cli("runtime", "add", "container:two:late:///").returncode == 0
    agent.run_pod("after", "two")
    assert agent.daemon.is_running
    assert (agent.work / "before.pid").read_text() == before
