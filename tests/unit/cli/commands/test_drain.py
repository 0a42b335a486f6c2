"""``kubeletx drain``."""

from __future__ import annotations

from typing import Any

from tests.unit.cli.commands.objects import Run


def test_a_drain_is_asked_for_and_undone(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("drain", "--all", "--timeout", "20s").stdout == "all pods have ended\n"
    assert kubeletx("drain", "--undo").stdout == "new pods are accepted\n"
    assert agent.backend.calls == [("drain", 20.0), ("undo",)]


def test_a_drain_without_all_is_a_mistake(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("drain")
    assert (result.exit_code, agent.backend.calls) == (2, [])
    assert "give one of --all and --undo" in result.stderr
