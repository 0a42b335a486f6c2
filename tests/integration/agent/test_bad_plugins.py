"""An agent with plugins that block it or swallow cancellation: it logs, ends in time, and starts again with isolation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kubeletx_testing.lab.cgroups import remove_cgroups
from kubeletx_testing.waiting import block_until

GUARD_SECONDS = 60
CGROUP = f"kubeletx-bad-{os.getpid()}"


class BadAgent:
    """An agent process with one runtime ``bad`` of a bad plugin, installed as a distribution of its own."""

    def __init__(self, path: Path, kind: str, **settings: object) -> None:
        self.root, self.log = path / "root", path / "log"
        site = path / "site"
        info = site / "bad_plugin-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-plugin\nVersion: 1.0\n")
        module = f"kubeletx_testing.bad_plugins.{kind.replace('-', '_')}"
        (info / "entry_points.txt").write_text(f"[kubeletx]\n{kind} = {module}\n")
        self._config = path / "config.yaml"
        document = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "kubeletx": {
                "containerRuntimeEndpoints": [f"container:bad:bad://x?plugin={kind}&isolation=none"],
                **settings,
            },
        }
        self._config.write_text(yaml.safe_dump(document))
        self._path, self._site = path, site
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("kubeletx")),
                    f"--config={self._config}",
                    f"--root-dir={self.root}",
                    f"--pod-logs-dir={self._path / 'logs'}",
                    f"--cgroup-root=/{CGROUP}",
                    "--healthz-port=0",
                ],
                env={**os.environ, "PYTHONPATH": str(self._site)},
                stdout=log,
                stderr=log,
            )
        return self.process

    def wait_line(self, *words: str) -> None:
        """Wait for a line of the log that contains all these words."""
        block_until(
            lambda: any(all(word in line for word in words) for line in self.log.read_text().splitlines())
        )


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., BadAgent]]:
    made: list[BadAgent] = []

    def build(kind: str, **settings: object) -> BadAgent:
        made.append(BadAgent(tmp_path, kind, **settings))
        return made[-1]

    yield build
    for one in made:
        if one.process is not None:
            one.process.kill()
            one.process.wait()
    remove_cgroups(CGROUP)


def test_a_plugin_that_blocks_is_logged_and_runs_in_its_own_process_after_a_restart(
    make: Callable[..., BadAgent],
) -> None:
    agent = make("blocks", pluginStallTimeout="2s")
    first = agent.start()
    agent.wait_line("Event loop blocked", "runtime=bad", "method=list_sandboxes", "isolation=process")
    assert first.wait(GUARD_SECONDS) == 3, agent.log.read_text()
    assert "Plugin blocked the agent" in agent.log.read_text()
    assert [path.name for path in (agent.root / "stalled").iterdir()] == ["bad"]
    (dump,) = (agent.root / "dumps").iterdir()
    assert "blocks.py" in dump.read_text()
    second = agent.start()
    agent.wait_line("Isolated runtime whose plugin blocked the agent", "runtime=bad")
    agent.wait_line("Started ", "runtimes=bad")
    second.send_signal(signal.SIGTERM)
    assert second.wait(GUARD_SECONDS) == 0, agent.log.read_text()


def test_sigterm_ends_an_agent_whose_event_loop_is_blocked(make: Callable[..., BadAgent]) -> None:
    agent = make("blocks", pluginStallAction="log", stopTimeout="1s")
    process = agent.start()
    agent.wait_line("Event loop blocked", "runtime=bad")
    process.send_signal(signal.SIGTERM)
    assert process.wait(GUARD_SECONDS) == 4
    agent.wait_line("Ended the agent at its limit", "method=list_sandboxes")


def test_a_coroutine_that_swallows_cancellation_does_not_hold_up_the_end(
    make: Callable[..., BadAgent],
) -> None:
    agent = make("swallows-cancellation", stopTimeout="45s")
    process = agent.start()
    agent.wait_line("Started ", "runtimes=bad")
    process.send_signal(signal.SIGTERM)
    assert process.wait(GUARD_SECONDS) == 0, agent.log.read_text()
    agent.wait_line("Abandoned call of plugin", "method=list_units")
    agent.wait_line("Ended with tasks that swallow their cancellation")


def test_an_exit_in_a_task_callback_or_thread_of_a_plugin_does_not_end_the_agent(
    make: Callable[..., BadAgent],
) -> None:
    agent = make("exits-in-tasks")
    process = agent.start()
    for words in ("SystemExit: in a task", "SystemExit: called soon", "KeyboardInterrupt: called later"):
        agent.wait_line("Task or callback raised an exception", words)
    agent.wait_line("Thread raised an exception", "SystemExit: in a thread", "exits_in_tasks.py:")
    agent.wait_line("SystemExit: in a task", "plugin exits-in-tasks (bad-plugin 1.0)", "exits_in_tasks.py:")
    agent.wait_line("Started ", "runtimes=bad")
    process.send_signal(signal.SIGTERM)
    assert process.wait(GUARD_SECONDS) == 0, agent.log.read_text()


def test_a_plugin_without_its_required_setting_does_not_prevent_the_start(
    make: Callable[..., BadAgent],
) -> None:
    agent = make("requires-setting")
    process = agent.start()
    agent.wait_line(
        "Failed to make runtime",
        "runtime=bad",
        "write `serverUrl: VALUE` in section kubeletx.plugins.requires-setting of the configuration file; then restart",
    )
    agent.wait_line("Started ", "runtimes=bad")
    process.send_signal(signal.SIGTERM)
    assert process.wait(GUARD_SECONDS) == 0, agent.log.read_text()


IMPORT = """\
import os, time
from kubeletx.api import hookimpl

