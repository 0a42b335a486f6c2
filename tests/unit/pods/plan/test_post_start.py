"""A postStart hook holds back the containers after its own (L1, T1)."""

from __future__ import annotations

import pytest

from kubeletx.api import ImageStatus, UnitId, UnitStatus
from kubeletx.kube.types.core import Container, ExecAction, Lifecycle, LifecycleHandler
from kubeletx.pods.model import actions as act
from kubeletx.pods.model.facts import ActionFailure, HookState, UnitFacts, VolumeFacts
from kubeletx.pods.plan.pod import plan_pod
from tests.unit.pods.status_model import at, facts, pod, unit

IMAGE = ImageStatus(id="i", ref="i")
HOOK = Lifecycle(post_start=LifecycleHandler(exec=ExecAction(command=("true",))))
POD = pod(
    Container(name="before", image="img"),
    Container(name="proxy", image="img", lifecycle=HOOK),
    Container(name="after", image="img"),
)
LATER = ActionFailure(reason="Error", message="", retry_at=1000.0, delay_seconds=10.0, count=1)


def started(*units: UnitStatus, **known: UnitFacts) -> list[str]:
    everything = {name: UnitFacts(image=IMAGE) for name in ("before", "proxy", "after")} | known
    state = facts(*units, volumes=VolumeFacts(ready=True), units=everything)
    return [one.name for one in plan_pod(POD, state, at(100.0)).actions if isinstance(one, act.StartUnit)]


def test_what_stands_before_the_hook_does_not_wait() -> None:
    assert started() == ["before", "proxy"]


@pytest.mark.parametrize(
    ("hook", "names"),
    [
        (HookState.PENDING, []),
        (HookState.RUNNING, []),
        (HookState.DONE, ["after"]),
        (HookState.FAILED, ["after"]),
    ],
)
def test_what_stands_after_it_waits_until_the_hook_is_done(hook: HookState, names: list[str]) -> None:
    proxy = UnitFacts(image=IMAGE, hook=hook, hook_unit=UnitId("proxy-0"))
    assert started(unit("before"), unit("proxy"), proxy=proxy) == names


def test_it_waits_for_the_image_too() -> None:
    assert started(unit("before"), proxy=UnitFacts()) == []


@pytest.mark.parametrize("known", [UnitFacts(image_failure=LATER), UnitFacts(image=IMAGE, failure=LATER)])
def test_a_container_that_cannot_start_holds_no_one_back(known: UnitFacts) -> None:
    assert started(unit("before"), proxy=known) == ["after"]
