"""The command line of the storage agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from kubeletx_flexvolume.agent.installer import InstallPlace, driver_content, install
from kubeletx_flexvolume.agent.main import main
from kubeletx_flexvolume.agent.sockets import open_socket
from kubeletx_flexvolume.agent.wire import framed, reply


def test_invalid_options_are_refused_with_their_names(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["agent", "--state-dir", "here", "--pool", "x=/y"])
    assert result.exit_code == 2
    assert "--state-dir: 'here' is not absolute" in result.output
    assert "--pool: /y of x is not a directory" in result.output


def test_status_without_an_agent_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "--state-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert (
        f"the storage agent does not answer at {tmp_path}/agent.sock: No such file or directory"
        in result.output
    )
    assert "--state-dir must be that of the running agent" in result.output


def test_the_agent_refuses_to_run_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # a real other user may not read these files
    result = CliRunner().invoke(main, ["agent", "--state-dir", str(tmp_path / "state")])
    assert (result.exit_code, "run it as root" in result.output) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_commands_says_what_each_does_in_whole_sentences() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output.partition("Commands:")[2].strip().split("\n")
    assert len(shown) == 7
    for line in shown:
        assert line.endswith("."), line
        assert not line.endswith("..."), line


@pytest.mark.parametrize(("is_ready", "code"), [(True, 0), (False, 1)])
def test_status_is_a_readiness_probe(tmp_path: Path, is_ready: bool, code: int) -> None:
    served = open_socket(tmp_path / "state")
    served.listening.setblocking(True)
    state = {"pid": 7, "isReady": is_ready}

    def serve() -> None:
        for _ in range(2):
            connection, _ = served.listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(framed(reply("Success", agent=state)))

    thread = threading.Thread(target=serve, name="agent")
    thread.start()
    try:
        shown = CliRunner().invoke(main, ["status", "--state-dir", str(tmp_path / "state")])
        assert json.loads(shown.output) == state
        probed = CliRunner().invoke(main, ["status", "--ready", "--state-dir", str(tmp_path / "state")])
        assert probed.exit_code == code
    finally:
        thread.join()
        served.close()


def test_uninstall_removes_the_driver_unless_an_agent_lives(tmp_path: Path) -> None:
    place = InstallPlace(tmp_path)
    install(place, driver_content())
    served = open_socket(place.socket_directory)
    arguments = ["uninstall", "--volume-plugin-dir", str(tmp_path)]
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 1
    assert f"PID {os.getpid()}" in refused.output
    served.close()
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.output) == (0, f"{place.executable}: removed\n")
    assert list(tmp_path.iterdir()) == []
    assert "was not there" in CliRunner().invoke(main, arguments).output


def test_status_starts_without_the_agents_modules() -> None:
    source = (
        "import sys; from kubeletx_flexvolume.agent import main\n"
        "print([n for n in sys.modules if n.endswith(('lifecycle', 'sqlalchemy', 'asyncio', 'structlog'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_programs_can_be_interrupted_though_a_shell_started_the_agent_in_the_background(
    tmp_path: Path,
) -> None:
    """Such a shell ignores SIGINT for it, and a program inherits that, unless the agent has a handler."""
    source = f"""
import os, signal
from pathlib import Path
from kubeletx_flexvolume.agent import lifecycle, main
from kubeletx_flexvolume.commands import Commands

async def run_agent(config, *, clock, stop):
    result = await Commands(Path({str(tmp_path)!r})).run(["grep", "SigIgn", "/proc/self/status"], seconds=60)
    print(result.out)

signal.signal(signal.SIGINT, signal.SIG_IGN)
os.geteuid = lambda: 0
lifecycle.run_agent = run_agent
main.main(["agent", "--state-dir", {str(tmp_path / "state")!r}, "--records", {str(tmp_path / "records.db")!r}])
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.startswith("SigIgn:"), done.stderr
    assert not int(done.stdout.split()[1], 16) & 1 << (signal.SIGINT - 1)
