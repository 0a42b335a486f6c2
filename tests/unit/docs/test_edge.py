"""docs/edge.md: each command of its first part is run, its samples are valid, and the generated page is current."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.health.checks.section import read_checks
from kubeletx.health.config import ITEMS, read_file
from kubeletx.health.devices.leds import Leds
from kubeletx.health.watchdog.ages import read_limits
from script.edge_topics.page import page
from tests.unit.docs.pages import DOCS, named_blocks, rows, section

PAGE = (DOCS / "edge.md").read_text()
BLOCKS = named_blocks(PAGE)


def lines(name: str) -> str:
    """The commands of a block, as a script that ends with the first failure that its page does not name."""
    (block,) = BLOCKS[name]
    return "\n".join(line.removeprefix("$ ").partition("   #")[0] for line in block.splitlines())


class Terminals:
    """Runs blocks of the page in one directory, as a reader does."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        bin_directory = Path(sys.executable).parent
        self._environment = {**os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}"}
        self._background: list[subprocess.Popen[bytes]] = []
        self._setup = lines("fallback").splitlines()[0]

    def run(self, name: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f"{self._setup}\n{lines(name)}"], check=False,
            cwd=self.directory, env=self._environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.stdout + done.stderr

    def start(self, name: str) -> None:
        """Run a block that lasts, in fast motion."""
        script = lines(name).replace("200ms", "50ms").replace("sleep 0.25", "sleep 0.05")
        self._background.append(
            subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.directory,
                env=self._environment,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Look until it is so. Raises AssertionError after a deadline for busy machines."""
        deadline = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < deadline, f"reboots: {self.boot_reasons}"
            time.sleep(0.02)

    def stop(self) -> None:
        for process in self._background:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def boot_reasons(self) -> list[str]:
        path = self.directory / "try" / "slots" / "reboots"
        return (
            [json.loads(line)["bootReason"] for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )

    def state(self, label: str) -> str:
        path = self.directory / "try" / "slots" / f"{label}.state"
        return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    yield terminals
    terminals.stop()


def test_the_first_part_can_be_followed(terminals: Terminals) -> None:
    terminals.start("guardian")
    status = terminals.directory / "try" / "run" / "nodeagent" / "NodeAgentStatus" / "nodeagent.json"
    terminals.wait(status.exists)
    assert "accepted: IMGB is booted once" in terminals.run("fallback")
    terminals.wait(lambda: terminals.boot_reasons[-1:] == ["Fallback"])
    terminals.wait(
        lambda: (
            "no guardian runs" not in (answer := terminals.run("failed"))
            and "refused: 2 in IMGB has failed" in answer
        )
    )
    terminals.start("controller")
    assert "accepted" in terminals.run("commit")
    terminals.wait(lambda: (terminals.state("IMGB"), terminals.state("IMGA")) == ("active", "unused"))
    terminals.run("hang")
    terminals.wait(lambda: "WatchdogHung" in terminals.boot_reasons)
    terminals.run("end")


def fail(line: str) -> None:
    raise AssertionError(line)


def test_the_sample_of_the_configuration_is_valid(tmp_path: Path) -> None:
    (sample,) = BLOCKS["configuration"]
    path = tmp_path / "health.yaml"
    path.write_text(sample)
    settings = read_file(path, fail)
    assert set(settings.sections) == {"backend", "watchdog", "leds", "checks"}
    assert len(read_checks(settings.sections["checks"], fail)) == 2
    read_limits(settings.sections["watchdog"], fail)
    Leds(settings.sections["leds"], fail)


def test_the_table_of_timers_has_the_defaults() -> None:
    for row in rows(section(PAGE, "What decides")):
        assert row[2].startswith(f"{ITEMS[row[1].strip('`')].default} s")


def test_the_page_of_topics_is_current() -> None:
    is_current = (DOCS / "edge-topics.md").read_text() == page()
    assert is_current, (
        "docs/edge-topics.md differs from the code; run: .venv/bin/python -m script.edge_topics"
    )
