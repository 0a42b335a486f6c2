"""Versions, completion, and errors that all commands share."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from kubeletx.cli.connection.client import not_running
from kubeletx.cli.main import cli
from tests.unit.cli.commands.objects import Run, pod, runtime


def test_versions(agent: Any, kubeletx: Run) -> None:
    assert "Agent:          node-1, pid 4711, up 10m" in kubeletx("version").stdout
    assert kubeletx("version", "--client").stdout == "Client version: 0.1.0\n"


def test_completion_scripts_are_printed(kubeletx: Run) -> None:
    assert "_KUBELETX_COMPLETE" in kubeletx("completion", "bash").stdout


def test_the_shell_completes_commands_flags_and_names_of_pods(
    agent: Any, kubeletx: Run, tmp_path: Path
) -> None:
    agent.backend.put(pod("web-1"))
    agent.backend.put(pod("db-1"))
    complete = ShellComplete(cli, {}, "kubeletx", "_KUBELETX_COMPLETE")

    def words(args: list[str], incomplete: str) -> list[str]:
        return [str(item.value) for item in complete.get_completions(args, incomplete)]

    assert words([], "de") == ["describe", "delete", "debug"]
    assert words(["get"], "--all") == ["--all-namespaces"]
    assert words(["--root-dir", str(tmp_path), "logs"], "w") == ["web-1"]
    assert words(["--root-dir", str(tmp_path / "none"), "logs"], "w") == []
    root = ["--root-dir", str(tmp_path)]
    agent.backend.runtimes = {"one": runtime()}
    objects = ["configmaps", "secrets", "persistentvolumeclaims"]
    assert words(["get"], "") == ["pods", "runtimes", "node", "images", "volumes", "events", *objects]
    assert words([*root, "get", "pods"], "") == ["db-1", "web-1"]
    assert words([*root, "get"], "pod/w") == ["pod/web-1"]
    assert words([*root, "-n", "other", "get", "pods"], "") == []
    assert words([*root, "describe", "rt"], "") == ["one"]
    assert words([*root, "delete", "pod", "db-1"], "w") == ["web-1"]
    assert words(["delete"], "") == ["pods", *objects]
    assert words([*root, "logs", "web-1", "-c"], "") == ["web"]
    assert words([*root, "runtime", "cordon"], "o") == ["one"]
    assert words([*root, "image", "pull", "--runtime"], "") == ["one"]
    assert words(["get", "pods", "-o"], "j") == ["json"]


def test_an_agent_that_is_not_running_is_one_line_with_socket_and_cure(kubeletx: Run, tmp_path: Path) -> None:
    for args in (("get", "pods"), ("exec", "web", "ls"), ("image", "pull", "x"), ("delete", "pod", "x")):
        result = kubeletx(*args)
        assert result.exit_code == 1
        assert result.stderr.startswith(
            f"Error: no agent is running on {tmp_path}/kubeletx.sock; start one with"
        )
        assert len(result.stderr.splitlines()) == 1


def test_an_agent_that_systemd_runs_is_looked_for_there() -> None:
    problem = not_running(Path("/var/lib/kubeletx/kubeletx.sock"))
    assert "systemctl status kubeletx" in problem.message
    assert "--container-runtime-endpoint" not in problem.message


def test_a_socket_of_someone_else_is_one_line(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)  # root, who runs tests too, may connect to any
    result = kubeletx("get", "pods")
    assert "permission denied on" in result.stderr
    assert "sudo" in result.stderr


def test_names_that_are_not_utf8_are_usage_errors(agent: Any, kubeletx: Run) -> None:
    for words in (("describe", "pod"), ("logs",), ("delete", "pod"), ("runtime", "cordon")):
        result = kubeletx(*words, "a\udcff")
        assert result.exit_code == 2, words
        assert result.stderr == "Error: arguments: 'a\\\\udcff' is not UTF-8; give names as UTF-8\n"
