"""Events about nodes as thresholds."""

from __future__ import annotations

from datetime import timedelta

from kubeletx.kube.types.event import Event
from kubeletx.kube.types.meta import ObjectMeta, ObjectReference
from tests.unit.remedy.trial import Trial

OOMS = """
apiVersion: node-remedy/v1alpha
kind: Configuration
thresholdConfigs:
- nodeEventReason: OOMKilling
  nodeEventCount: 3
  nodeEventPeriod: 10m
  remedy1: {name: reset}
remedyConfigs:
- name: reset
  podTemplate: {spec: {containers: [{name: a, image: b}], restartPolicy: Never}}
"""


def happen(
    trial: Trial, uid: str, count: int = 1, *, node: str = "n1", reason: str = "OOMKilling", ago: float = 0.0
) -> None:
    """Report an event about a node: the first one `ago` seconds before the last."""
    trial.events.put(
        Event(
            metadata=ObjectMeta(uid=uid, name=uid),
            involved_object=ObjectReference(kind="Node", name=node),
            reason=reason,
            count=count,
            first_timestamp=trial.now - timedelta(seconds=ago),
            last_timestamp=trial.now,
        )
    )


def trial_of_events() -> Trial:
    trial = Trial(text=OOMS, maps={})
    trial.run(100, step=100)
    return trial


def test_so_many_events_within_the_period_start_a_remedy_and_not_again_after_it() -> None:
    trial = trial_of_events()
    for number in range(2):
        happen(trial, f"e{number}")
        happen(trial, f"other{number}", reason="Rebooted")
        happen(trial, f"n2-{number}", node="n2")
    trial.run(60)
    assert trial.fences == {}
    happen(trial, "e2")
    trial.run(120)
    assert (trial.calls, trial.state()) == (["n1/reset", "n1/restore"], "Recovery/Final")
    trial.run(600, step=10)
    assert "n1/reset" not in trial.calls[1:]
    assert trial.fences.keys() == {"n1"}


def test_the_count_of_an_event_that_repeats_is_followed() -> None:
    trial = trial_of_events()
    happen(trial, "e")
    for count in (1, 2, 2):  # the last one is listed again
        happen(trial, "e", count)
    trial.run(5)
    assert trial.calls == []
    happen(trial, "e", 3)
    trial.run(5)
    assert trial.calls == ["n1/reset"]


def test_of_an_event_that_was_not_followed_only_the_first_and_the_last_time_count() -> None:
    trial = trial_of_events()
    happen(trial, "e", 500, ago=60.0)
    trial.run(60)
    assert trial.calls == []


def test_events_that_are_far_apart_start_nothing() -> None:
    trial = trial_of_events()
    for number in range(5):
        happen(trial, f"e{number}")
        trial.run(400, step=10)
    assert trial.calls == []


def test_events_that_go_on_after_the_remedy_lead_to_the_next_attempt() -> None:
    trial = trial_of_events()
    for number in range(3):
        happen(trial, f"e{number}")
    trial.run(5)
    trial.run(5)
    for number in range(3):
        happen(trial, f"again{number}")
    trial.run(400)
    assert trial.calls.count("n1/reset") == 2
