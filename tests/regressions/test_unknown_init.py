"""An init container in an unknown state is stopped and run again, as a kubelet does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubeletx.api import UnitState
from kubeletx.kube.types.core import Container
from kubeletx.pods.model import actions as act
from tests.unit.pods.pod_model import PodModel, make_pod

INIT = (Container(name="init", image="i"),)


def model_with_unknown_init(policy: str = "Always") -> PodModel:
    model = PodModel(make_pod(init=INIT, policy=policy))
    model.settle()
    assert model.alive() == ["init"]
    summary = replace(model.units[0].summary, state=UnitState.UNKNOWN)
    model.units[0] = replace(model.units[0], summary=summary)
    model.journal.clear()
    return model


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
@pytest.mark.parametrize("code", [0, 137])
def test_an_init_container_in_unknown_state_is_stopped_and_run_again(policy: str, code: int) -> None:
    model = model_with_unknown_init(policy)
    stopped = model.turn().actions
    assert [type(one) for one in stopped] == [act.StopUnit]
    model.units[0] = replace(model.units[0], exit_code=code)
    model.settle()
    assert model.alive() == ["init"]
    assert [unit.summary.attempt for unit in model.units] == [1, 0]


def test_under_policy_never_an_unknown_init_container_fails_the_pod() -> None:
    model = model_with_unknown_init("Never")
    model.settle()
    assert model.alive() == []
    assert not any(isinstance(one, act.StartUnit) for one in model.journal)


def test_a_regular_container_waits_until_the_unknown_init_container_ran_again() -> None:
    model = model_with_unknown_init()
    model.settle()
    model.exit("init", 0)
    model.settle()
    assert model.alive() == ["web"]


@pytest.mark.parametrize("init", [(), INIT], ids=["regular", "init"])
def test_a_container_in_unknown_state_outside_the_new_sandbox_runs_there_again(
    init: tuple[Container, ...],
) -> None:
    model = PodModel(make_pod(init=init))
    model.settle()
    (name,) = model.alive()
    summary = replace(model.units[0].summary, state=UnitState.UNKNOWN)
    model.units[0] = replace(model.units[0], summary=summary)
    model.lose_sandbox()
    model.settle()
    assert model.alive() == [name]
    assert model.units[0].summary.sandbox_id == model.sandboxes[0].id
