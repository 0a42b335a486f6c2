"""``kubeletx report`` and ``kubeletx ui``."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.cli.commands.node import report
from kubeletx.kube.types.core import Container, ContainerStatus, EnvVar
from kubeletx.server.views import ConfigValue
from tests.unit.cli.commands.objects import Run, pod


@pytest.fixture(autouse=True)
def has_no_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checks of the machine, its journal and kubeletx-web not take part."""
    monkeypatch.setattr("kubeletx.cli.setup.checks.CHECKS", {})
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")


def restarted_pod() -> Any:
    made = pod()
    secret = EnvVar(name="WORD", value="hush-hush")
    status = ContainerStatus(name="web", ready=True, restart_count=1, image="busybox", image_id="")
    return replace(
        made,
        spec=replace(made.spec, containers=(Container(name="web", image="busybox", env=(secret,)),)),
        status=replace(made.status, container_statuses=(status,)),
    )


def test_a_report_has_everything_without_secrets(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    agent.backend.put(restarted_pod())
    agent.backend.logs["web"] = [b"a line\n"]
    value = {"store": {"password": "hush-hush", "size": 3}}
    agent.backend.config_values = (
        ConfigValue(key="kubeletx.plugins", value=value, origin="file", flag=""),
        ConfigValue(key="staticPodURL", value="https://me:hush-hush@host/", origin="file", flag=""),
    )
    folder = tmp_path / "new" / "report"
    result = kubeletx("report", "-o", str(folder))
    assert result.exit_code == 0
    texts = {
        str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.*") if path.is_file()
    }
    assert not [name for name, text in texts.items() if "hush" in text]
    assert texts["pods/default_web.web.log"] == texts["pods/default_web.web.previous.log"] == "a line\n"
    assert "WORD: <hidden>" in texts["pods/default_web.txt"]
    assert "value: <hidden>" in texts["pods/default_web.yaml"]
    assert "size: 3" in texts["settings.yaml"]
    assert texts["pods.txt"].startswith("NAMESPACE ")
    assert texts["journal.txt"].startswith("failed: ")
    assert texts["summary.txt"].splitlines()[1:] == [f"journal.txt: {texts['journal.txt'].rstrip()}"]
    assert f"report written to {folder}; 1 failed, see summary.txt" in result.stdout
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("is_hung", [False, True])
def test_a_report_without_an_answer_of_the_agent_says_so_in_each_file(
    kubeletx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_hung: bool
) -> None:
    monkeypatch.setattr(report, "HUNG_SECONDS", 0.01)
    with socket.socket(socket.AF_UNIX) as silent:
        if is_hung:
            silent.bind(str(tmp_path / "kubeletx.sock"))
            silent.listen(64)
        result = kubeletx("report", "-o", str(tmp_path / "report"))
    why = "did not answer within 0.01s" if is_hung else "no agent is running"
    assert result.exit_code == 0
    for name in ("pods.txt", "settings.yaml", "metrics.txt"):
        text = (tmp_path / "report" / name).read_text()
        assert text.startswith("failed: ")
        assert why in text
    assert '"state": "ok"' in (tmp_path / "report" / "doctor.json").read_text()


def test_a_folder_with_files_is_refused_and_one_that_cannot_be_written_named(
    kubeletx: Run, tmp_path: Path
) -> None:
    (tmp_path / "old").touch()
    for folder, code, why in (
        (tmp_path, 2, "is not empty"),
        (Path("/proc/report"), 1, "cannot write /proc/report/"),
    ):
        result = kubeletx("report", "-o", str(folder))
        assert (result.exit_code, why in result.stderr) == (code, True)


def test_the_page_needs_its_program_and_an_agent_and_gets_the_socket_and_the_options(
    kubeletx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = kubeletx("ui")
    assert (missing.exit_code, "pip install 'kubeletx[web]'" in missing.stderr) == (1, True)
    program = tmp_path / "bin" / "kubeletx-web"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@" > "$4/args"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.parent / "python"))
    refused = kubeletx("--root-dir", str(tmp_path / "none"), "ui")
    assert (refused.exit_code, "no agent is running on" in refused.stderr) == (1, True)
    run: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _path, argv: run.append(argv))
    socket_path = tmp_path / "kubeletx.sock"
    socket_path.touch()
    kubeletx("ui", "--no-browser", "--port", "8080", "--web-address", "[::]:443")
    options = ["--port", "8080", "--no-browser", "--web-address", "[::]:443"]
    assert run == [[str(program), "--socket", str(socket_path), *options]]
    monkeypatch.chdir(tmp_path)
    assert kubeletx("report", "-o", "report").exit_code == 0
    folder = tmp_path / "report"
    assert (folder / "args").read_text() == f"--socket {socket_path} --report {folder}\n"
