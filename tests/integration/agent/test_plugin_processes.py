"""A real agent with a program as a plugin, and with the examples' panel, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubeletx_testing.lab.cgroups import remove_cgroups
from kubeletx_testing.waiting import block_until

CGROUP = f"kubeletx-processes-{os.getpid()}"
PROGRAM = """\
#!{python}
import json, sys

def read():
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    return json.loads(sys.stdin.buffer.read(size)) if size else sys.exit()

def write(value):
    data = json.dumps(value).encode()
    sys.stdout.buffer.write(len(data).to_bytes(4, "big") + data)
    sys.stdout.buffer.flush()

read()
write({{"version": 1, "encoding": "json", "features": []}})
while True:
    kind, *fields = read()
    if kind != "call":
        continue
    number, target, method, args = fields
    if method == "init":
        open({shown!r}, "w").write(json.dumps(args[0]["settings"]))
    answers = {{
        "open": {{"traits": {{}}, "capabilities": []}},
        "version": {{"name": "tiny", "version": "7"}},
        "health": {{"runtime_ready": True, "network_ready": True}},
        "list_sandboxes": [],
        "list_units": [],
    }}
    write(["answer", number, answers.get(method)])
"""


class Agent:
    """An agent process with the runtime ``tiny`` of a program."""

    def __init__(self, path: Path) -> None:
        self.root, self.shown, self.log = path / "root", path / "shown", path / "log"
        self.program = path / "tiny-program"
        self.program.write_text(PROGRAM.format(python=sys.executable, shown=str(self.shown)))
        self.program.chmod(0o755)
        config = path / "config.yaml"
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "kubeletx": {
                "pluginPanelTimeout": "60s",  # a busy machine starts a child in more than the default of 10 s
                "containerRuntimeEndpoints": [f"container:tiny:exec://{self.program}"],
                "plugins": {"exec": {"tiny": {"verbose": True, "paths": ["/a"]}}},
            },
        }
        config.write_text(yaml.safe_dump(document))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(self._command, f"--config={config}", f"--root-dir={self.root}", "--healthz-port=0"),
                    *(f"--pod-logs-dir={path / 'logs'}", f"--cgroup-root=/{CGROUP}"),
                ],
                stdout=log,
                stderr=log,
            )

    @property
    def _command(self) -> str:
        return str(Path(sys.executable).with_name("kubeletx"))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command of kubeletx that talks to this agent."""
        argv = [self._command, f"--root-dir={self.root}", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    def plugin(self, name: str) -> dict[str, Any]:
        """The plugin of this name as ``kubeletx plugins`` shows it; empty if there is none."""
        done = self.run("plugins", "-o", "json")
        items = msgspec.json.decode(done.stdout)["items"] if done.returncode == 0 else []
        return next((one for one in items if one["name"] == name), {})


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    block_until(lambda: made.run("version").returncode == 0 and (made.root / "kubeletx.sock").exists())
    yield made
    made.process.terminate()
    made.process.wait(60)
    remove_cgroups(CGROUP)


def test_a_program_is_shown_with_its_process_and_gets_its_settings(agent: Agent) -> None:
    block_until(lambda: agent.plugin("tiny-program").get("state") == "ready")
    shown = agent.plugin("tiny-program")
    assert (shown["distribution"], shown["version"]) == (str(agent.program), "7")
    assert (shown["kinds"], shown["isolation"]) == (["exec"], "process")
    (process,) = shown["processes"]
    assert (process["runtime"], process["restarts"]) == ("tiny", 0)
    assert process["memoryBytes"] > 0
    assert msgspec.json.decode(agent.shown.read_bytes()) == {"verbose": True, "paths": ["/a"]}
    os.kill(process["pid"], signal.SIGKILL)
    block_until(lambda: [one["restarts"] for one in agent.plugin("tiny-program")["processes"]] == [1])
    wide = agent.run("plugins", "-o", "wide").stdout
    assert "tiny: pid" in wide


def test_the_panel_of_an_example_runs_in_a_process_that_starts_again(agent: Agent) -> None:
    assert agent.plugin("host-load")["processes"] == []
    assert agent.run("panel", "host-load").returncode == 0
    (first,) = agent.plugin("host-load")["processes"]
    assert first["runtime"] == ""
    os.kill(first["pid"], signal.SIGKILL)
    block_until(lambda: agent.run("panel", "host-load").returncode == 0)
    (second,) = agent.plugin("host-load")["processes"]
    assert second["pid"] != first["pid"]
    assert second["restarts"] == 1
