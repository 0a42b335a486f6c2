"""``kubeletx health plan``: the forecast says what then happens."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubeletx.health.forecast import Expected, Situation, forecast
from tests.unit.health.trial import SHORT, Trial


def plan(node: Trial, *, repeats: bool) -> list[Expected]:
    """Ask the guardian and compute the forecast, as the command does."""
    return forecast(msgspec.json.decode(node.order("plan").message, type=Situation), repeats=repeats)


def test_a_commit_is_expected_when_it_comes(tmp_path: Path) -> None:
    node = Trial(tmp_path, SHORT)
    node.set_slots("active", "inprogress", "IMGB")
    node.tick(20)
    expected = plan(node, repeats=True)
    assert [entry.what.partition(":")[0] for entry in expected] == [
        "UpgradePassed",
        "slot IMGB becomes active",
        "slot IMGA becomes unused",
        "UpgradeCommitted",
    ]
    node.tick(expected[0].in_seconds - 10)
    assert node.states[1] == "inprogress"
    node.tick(10)
    assert node.states[1] == "active"


def test_a_fallback_is_expected_when_it_comes(tmp_path: Path) -> None:
    node = Trial(tmp_path, SHORT)
    node.set_slots("active", "inprogress", "IMGB")
    node.tick(20)
    node.is_reached = False
    end = plan(node, repeats=False)[-1]
    assert "falls back: the controller was not reached" in end.what
    node.tick(end.in_seconds - 10)
    assert node.reboots == []
    node.tick(10)
    assert [line["bootReason"] for line in node.reboots] == ["Fallback"]


def test_a_healthy_node_expects_nothing(tmp_path: Path) -> None:
    node = Trial(tmp_path)
    node.tick(20)
    assert plan(node, repeats=True) == []
