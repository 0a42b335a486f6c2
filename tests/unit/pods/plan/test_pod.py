"""The plan, played through on a model runtime: order, restarts, ends and deletions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import UnitId, UnitState
from kubeletx.kube.types.core import Container, PodIP, PodStatus
from kubeletx.pods.model import actions as act
from kubeletx.pods.model import results
from kubeletx.pods.model.draft import Goal
from kubeletx.pods.plan.doubt import CONFIRMING_LOOKS
from kubeletx.pods.plan.pod import limit_end, plan_pod
from kubeletx.pods.plan.progress import has_ended
from kubeletx.pods.plan.units import STARTS_AT_ONCE
from tests.unit.pods.pod_model import PodModel, make_pod


def started(model: PodModel) -> list[str]:
    return [a.name for a in model.journal if isinstance(a, act.StartUnit)]


def test_a_new_pod_binds_first_and_starts_its_units_in_spec_order() -> None:
    model = PodModel(make_pod(("a", "b")))
    model.settle()
    assert isinstance(model.journal[0], act.Bind)
    assert started(model) == ["a", "b"]
    assert model.alive() == ["b", "a"]


def test_init_units_run_one_by_one_before_the_regular_ones() -> None:
    model = PodModel(make_pod(("a",), init=(Container(name="i1"), Container(name="i2"))))
    model.settle()
    assert started(model) == ["i1"]
    model.exit("i1", 0)
    model.settle()
    assert started(model) == ["i1", "i2"]
    model.exit("i2", 0)
    model.settle()
    assert started(model) == ["i1", "i2", "a"]
    model.exit("a", 1)
    model.settle()
    assert started(model) == ["i1", "i2", "a", "a"]


def test_a_sidecar_goes_on_beside_the_regular_unit_and_stops_after_it() -> None:
    sidecar = Container(name="side", restart_policy="Always")
    model = PodModel(make_pod(("a",), init=(sidecar, Container(name="i1"))))
    model.settle()
    assert started(model) == ["side", "i1"]
    model.exit("i1", 0)
    model.settle()
    assert sorted(model.alive()) == ["a", "side"]
    model.delete()
    model.settle()
    stops = [a.name for a in model.journal if isinstance(a, act.StopUnit)]
    assert stops == ["a", "side"]
    assert model.finished


def test_a_failing_unit_waits_longer_each_time() -> None:
    model = PodModel(make_pod())
    model.settle()
    waits = []
    for _ in range(4):
        model.exit("web", 1)
        plan = model.settle()
        if plan.wake_at is not None:
            waits.append(round(plan.wake_at - model.mono))
            model.mono = plan.wake_at
            model.settle()
    assert waits == [10, 20, 40]
    assert len(started(model)) == 5


def test_a_job_pod_ends_and_keeps_its_binding_and_dead_units() -> None:
    model = PodModel(make_pod(policy="OnFailure"))
    model.settle()
    model.exit("web", 0)
    plan = model.settle()
    assert plan.goal is Goal.END
    assert has_ended(model.desired, model.facts)
    assert model.units
    assert not any(isinstance(a, act.RemoveSandbox | act.Unbind) for a in model.journal)
    model.restart_agent()
    assert model.settle().goal is Goal.END
    assert len(started(model)) == 1


def test_a_failed_init_unit_with_policy_never_ends_the_pod() -> None:
    model = PodModel(make_pod(policy="Never", init=(Container(name="i1"),)))
    model.settle()
    model.exit("i1", 3)
    assert model.settle().goal is Goal.END
    assert started(model) == ["i1"]


def test_a_dead_sandbox_is_replaced_with_the_next_attempt() -> None:
    model = PodModel(make_pod())
    model.settle()
    model.lose_sandbox()
    model.settle()
    made = [a.attempt for a in model.journal if isinstance(a, act.CreateSandbox)]
    assert made == [0, 1]
    assert model.alive() == ["web"]


def test_a_changed_image_restarts_that_unit_alone() -> None:
    model = PodModel(make_pod(("a", "b")))
    model.settle()
    pod = model.desired.pod
    containers = (replace(pod.spec.containers[0], image="i2"), pod.spec.containers[1])
    model.desired = replace(
        model.desired, pod=replace(pod, spec=replace(pod.spec, containers=containers)), spec_hash="h2"
    )
    model.settle()
    assert started(model) == ["a", "b", "a"]


def test_nothing_is_done_while_the_runtime_does_not_answer() -> None:
    from kubeletx.pods.model.facts import Outage

    model = PodModel(make_pod())
    model.settle()
    model.facts = replace(model.facts, outage=Outage(since=model.now().wall, reason="r", message="m"))
    model.exit("web", 1)
    before = len(model.journal)
    model.turn()
    assert len(model.journal) == before


def test_news_of_an_object_bring_its_files_and_units_go_on_meanwhile() -> None:
    model = PodModel(make_pod())
    model.settle()
    model.journal.clear()
    model.failing = (act.PrepareVolumes,)
    model.facts = results.apply(model.facts, results.ObjectsChanged(), model.now())
    model.turn()
    assert [type(one) for one in model.journal] == [act.PrepareVolumes]
    model.exit("web", 1)
    model.mono += 1
    model.settle()
    assert any(isinstance(one, act.StartUnit) for one in model.journal)  # with the files as they were
    model.failing = ()
    model.mono += 200
    model.settle()
    assert (model.facts.volumes.ready, model.facts.volumes.stale_at) == (True, None)


def test_news_that_come_while_files_are_written_are_not_lost() -> None:
    model = PodModel(make_pod())
    model.settle()
    began = model.mono
    model.mono += 1
    model.facts = results.apply(model.facts, results.ObjectsChanged(), model.now())
    model.facts = results.apply(model.facts, results.VolumesReady(began), model.now())
    assert model.facts.volumes.stale_at == model.mono
    assert act.PrepareVolumes() in plan_pod(model.desired, model.facts, model.now()).actions


def test_news_of_an_object_end_the_wait_of_a_container_that_lacked_it() -> None:
    model = PodModel(make_pod())
    model.settle()
    now = model.now()
    model.facts = results.apply(
        model.facts, results.UnitFailed("web", "CreateContainerConfigError", "missing", created=False), now
    )
    failure = results.apply(model.facts, results.ObjectsChanged(), now).unit("web").failure
    assert failure is not None
    assert failure.retry_at == now.mono
    other = results.apply(
        model.facts, results.UnitFailed("web", "RunContainerError", "no", created=False), now
    )
    assert (
        results.apply(other, results.ObjectsChanged(), now).unit("web").failure == other.unit("web").failure
    )


def test_an_edited_pod_is_tried_at_once_and_another_image_has_a_back_off_of_its_own() -> None:
    model = PodModel(make_pod())
    model.settle()
    before = model.desired.pod
    now = model.now()
    failed = results.apply(
        model.facts, results.UnitFailed("web", "CreateContainerConfigError", "missing", created=False), now
    )
    failed = results.apply(failed, results.ImageFailed("web", "ErrImagePull", "no such image"), now)
    same = results.apply(failed, results.PodEdited(before, before), now).unit("web")
    assert same.failure is not None
    assert same.failure.retry_at == now.mono
    assert same.image_failure == failed.unit("web").image_failure
    (container,) = before.spec.containers
    after = replace(before, spec=replace(before.spec, containers=(replace(container, image="other"),)))
    assert results.apply(failed, results.PodEdited(before, after), now).unit("web").image_failure is None


def test_a_container_with_another_image_restarts_at_once_and_its_back_off_begins_again() -> None:
    model = PodModel(make_pod(("web", "other")))
    model.settle()
    for _ in range(4):
        for name in ("web", "other"):
            model.exit(name, 1)
        model.settle()
        model.mono += 100
        model.settle()
    for name in ("web", "other"):
        model.exit(name, 1)
    model.settle()
    assert model.alive() == []
    before = model.desired.pod
    web, other = before.spec.containers
    after = replace(before, spec=replace(before.spec, containers=(replace(web, image="repaired"), other)))
    model.desired = replace(model.desired, pod=after, spec_hash="h2")
    model.apply(results.PodEdited(before, after), None)
    model.settle()
    assert model.alive() == ["web"]
    model.exit("web", 1)
    model.settle()
    model.mono += 11
    model.settle()
    assert model.alive() == ["web"]


def test_the_containers_of_a_large_pod_start_a_few_at_a_time_in_spec_order() -> None:
    names = tuple(f"c{n}" for n in range(20))
    model = PodModel(make_pod(names))
    waves = []
    while actions := model.turn().actions:
        waves.append(sum(isinstance(action, act.StartUnit) for action in actions))
    assert started(model) == list(names)
    assert max(waves) == STARTS_AT_ONCE


def test_no_next_attempt_before_a_look_begun_after_the_deadline() -> None:
    model = PodModel(make_pod())
    model.turn()
    model.facts = replace(model.facts, unsettled_until=model.mono + 10)
    plan = model.settle()
    assert plan.wake_at is not None
    assert not any(isinstance(a, act.CreateSandbox) for a in model.journal)
    model.mono += 11
    model.settle()
    assert model.alive() == ["web"]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_a_wrong_list_lacks_is_looked_for_twice_more_before_it_is_believed(is_deleted: bool) -> None:
    model = PodModel(make_pod(init=(Container(name="i"),)))
    model.publishes = True
    model.settle()
    model.exit("i", 0)
    model.settle()
    published = model.facts.previous_status
    model.journal.clear()
    if is_deleted:
        model.delete()
    model.hidden = CONFIRMING_LOOKS
    for _ in range(CONFIRMING_LOOKS):
        assert model.turn().in_doubt
        assert model.facts.previous_status == published
    assert model.journal == [act.Look()] * CONFIRMING_LOOKS
    model.hidden, model.units, model.sandboxes = 1, [], []
    assert not model.turn().in_doubt
    assert is_deleted or any(isinstance(one, act.CreateSandbox) for one in model.journal)


def test_an_init_container_that_was_created_beside_running_containers_is_removed() -> None:
    model = PodModel(make_pod(init=(Container(name="i"),)))
    model.settle()
    model.exit("i", 0)
    model.settle()
    ended = next(one for one in model.units if one.summary.name == "i")
    created = replace(ended.summary, id=UnitId("late"), attempt=1, state=UnitState.CREATED)
    model.units.insert(0, replace(ended, summary=created, exit_code=None))
    model.settle()
    assert [one.summary.name for one in model.units] == ["web", "i"]
    assert started(model) == ["i", "web"]


def test_an_active_limit_ends_the_pod_once() -> None:
    model = PodModel(make_pod())
    model.settle()
    model.facts = replace(model.facts, deadline_at=model.mono)
    end = limit_end(model.desired, model.facts, model.now())
    assert end is not None
    assert end.reason == "DeadlineExceeded"
    model.desired = replace(model.desired, deletion=end)
    assert limit_end(model.desired, model.facts, model.now()) is None
    assert model.settle().goal is Goal.END
    assert model.alive() == []


def test_a_stop_that_fails_is_tried_again_with_a_pause() -> None:
    model = PodModel(make_pod())
    model.settle()
    pod = model.desired.pod
    changed = replace(pod.spec.containers[0], image="i2")
    model.desired = replace(
        model.desired, pod=replace(pod, spec=replace(pod.spec, containers=(changed,))), spec_hash="h2"
    )
    model.failing = (act.StopUnit,)
    plan = model.settle()
    assert plan.wake_at is not None
    assert plan.wake_at > model.mono
    model.failing = ()
    model.mono += 10
    model.settle()
    assert started(model) == ["web", "web"]


def test_a_failed_create_may_have_left_something_so_the_pod_is_looked_at_before_it_is_gone() -> None:
    model = PodModel(make_pod())
    model.turn()
    stale = model.snapshot()
    model.failing = (act.CreateSandbox,)
    model.settle()
    assert any(isinstance(a, act.CreateSandbox) for a in model.journal)
    model.delete()
    model.facts = replace(model.facts, snapshot=stale)
    plan = plan_pod(model.desired, model.facts, model.now())
    assert [type(a) for a in plan.actions] == [act.Look]


@pytest.mark.parametrize("never_ran", [True, False])
def test_a_pod_without_a_network_goes_although_its_sandbox_cannot_be_removed(never_ran: bool) -> None:
    model = PodModel(make_pod())
    model.failing = (act.StartUnit,) if never_ran else ()
    for _ in range(5):
        model.turn()
    status = PodStatus(pod_ips=() if never_ran else (PodIP(ip="10.0.0.1"),))
    model.facts = replace(model.facts, previous_status=status)
    model.failing = (act.RemoveSandbox,)
    model.delete()
    for _ in range(40):
        if model.finished:
            break
        model.turn()
        model.mono += 1
    assert model.finished is never_ran
    assert model.sandboxes
    assert sum(isinstance(one, act.RemoveSandbox) for one in model.journal) >= 3


@pytest.mark.parametrize(
    "failing", [act.Bind, act.PrepareVolumes, act.EnsureImage, act.CreateSandbox, act.StartUnit]
)
def test_an_end_does_not_wait_for_the_next_try_of_what_failed_before(failing: type[act.Action]) -> None:
    model = PodModel(make_pod())
    model.failing = (failing,)
    for _ in range(12):
        model.turn()
        model.mono += 100
    model.turn()
    began = model.mono
    model.delete()
    model.settle()
    assert model.finished
    assert model.mono - began < 1


def test_a_release_that_fails_is_tried_again_with_a_pause() -> None:
    model = PodModel(make_pod())
    model.settle()
    model.failing = (act.ReleaseVolumes,)
    model.delete()
    wake_at = model.settle().wake_at
    assert wake_at is not None
    assert wake_at > model.mono
    model.failing = ()
    model.mono = wake_at
    model.settle()
    assert model.finished


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("exit"), st.sampled_from(["a", "b", "i1", "side"]), st.sampled_from([0, 1])),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
        st.tuples(st.just("sandbox"), st.just(""), st.just(0)),
        st.tuples(st.just("hide"), st.just(""), st.integers(1, CONFIRMING_LOOKS - 1)),
        st.tuples(st.just("wait"), st.just(""), st.sampled_from([1, 30, 1000])),
        st.tuples(st.just("turn"), st.just(""), st.integers(1, 3)),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(
    events=EVENTS,
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    with_init=st.booleans(),
    has_sessions=st.booleans(),
)
def test_any_history_stays_sound_and_a_deletion_always_ends_clean(
    events: list[tuple[str, str, int]], policy: str, with_init: bool, has_sessions: bool
) -> None:
    init = (Container(name="side", restart_policy="Always"), Container(name="i1")) if with_init else ()
    model = PodModel(make_pod(("a", "b"), init=init, policy=policy))
    model.publishes = True
    for kind, name, value in events:
        match kind:
            case "exit":
                model.exit(name, value)
            case "restart":
                model.restart_agent()
            case "sandbox":
                model.lose_sandbox()
            case "hide":
                before, running = len(model.journal), model.alive()
                model.hidden = value if running else 0
                for _ in range(value if running else 0):
                    model.turn()
                assert {type(one) for one in model.journal[before:]} <= {act.Look}
                assert model.alive() == running
            case "wait":
                model.mono += value
            case "turn":
                for _ in range(value):
                    model.turn()
                continue
        model.settle()
        ready = [s for s in model.sandboxes if s.state.value == "ready"]
        assert len(ready) <= 1
    model.journal.clear()
    was_alive = bool(model.alive())
    model.delete()
    model.facts = replace(model.facts, has_sessions=has_sessions)
    model.settle()
    assert model.finished
    assert not model.units
    assert not model.sandboxes
    ends = [type(one) for one in model.journal if isinstance(one, act.Evacuate | act.StopUnit)]
    assert ends[:1] == ([act.Evacuate] if has_sessions and was_alive else ends[:1])
    assert ends.count(act.Evacuate) == (has_sessions and was_alive)
