"""docs/storage.md: the volume in five minutes works as the page shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import Lab, PrivateAgent, image_ref
from kubeletx_testing.lab.process import Daemon
from kubeletx_testing.waiting import block_until
from tests.unit.docs.pages import DOCS, named_blocks

PROGRAM = Path(sys.executable).with_name("kubeletx-flexvolume")
BLOCKS = named_blocks((DOCS / "storage.md").read_text())


@pytest.fixture
def agent(make_agent: Callable[..., PrivateAgent], tmp_path: Path) -> PrivateAgent:
    """An agent of kubeletx with an empty plugin directory."""
    one = make_agent(flags=(f"--volume-plugin-dir={tmp_path / 'plugins'}",))
    one.start()
    return one


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """File of the attachment records."""
    return tmp_path / "state" / "records" / "records.db"


@pytest.fixture
def storage(agent: PrivateAgent, lab: Lab, tmp_path: Path) -> Iterator[Daemon]:
    """The storage agent with the command line of the page, in directories of the test."""
    (block,) = BLOCKS["agent"]
    (line,) = re.findall(r"^# kubeletx-flexvolume (agent .*)$", block, re.MULTILINE)
    (tmp_path / "volumes").mkdir()
    line = line.replace("/var/lib/kubeletx", str(agent.root_dir)).replace(
        "/srv/volumes", str(tmp_path / "volumes")
    )
    own = [f"--state-dir={tmp_path / 'state'}", f"--volume-plugin-dir={tmp_path / 'plugins'}"]
    daemon = Daemon(
        name="storage-agent",
        argv=[str(PROGRAM), *line.split(), *own, "--no-known-plugin-dirs"],
        directory=lab.base_dir,
    )
    daemon.start()
    try:
        daemon.wait_until(
            lambda: program("status", f"--state-dir={tmp_path / 'state'}", "--ready").returncode == 0,
            what="an init of the driver",
        )
        yield daemon
    finally:
        daemon.stop()
        done = program("uninstall", f"--volume-plugin-dir={tmp_path / 'plugins'}")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "plugins").iterdir()) == []


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ``kubeletx-flexvolume`` to its end."""
    command = [str(PROGRAM), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.usefixtures("storage")
def test_the_first_volume_of_the_page_works_as_it_is_shown(
    agent: PrivateAgent, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (manifest,) = BLOCKS["counter"]
    (tmp_path / "counter.yaml").write_text(re.sub(r"image: .*", f"image: {image_ref('busybox')}", manifest))
    monkeypatch.chdir(tmp_path)
    (block,) = BLOCKS["try"]
    shown = []
    for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        name, *words = line.partition("#")[0].split()
        is_ours = name == "kubeletx-flexvolume"
        done = program(*words, f"--records={records}") if is_ours else agent.cli(*words)
        assert done.returncode == 0, (line, done.stderr)
        shown.append(done.stdout)
        if words[0] == "apply":
            agent.wait_for("counter")
    _, volumes, attachments, once, _, _, twice, _ = shown
    assert re.search(r"^counter/data +kubeletx\.io/storage +ready", volumes, re.MULTILINE), volumes
    assert re.search(r"^counter-data .*default/counter .*/dev/loop\d+ +Mounted", attachments, re.MULTILINE)
    assert (once.count("\n"), twice.count("\n")) == (1, 2)
    agent.wait_gone("counter")
    # a device that the kernel still has in use is detached a moment after the pod is gone
    block_until(lambda: program("attachments", f"--records={records}", "-o", "json").stdout == "[]\n")
    assert (tmp_path / "volumes" / "counter-data").stat().st_size == 100 << 20
