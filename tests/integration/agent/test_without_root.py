"""The agent and the example plugin need no root: a pod's whole life as nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kubeletx.kube.types.core import Pod, PodList
from kubeletx_testing.lab import Daemon, is_ready, sweep
from tests.integration.support.survival import until
from tests.integration.support.without_root import NOBODY, as_nobody

PROGRAM = str(Path(sys.executable).parent / "kubeletx")
POD = """
apiVersion: v1
kind: Pod
metadata: {name: ticker}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  containers:
    - name: main
      image: none
      command: [sh, -c, "id -u; echo $$$$ > PID_FILE; while :; do date; sleep 1; done"]
"""


class NobodysAgent:
    """An agent of user nobody, with one runtime: the example plugin."""

    def __init__(self, work: Path, url: str) -> None:
        self.work = work
        self.root_dir, self.manifests, self.logs = work / "root", work / "pods", work / "logs"
        for directory in (work, self.manifests, self.logs):
            directory.mkdir(exist_ok=True)
            os.chown(directory, NOBODY, NOBODY)
        argv = [
            PROGRAM,
            f"--root-dir={self.root_dir}",
            f"--container-runtime-endpoint=container:local:{url}",
            f"--pod-manifest-path={self.manifests}",
            f"--pod-logs-dir={self.logs}",
            "--hostname-override=node",
            "--healthz-port=0",
        ]
        self.daemon = Daemon(name="agent", argv=as_nobody(argv, work), directory=work)

    def start(self) -> None:
        self.daemon.start()
        self.daemon.wait_until(lambda: self.cli("version").returncode == 0, what="answer")

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = as_nobody([PROGRAM, f"--root-dir={self.root_dir}", *arguments], self.work)
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def pod(self) -> Pod | None:
        answer = self.cli("get", "pods", "-o", "json")
        assert answer.returncode == 0, answer.stderr
        return next(iter(msgspec.json.decode(answer.stdout, type=PodList).items), None)

    def wait(self, is_so: Callable[[Pod | None], bool]) -> None:
        deadline = time.monotonic() + 60
        while not is_so(pod := self.pod()):
            assert time.monotonic() < deadline, f"{pod}\n{self.daemon.log_tail(60)}"


@pytest.fixture
def url() -> str:
    return "process:///"


@pytest.fixture
def agent(url: str) -> Iterator[NobodysAgent]:
    work = Path(tempfile.mkdtemp(prefix="kubeletx-nobody-"))
    work.chmod(0o755)
    one = NobodysAgent(work, url)
    yield one
    one.daemon.stop()
    sweep.end_processes(sweep.list_processes(work))
    shutil.rmtree(work)


def running(pod: Pod | None) -> bool:
    return pod is not None and is_ready(pod)


@pytest.mark.parametrize("url", ["process:///", "process:///?isolation=process"])
def test_a_pod_lives_under_an_agent_without_root(agent: NobodysAgent) -> None:
    agent.start()
    pid_file = agent.work / "pods.pid"
    pid_file.touch()
    os.chown(pid_file, NOBODY, NOBODY)
    (agent.manifests / "ticker.yaml").write_text(POD.replace("PID_FILE", str(pid_file)))
    agent.wait(running)
    pid = until(pid_file.read_text, "the container's process id")
    log = until(lambda: agent.cli("logs", "ticker-node").stdout.splitlines(), "a first line")  # noqa: PLW0108 - asks again each time
    assert log[0] == str(NOBODY)
    agent.daemon.stop()
    assert Path(f"/proc/{pid.strip()}").exists()
    agent.start()
    agent.wait(running)
    assert pid_file.read_text() == pid, "the pod was restarted"

    (agent.manifests / "ticker.yaml").unlink()
    agent.wait(lambda pod: pod is None)
    assert not Path(f"/proc/{pid.strip()}").exists()
    said = agent.daemon.log_path.read_text()
    assert said.count("Pods get no cgroups of their own") == 2, "once at each start"
    assert "Traceback" not in said
    assert "[error" not in said


def test_a_root_directory_that_may_not_be_used_is_one_line(agent: NobodysAgent) -> None:
    command = as_nobody([PROGRAM, "--root-dir=/proc/kubeletx", "--v=0"], agent.work)
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: --root-dir: cannot use /proc/kubeletx: ")
    assert "Traceback" not in done.stderr


def test_a_log_directory_that_may_not_be_used_is_one_line(agent: NobodysAgent) -> None:
    command = as_nobody(
        [
            PROGRAM,
            f"--root-dir={agent.root_dir}",
            "--pod-logs-dir=/var/log/kubeletx-nobody",
            "--container-runtime-endpoint=container:local:process:///",
        ],
        agent.work,
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "Error: --pod-logs-dir: cannot use /var/log/kubeletx-nobody: Permission denied" in done.stderr
    assert "Traceback" not in done.stderr
