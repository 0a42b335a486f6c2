"""The table of actions is complete."""

from __future__ import annotations

from kubeletx.pods.model.actions import Action
from kubeletx.pods.steps.dispatch import ROWS


def test_every_action_has_a_step_and_a_failure() -> None:
    assert set(ROWS) == set(Action.__subclasses__())
