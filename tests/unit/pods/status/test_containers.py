"""Statuses of single containers (ST4 to ST6, ST8, ST9; B1, B3, T1, P2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import UnitId, UnitState
from kubeletx.kube.types.core import Container, EphemeralContainer, ExecAction, Probe, VolumeMount
from kubeletx.pods.model.facts import (
    ActionFailure,
    HookState,
    Outage,
    ProbeFacts,
    RestartBackoff,
    UnitFacts,
    Waiting,
)
from kubeletx.pods.status.build import status_changes_at
from tests.unit.pods.status_model import START, at, container, exited, facts, pod, status_of, unit

PROBE = Probe(exec=ExecAction(command=("true",)))
CREATED = UnitState.CREATED


def test_a_running_container_shows_ids_image_and_start() -> None:
    shown = container(status_of(pod("web"), facts(unit("web"))), "web")
    assert shown.container_id == "fakerun://web-0"
    assert shown.image == "docker.io/img"
    assert shown.image_id == "sha256:1"
    assert shown.state.running is not None
    assert shown.state.running.started_at is not None
    assert (shown.ready, shown.started, shown.restart_count) == (True, True, 0)


def test_a_list_that_has_only_the_images_id_does_not_hide_its_name() -> None:
    known = facts(unit("web"))
    assert known.snapshot is not None
    listed = tuple(replace(one, image="sha256:1") for one in known.snapshot.units)
    with_status = replace(known, snapshot=replace(known.snapshot, units=listed))
    assert container(status_of(pod("web"), with_status), "web").image == "docker.io/img"
    only_listed = replace(known, snapshot=replace(known.snapshot, units=listed, statuses={}))
    assert container(status_of(pod("web"), only_listed), "web").image == "img"
    before = status_of(pod("web"), known)
    later = replace(only_listed, previous_status=before)
    assert container(status_of(pod("web"), later), "web").image == "docker.io/img"


def test_a_list_that_has_only_the_images_own_digest_does_not_hide_where_it_came_from() -> None:
    known = facts(unit("web"))
    assert known.snapshot is not None
    from_registry = "registry.local/img@sha256:2"
    reported = {
        one: replace(status, image_ref=from_registry) for one, status in known.snapshot.statuses.items()
    }
    before = status_of(pod("web"), replace(known, snapshot=replace(known.snapshot, statuses=reported)))
    assert container(before, "web").image_id == from_registry
    only_listed = replace(known, snapshot=replace(known.snapshot, statuses={}), previous_status=before)
    assert container(status_of(pod("web"), only_listed), "web").image_id == from_registry


def test_an_ended_container_shows_code_reason_and_times() -> None:
    known = facts(exited("web", 3, reason="Error", message="boom"))
    ended = container(status_of(pod("web", policy="Never"), known), "web").state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.reason, ended.message) == (3, "Error", "boom")
    assert ended.container_id == "fakerun://web-0"
    assert ended.started_at is not None
    assert ended.finished_at is not None


def test_a_runtime_that_gives_no_reason_gets_completed_or_error() -> None:
    for code, reason in ((0, "Completed"), (1, "Error")):
        ended = container(status_of(pod("a", policy="Never"), facts(exited("a", code))), "a").state.terminated
        assert ended is not None
        assert ended.reason == reason


@pytest.mark.parametrize(("init", "reason"), [(False, "ContainerCreating"), (True, "PodInitializing")])
def test_a_container_that_is_to_come_waits_with_the_kubelets_reason(init: bool, reason: str) -> None:
    desired = pod("web", init=(Container(name="i"),) if init else ())
    waiting = container(status_of(desired, facts(sandbox=None)), "web").state.waiting
    assert waiting is not None
    assert waiting.reason == reason


@pytest.mark.parametrize(
    "reason",
    [
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
    ],
)
def test_a_failed_start_is_the_reason_for_waiting(reason: str) -> None:
    known = facts(units={"web": UnitFacts(failure=ActionFailure(reason=reason, message="m", retry_at=101))})
    waiting = container(status_of(pod("web"), known), "web").state.waiting
    assert waiting is not None
    assert (waiting.reason, waiting.message) == (reason, "m")


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "InvalidImageName", "ImageInspectError"])
def test_image_failures_without_pull_keep_their_reason(reason: str) -> None:
    failed = ActionFailure(reason=reason, message="m", retry_at=110, delay_seconds=10)
    known = facts(units={"web": UnitFacts(image_failure=failed)})
    waiting = container(status_of(pod("web"), known, 109), "web").state.waiting
    assert waiting is not None
    assert waiting.reason == reason


@pytest.mark.parametrize("reason", ["ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"])
def test_a_failed_pull_is_shown_first_and_then_as_image_pull_back_off(reason: str) -> None:
    failed = ActionFailure(reason=reason, message="not found", retry_at=110, delay_seconds=10)
    known = facts(units={"web": UnitFacts(image_failure=failed)})
    first = container(status_of(pod("web"), known, 100.5), "web").state.waiting
    later = container(status_of(pod("web"), known, 101.5), "web").state.waiting
    assert first is not None
    assert later is not None
    assert first.reason == reason
    assert later.reason == "ImagePullBackOff"
    assert later.message == f'Back-off pulling image "img": {reason}: not found'
    assert status_changes_at(known, at(100.5)) == 101
    assert status_changes_at(known, at(101.5)) is None


def test_a_crash_loop_waits_with_the_kubelets_text_and_shows_the_end_as_last_state() -> None:
    known = facts(
        exited("web", 1, attempt=2),
        units={"web": UnitFacts(exited_at=99.0, backoff=RestartBackoff(delay_seconds=80, updated_at=50))},
    )
    shown = container(status_of(pod("web"), known), "web")
    assert shown.state.waiting is not None
    assert shown.state.waiting.reason == "CrashLoopBackOff"
    assert shown.state.waiting.message == "back-off 1m20s restarting failed container=web pod=p_default(u1)"
    assert shown.last_state.terminated is not None
    assert shown.last_state.terminated.exit_code == 1
    assert shown.restart_count == 2


def test_once_the_back_off_is_over_the_end_itself_is_shown() -> None:
    entry = UnitFacts(exited_at=99.0, backoff=RestartBackoff(delay_seconds=10, updated_at=50))
    known = facts(exited("web", 1), units={"web": entry})
    assert container(status_of(pod("web"), known, 110), "web").state.terminated is not None


def test_a_container_that_will_not_run_again_stays_terminated_whatever_is_known() -> None:
    entry = UnitFacts(
        exited_at=99.0,
        backoff=RestartBackoff(delay_seconds=10, updated_at=50),
        failure=ActionFailure(reason="RunContainerError", message="", retry_at=None),
    )
    known = facts(exited("a"), unit("b"), units={"a": entry})
    assert container(status_of(pod("a", "b", policy="OnFailure"), known), "a").state.terminated is not None


def test_the_run_before_is_the_last_state() -> None:
    known = facts(unit("web", attempt=1), exited("web", 7))
    shown = container(status_of(pod("web"), known), "web")
    assert shown.state.running is not None
    assert shown.last_state.terminated is not None
    assert shown.last_state.terminated.exit_code == 7
    assert shown.restart_count == 1


def test_the_last_state_survives_the_runtimes_forgetting() -> None:
    before = status_of(pod("web"), facts(unit("web", attempt=1), exited("web", 7)))
    shown = container(status_of(pod("web"), facts(unit("web", attempt=1), previous_status=before)), "web")
    assert shown.last_state.terminated is not None
    assert shown.last_state.terminated.exit_code == 7


def test_a_container_that_ran_and_cannot_be_found_is_unknown_with_137() -> None:
    desired = pod("web", policy="Never")
    before = status_of(desired, facts(unit("web")))
    after = status_of(desired, facts(previous_status=before))
    ended = container(after, "web").state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.reason) == (137, "ContainerStatusUnknown")
    assert ended.container_id == "fakerun://web-0"
    assert after.phase == "Failed"


def test_a_lost_container_that_runs_again_counts_one_restart_and_only_one() -> None:
    desired = pod("web")
    status = status_of(desired, facts(unit("web")))
    for _ in range(3):
        status = status_of(desired, facts(previous_status=status))
        shown = container(status, "web")
        assert shown.state.waiting is not None
        assert shown.restart_count == 1
        assert shown.last_state.terminated is not None
        assert shown.last_state.terminated.reason == "ContainerStatusUnknown"
    again = container(status_of(desired, facts(unit("web"), previous_status=status)), "web")
    assert again.state.running is not None
    assert again.restart_count == 1


def test_a_finished_container_that_the_runtime_forgot_keeps_its_end() -> None:
    desired = pod("a", "b", policy="OnFailure")
    before = status_of(desired, facts(exited("a"), unit("b")))
    shown = container(status_of(desired, facts(unit("b"), previous_status=before)), "a")
    assert shown == container(before, "a")


def test_unknown_state_after_running_is_status_unknown() -> None:
    desired = pod("web", policy="Never")
    before = status_of(desired, facts(unit("web")))
    known = facts(unit("web", UnitState.UNKNOWN), previous_status=before)
    ended = container(status_of(desired, known), "web").state.terminated
    assert ended is not None
    assert ended.reason == "ContainerStatusUnknown"


def test_unknown_state_without_history_waits() -> None:
    known = facts(unit("web", UnitState.UNKNOWN))
    assert container(status_of(pod("web"), known), "web").state.waiting is not None


def test_an_end_that_only_the_list_reports_leaves_what_was_shown() -> None:
    desired = pod("web", policy="Never")
    before = status_of(desired, facts(unit("web")))
    known = facts(exited("web"), previous_status=before)
    assert known.snapshot is not None
    known = replace(known, snapshot=replace(known.snapshot, statuses={}))
    after = status_of(desired, known)
    assert container(after, "web").state.running is not None
    assert after.phase == "Running"


@pytest.mark.parametrize("state", [HookState.PENDING, HookState.RUNNING])
def test_a_container_is_not_shown_running_before_its_post_start_hook_is_done(state: HookState) -> None:
    known = facts(unit("web"), units={"web": UnitFacts(hook=state, hook_unit=UnitId("web-0"))})
    shown = container(status_of(pod("web"), known), "web")
    assert shown.state.waiting is not None
    assert (shown.started, shown.ready) == (False, False)


@pytest.mark.parametrize("state", [HookState.DONE, HookState.UNKNOWN])
def test_a_hook_that_is_done_or_will_never_be_told_of_does_not_hold_the_container(state: HookState) -> None:
    known = facts(unit("web"), units={"web": UnitFacts(hook=state, hook_unit=UnitId("web-0"))})
    assert container(status_of(pod("web"), known), "web").ready


def test_a_failed_post_start_hook_is_reported() -> None:
    entry = UnitFacts(
        hook=HookState.FAILED,
        hook_unit=UnitId("web-0"),
        failure=ActionFailure(reason="PostStartHookError", message="exit 1", retry_at=100),
    )
    waiting = container(status_of(pod("web"), facts(unit("web"), units={"web": entry})), "web").state.waiting
    assert waiting is not None
    assert waiting.reason == "PostStartHookError"


def test_readiness_starts_false_and_follows_the_probe_of_this_very_unit() -> None:
    desired = pod(Container(name="web", readiness_probe=PROBE))
    assert not container(status_of(desired, facts(unit("web"))), "web").ready
    for unit_id, value, ready in (("web-0", True, True), ("web-0", False, False), ("old", True, False)):
        probes = ProbeFacts(unit_id=UnitId(unit_id), readiness=value)
        known = facts(unit("web"), units={"web": UnitFacts(probes=probes)})
        assert container(status_of(desired, known), "web").ready is ready


def test_a_startup_probe_keeps_the_container_unstarted_and_unready() -> None:
    desired = pod(Container(name="web", startup_probe=PROBE))
    shown = container(status_of(desired, facts(unit("web"))), "web")
    assert (shown.started, shown.ready) == (False, False)
    probes = ProbeFacts(unit_id=UnitId("web-0"), startup=True)
    known = facts(unit("web"), units={"web": UnitFacts(probes=probes)})
    shown = container(status_of(desired, known), "web")
    assert (shown.started, shown.ready) == (True, True)


def test_after_a_restart_of_the_agent_readiness_and_start_are_kept() -> None:
    desired = pod(Container(name="web", readiness_probe=PROBE, startup_probe=PROBE))
    probes = ProbeFacts(unit_id=UnitId("web-0"), startup=True, readiness=True)
    before = status_of(desired, facts(unit("web"), units={"web": UnitFacts(probes=probes)}))
    assert container(before, "web").ready
    after = container(status_of(desired, facts(unit("web"), recovered=True, previous_status=before)), "web")
    assert (after.started, after.ready) == (True, True)
    other = facts(unit("web", attempt=1), recovered=True, previous_status=before)
    assert not container(status_of(desired, other), "web").ready


@pytest.mark.parametrize("state", [UnitState.PAUSED, UnitState.SUSPENDED])
def test_held_and_parked_units_are_shown_running_but_not_ready(state: UnitState) -> None:
    shown = container(status_of(pod("web"), facts(unit("web", state))), "web")
    assert shown.state.running is not None
    assert (shown.started, shown.ready) == (True, False)


def test_an_init_container_is_ready_once_it_completed() -> None:
    desired = pod("web", init=(Container(name="i"),))
    assert not container(status_of(desired, facts(unit("i"))), "i").ready
    assert container(status_of(desired, facts(exited("i"))), "i").ready
    assert not container(status_of(desired, facts(exited("i", 1))), "i").ready


def test_a_failed_init_container_waits_in_its_back_off() -> None:
    entry = UnitFacts(exited_at=99.0, backoff=RestartBackoff(delay_seconds=20, updated_at=50))
    known = facts(exited("i", 1), units={"i": entry})
    waiting = container(status_of(pod("web", init=(Container(name="i"),)), known), "i").state.waiting
    assert waiting is not None
    assert waiting.reason == "CrashLoopBackOff"


def test_a_completed_init_container_never_waits() -> None:
    entry = UnitFacts(exited_at=99.0, backoff=RestartBackoff(delay_seconds=20, updated_at=50))
    known = facts(exited("i"), units={"i": entry})
    shown = container(status_of(pod("web", init=(Container(name="i"),)), known), "i")
    assert shown.state.terminated is not None


def test_an_ephemeral_container_is_shown_apart_and_never_waits_again() -> None:
    desired = pod("web", ephemeral_containers=(EphemeralContainer(name="debug", image="sh"),))
    status = status_of(desired, facts(unit("web"), exited("debug", 1)))
    assert [s.name for s in status.ephemeral_container_statuses] == ["debug"]
    assert container(status, "debug").state.terminated is not None
    assert status.phase == "Running"


def test_termination_messages_share_12_kib() -> None:
    desired = pod("a", "b", policy="Never")
    entry = UnitFacts(termination_messages={UnitId("a-0"): "ä" * 5000})
    known = facts(exited("a", 1, message="from the runtime"), unit("b"), units={"a": entry})
    ended = container(status_of(desired, known), "a").state.terminated
    assert ended is not None
    assert ended.message is not None
    assert len(ended.message.encode()) == 6 * 1024
    short = UnitFacts(termination_messages={UnitId("a-0"): "from the file"})
    known = facts(exited("a", 1, message="from the runtime"), unit("b"), units={"a": short})
    ended = container(status_of(desired, known), "a").state.terminated
    assert ended is not None
    assert ended.message == "from the file: from the runtime"


def test_waiting_containers_tell_which_runtime_the_pod_waits_for() -> None:
    known = facts(
        sandbox=None,
        runtime=None,
        waiting=Waiting(reason="RuntimeNotReady", message="runtime gpu is not ready"),
    )
    waiting = container(status_of(pod("web"), known), "web").state.waiting
    assert waiting is not None
    assert (waiting.reason, waiting.message) == ("RuntimeNotReady", "runtime gpu is not ready")


def test_a_sandbox_that_cannot_be_made_is_reported_in_the_waiting_message() -> None:
    failure = ActionFailure(reason="FailedCreatePodSandBox", message="no CNI", retry_at=101)
    waiting = container(status_of(pod("a"), facts(sandbox=None, sandbox_failure=failure)), "a").state.waiting
    assert waiting is not None
    assert (waiting.reason, waiting.message) == ("ContainerCreating", "FailedCreatePodSandBox: no CNI")


def test_mounts_and_resources_are_reported_as_allocated() -> None:
    mounts = (VolumeMount(name="v", mount_path="/v", read_only=True), VolumeMount(name="w", mount_path="/w"))
    shown = container(status_of(pod(Container(name="a", volume_mounts=mounts)), facts(unit("a"))), "a")
    assert [m.recursive_read_only for m in shown.volume_mounts] == ["Disabled", None]


def test_without_an_answer_since_start_everything_stays_and_only_probes_change_readiness() -> None:
    desired = pod(Container(name="web", readiness_probe=PROBE))
    ready = ProbeFacts(unit_id=UnitId("web-0"), readiness=True)
    before = status_of(desired, facts(unit("web"), units={"web": UnitFacts(probes=ready)}))
    outage = Outage(since=START, reason="RuntimeUnavailable", message="no answer")
    known = facts(snapshot=None, outage=outage, recovered=True, previous_status=before)
    assert status_of(desired, known).container_statuses == before.container_statuses
    failed = UnitFacts(probes=ProbeFacts(unit_id=UnitId("web-0"), readiness=False))
    assert not container(status_of(desired, replace(known, units={"web": failed})), "web").ready


@given(attempts=st.lists(st.integers(0, 50), min_size=1, max_size=10))
def test_a_restart_count_never_shrinks(attempts: list[int]) -> None:
    desired, previous, last = pod("web"), None, 0
    for attempt in attempts:
        previous = status_of(desired, facts(unit("web", attempt=attempt), previous_status=previous))
        shown = container(previous, "web").restart_count
        assert shown >= max(last, attempt)
        last = shown
