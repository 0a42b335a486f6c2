"""Plan, back-off, probes and status played together: what a user sees over a container's life."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import UnitId
from kubeletx.kube.types.core import Container, ExecAction, PodStatus, Probe
from kubeletx.pods.model import actions as act
from kubeletx.pods.model import results
from kubeletx.pods.model.facts import ProbeFacts
from kubeletx.pods.status.build import NodeIdentity, build_status
from tests.unit.pods.pod_model import PodModel, make_pod
from tests.unit.pods.status_model import condition, container

NODE = NodeIdentity(name="n")
PROBE = Probe(exec=ExecAction(command=("true",)))


def see(model: PodModel) -> PodStatus:
    """Publish: build the status from a fresh look and remember it."""
    model.facts = replace(model.facts, snapshot=model.snapshot())
    status = build_status(model.desired, model.facts, model.now(), NODE)
    model.facts = replace(model.facts, previous_status=status)
    return status


def starts(model: PodModel) -> int:
    return sum(isinstance(a, act.StartUnit) for a in model.journal)


def test_a_crash_loop_waits_10_20_40_seconds_and_says_so() -> None:
    model = PodModel(make_pod(("a",)))
    model.settle()
    model.exit("a", 1)
    model.settle()
    assert container(see(model), "a").restart_count == 1
    for number, seconds in enumerate((10, 20, 40), start=2):
        model.exit("a", 1)
        model.turn()
        shown = container(see(model), "a")
        assert shown.state.waiting is not None
        assert shown.state.waiting.reason == "CrashLoopBackOff"
        assert f"back-off {seconds}s restarting failed container=a" in (shown.state.waiting.message or "")
        model.mono += seconds - 1
        model.settle()
        assert starts(model) == number
        model.mono += 1
        model.settle()
        assert starts(model) == number + 1
        status = see(model)
        assert container(status, "a").restart_count == number
        assert status.phase == "Running"


def test_an_unhealthy_container_is_killed_and_started_again_and_the_pod_goes_on() -> None:
    desired = make_pod((), policy="OnFailure")
    spec = replace(desired.pod.spec, containers=(Container(name="a", image="i", liveness_probe=PROBE),))
    model = PodModel(replace(desired, pod=replace(desired.pod, spec=spec)))
    model.settle()
    first = model.units[0].summary.id
    failed = ProbeFacts(unit_id=UnitId(first), liveness=False)
    model.facts = results.apply(model.facts, results.Probed("a", failed), model.now())
    model.settle()
    stop = next(a for a in model.journal if isinstance(a, act.StopUnit))
    assert (stop.unit_id, stop.reason) == (first, "Unhealthy")
    shown = container(see(model), "a")
    assert shown.state.running is not None
    assert shown.restart_count == 1
    assert model.units[0].summary.id != first


def test_a_job_is_pending_running_succeeded_and_never_anything_else() -> None:
    model = PodModel(make_pod(("a",), init=(Container(name="i", image="i"),), policy="Never"))
    assert see(model).phase == "Pending"
    model.settle()
    assert see(model).phase == "Pending"
    model.exit("i", 0)
    model.settle()
    assert see(model).phase == "Running"
    model.exit("a", 0)
    model.settle()
    status = see(model)
    assert status.phase == "Succeeded"
    assert condition(status, "Ready").reason == "PodCompleted"
    model.restart_agent()
    model.facts = replace(model.facts, previous_status=status)
    model.settle()
    assert see(model).phase == "Succeeded"
    assert starts(model) == 2
