"""``kubeletx drain``."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.commands.objects import Run, pod


def test_a_drain_is_asked_for_and_undone(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("drain", "--all", "--timeout", "20s").stdout == "all pods have ended\n"
    assert kubeletx("drain", "--undo").stdout == "new pods are accepted\n"
    assert agent.backend.calls == [("drain", 20.0), ("undo",)]


def test_a_drain_without_all_is_a_mistake(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("drain")
    assert (result.exit_code, agent.backend.calls) == (2, [])
    assert "give one of --all and --undo" in result.stderr


def test_the_node_is_cordoned_and_uncordoned(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("cordon").stdout == "node cordoned\n"
    assert kubeletx("uncordon", "node-1").stdout == "node uncordoned\n"
    assert agent.backend.calls == [("cordon node", True), ("cordon node", False)]
    result = kubeletx("cordon", "kata")
    assert result.exit_code == 2
    assert "use 'kubeletx runtime cordon kata' for a runtime" in result.stderr


def test_a_pod_is_restarted(agent: Any, kubeletx: Run) -> None:
    agent.backend.put(pod())
    assert kubeletx("restart", "pod/web", "-c", "web").stdout == "pod/web restarted\n"
    assert kubeletx("restart", "web", "--timeout=0s", "-oname").stdout == "pod/web\n"
    assert agent.backend.calls == [("restart", "default/web", "web", 60), ("restart", "default/web", "", 0)]
    assert kubeletx("restart", "db").exit_code == 1
