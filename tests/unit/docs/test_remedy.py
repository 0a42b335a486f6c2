"""docs/remedy.md: each command of its first part is run, its samples are valid, its settings have the defaults of the code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import asdict

from kubeletx.kube.text.duration import parse_duration
from kubeletx.remedy.fence_config import BUILTINS
from kubeletx.remedy.main import main
from kubeletx.remedy.model import RemedySettings
from kubeletx.remedy.sources import LoadedConfig, load_config
from kubeletx_testing.lab.tools import search_path
from kubeletx_testing.waiting import block_until
from script.demonstration.remedy import CONFIG, PLACE
from tests.unit.docs.pages import DOCS, ROOT, first_words, named_blocks, rows, section, words

PAGE = (DOCS / "remedy.md").read_text()
BLOCKS = named_blocks(PAGE)


class Terminals:
    """Runs blocks of the page, with another directory and another file for the example."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "try"
        self._config = directory / "workers.yaml"
        self._config.write_text(CONFIG.read_text().replace(PLACE, str(self.directory)))
        python = Path(sys.executable).parent
        self._environment = {**os.environ, "PATH": f"{python}:{search_path()}", "PYTHONPATH": str(ROOT)}
        self._background: list[subprocess.Popen[bytes]] = []
        self._setup = self.script("hang").splitlines()[0]

    def script(self, name: str) -> str:
        (block,) = BLOCKS[name]
        text = "\n".join(line.removeprefix("$ ").partition("   #")[0] for line in block.splitlines())
        text = text.replace("examples/remedy/workers.yaml", str(self._config))
        return text.replace(".venv/bin/python", sys.executable).replace(PLACE, str(self.directory))

    def run(self, name: str) -> str:
        return self.command(self.script(name))

    def command(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", f"{self._setup}\n{script}"], check=False, stdin=subprocess.DEVNULL,
            env=self._environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, (script, done.stdout + done.stderr)
        return done.stdout

    def until(self, script: str, text: str) -> None:
        """Repeat commands until they print `text`; each takes most of a second of processor time."""
        self.command(f"until ({script}) 2>&1 | grep -qF '{text}'; do sleep 2; done")

    def start(self, name: str) -> None:
        process = subprocess.Popen(
            ["bash", "-c", self.script(name)],
            env=self._environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._background.append(process)

    def stop(self) -> None:
        for process in self._background:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    terminals = Terminals(tmp_path)
    yield terminals
    terminals.stop()


def test_the_first_part_can_be_followed(terminals: Terminals) -> None:
    terminals.start("cluster")
    block_until((terminals.directory / "worker-3.power").exists)
    terminals.until("kr plan", "all nodes are well")
    terminals.start("controller")
    terminals.run("hang")
    terminals.until("kr history worker-1", "Recovery Final")
    told = " ".join(terminals.run("history").split())
    assert told.index("off, verified by status") < told.index("pods released")
    assert "node-fence-worker-1" in told
    assert "web-0" in told
    storm = terminals.script("storm").splitlines()
    terminals.command(storm[0])
    terminals.until(storm[1], "storm: 2 of 3 nodes are sick")
    terminals.command(storm[2])
    assert "worker-1 is resumed" in terminals.run("pause")


@pytest.mark.parametrize("name", ["configuration", "ansible"])
def test_the_samples_are_valid(name: str) -> None:
    (sample,) = BLOCKS[name]
    loaded = load_config({"sample.yaml": sample}, {}, LoadedConfig())
    assert [*map(str, loaded.problems)] == []
    assert loaded.configurations.documents


def test_the_table_of_settings_has_the_defaults() -> None:
    shown: dict[str, object] = {}
    for row in rows(section(PAGE, "Settings")):
        names = words(row[0])
        shown |= zip(names, [text.strip() for text in row[1].split(",")], strict=True)
    defaults = asdict(RemedySettings())
    assert shown.keys() == defaults.keys()
    for name, default in defaults.items():
        text = str(shown[name])
        if isinstance(default, bool):
            assert text == str(default).lower(), name
        elif isinstance(default, float):
            assert parse_duration(text) == default, name
        else:
            assert text == str(default), name


def test_the_reference_has_each_flag_exit_code_and_metric(capsys: pytest.CaptureFixture[str]) -> None:
    reference = (DOCS / "reference.md").read_text()
    with pytest.raises(SystemExit):
        main(["--help"])
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--all"}
    assert set(first_words(section(reference, "Flags of node remedy"))) == flags
    names = (ROOT / "kubeletx/remedy/admin/metrics.py").read_text()
    metrics = re.findall(r'"(kubeletx_remedy_\w+)"', names)
    assert set(first_words(section(reference, "Metrics of node remedy"))) == set(metrics)
    codes = {row[0] for row in rows(section(reference, "Exit codes of node remedy"))}
    assert codes == {"0", "1", "2", "130"}


def test_each_built_in_method_is_named() -> None:
    assert {name for name in BUILTINS if f"`{name}`" not in PAGE} == set()