class Check:
    async def check(self): ...

def slow(settings, host):
    if os.environ.get("KUBELETX_TEST_SLOW") == "factory":
        time.sleep(3600)
    return Check()

if os.environ.get("KUBELETX_TEST_SLOW") == "import":
    time.sleep(3600)

@hookimpl
def kubeletx_register_health_checks(register):
    register("slow", slow)
"""


def install_slow(site: Path) -> None:
    info = site / "slow_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kubeletx]\nslow = site_slow\n")
    (site / "site_slow.py").write_text(IMPORT)


def test_a_factory_that_blocks_the_start_is_logged_and_left_out_after_a_restart(
    make: Callable[..., BadAgent], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBELETX_TEST_SLOW", "factory")
    agent = make("lacks-methods", pluginStallTimeout="8s", pluginIsolation={"slow": "none"})
    install_slow(tmp_path / "site")
    first = agent.start()
    agent.wait_line("Waiting for a plugin", "call=factory", "plugin=slow", "slow-plugin 1.0")
    assert first.wait(GUARD_SECONDS) == 3, agent.log.read_text()
    assert "Plugin held up the start for too long" in agent.log.read_text()
    (dump,) = (agent.root / "dumps").iterdir()
    assert "site_slow.py" in dump.read_text()
    second = agent.start()
    agent.wait_line("Started ", "runtimes=bad")
    agent.wait_line("the agent's process ended while plugin slow (slow-plugin 1.0) was called", "rm ")
    second.send_signal(signal.SIGTERM)
    assert second.wait(GUARD_SECONDS) == 0, agent.log.read_text()


def test_an_import_that_blocks_costs_the_start_its_deadline_alone(
    make: Callable[..., BadAgent], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBELETX_TEST_SLOW", "import")
    agent = make("lacks-methods", pluginStallTimeout="8s")
    install_slow(tmp_path / "site")
    process = agent.start()
    agent.wait_line("Loaded plugin", "plugin=slow", "state=failed", "did not return within 8 s")
    agent.wait_line("Started ", "runtimes=bad")
    process.send_signal(signal.SIGTERM)
    assert process.wait(GUARD_SECONDS) == 0, agent.log.read_text()
