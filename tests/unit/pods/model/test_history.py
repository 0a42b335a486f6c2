"""The history of a pod is bounded, and equal actions in a row share an entry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import SandboxId, UnitId
from kubeletx.kube.types.core import PodCondition, PodStatus
from kubeletx.pods.model import results
from kubeletx.pods.model.actions import Look, StartUnit
from kubeletx.pods.model.facts import HookState
from kubeletx.pods.model.history import KEPT, TEXT_LENGTH, History, describe_result

T0 = datetime(2030, 1, 1, tzinfo=UTC)


@given(st.lists(st.sampled_from(["a", "b", None]), max_size=200))
def test_counts_add_up_until_entries_fall_out(names: list[str | None]) -> None:
    history = History()
    for name in names:
        action = Look() if name is None else StartUnit(name=name, attempt=0, sandbox_id=SandboxId("s"))
        history.add(action, results.Nothing(), at=T0, seconds=0.1)
    entries = history.entries
    assert len(entries) <= KEPT
    assert all(one.action != other.action for one, other in pairwise(entries))
    if len(entries) < KEPT:
        assert sum(entry.count for entry in entries) == len(names)


def test_a_result_is_shown_with_its_reason_and_cut() -> None:
    assert describe_result(results.Nothing()) == "done"
    assert describe_result(results.SandboxFailed("Busy", "no room")) == "sandbox failed: Busy: no room"
    long = describe_result(results.SandboxFailed("Busy", "x" * 1000))
    assert len(long) == TEXT_LENGTH
    assert long.endswith("...")


FAILED = results.UnitFailed("web", "RunError", "a secret of the hook", created=True)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (None, "cancelled"),
        (results.Nothing(), ""),
        (results.Together((results.Nothing(), FAILED)), "RunError"),
        (results.Killed("web", "Liveness"), ""),
        (results.HookNoted("web", UnitId("u"), HookState.DONE), ""),
        (results.HookNoted("web", UnitId("u"), HookState.FAILED, "password=1"), "PostStartHookError"),
    ],
)
def test_a_failed_action_has_its_reason_in_a_word(result: results.Result | None, reason: str) -> None:
    history = History(T0)
    unit = StartUnit(name="web", attempt=0, sandbox_id=SandboxId("s"))
    history.add(unit, result, at=T0, seconds=1.0, is_machine=True)
    assert history.start is not None
    for entry in (*history.entries, *history.start.steps):
        assert (entry.action, entry.reason) == ("start machine web", reason)
    if result is None:
        assert history.last_lines() == ["start machine web: cancelled"]


def test_the_start_has_its_actions_until_the_pod_is_ready() -> None:
    history = History(T0)
    unit = StartUnit(name="web", attempt=0, sandbox_id=SandboxId("s"))
    for action in (Look(), unit):
        history.add(action, results.Nothing(), at=T0, seconds=0.1)
    seconds = iter(range(1, 9))
    for ready in ("False", "False", "True", "True"):
        status = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status=ready),))
        history.published(status, T0 + timedelta(seconds=next(seconds)))
    history.add(unit, results.Nothing(), at=T0, seconds=0.1)
    start = history.start
    assert start is not None
    assert [step.action for step in start.steps] == ["start unit web"]
    assert (start.running_at, start.ready_at) == (T0 + timedelta(seconds=1), T0 + timedelta(seconds=3))


def test_the_start_of_a_pod_that_existed_before_is_unknown() -> None:
    assert History().start is None
