"""Pod workers on fake runtimes: trouble between any two actions, and what a deletion interrupts."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import Conflict, EventKind, PodUid, RuntimeEvent, TimedOut, Unavailable
from kubeletx.kube.types.core import ExecAction, Lifecycle, LifecycleHandler, Pod, Probe
from kubeletx.pods.model.facts import Deletion
from kubeletx.pods.plan.units import STARTS_AT_ONCE
from kubeletx.runtimes.binding.bindings import Binding
from tests.unit.pods.manager_model import HURRIED, Node, a_pod

UID = PodUid("uid-web")
CHANGING = ("create_sandbox", "create_unit", "start_unit", "stop_unit", "stop_sandbox", "remove_sandbox")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, "one")


def with_container(**fields: object) -> Pod:
    """A pod whose one container has these fields beside its usual ones."""
    pod = a_pod()
    container = replace(pod.spec.containers[0], **fields)
    return replace(pod, spec=replace(pod.spec, containers=(container,)))


async def passes(node: Node, seconds: float) -> None:
    """Let time pass, for threads too."""
    end = node.clock.monotonic() + seconds
    await node.until(lambda: node.clock.monotonic() >= end)


async def gone(node: Node) -> None:
    """The pod has ended and left nothing."""
    await node.until(lambda: not node.manager.workers)
    backend = node.runtimes["one"].backend
    assert not backend.sandboxes
    assert not backend.units
    assert not node.registry.bindings()


# --- rule 8: no answer is not "not done" ---------------------------------------------------------------


@pytest.mark.parametrize("call", ["create_sandbox", "create_unit"])
@pytest.mark.parametrize("happened", [True, False])
async def test_after_a_create_that_timed_out_a_look_comes_before_the_next_attempt(
    node: Node, call: str, happened: bool
) -> None:
    async with node.running():
        runtime = node.runtimes["one"]
        runtime.script(call, error=TimedOut("late"), after_effect=happened, times=1)
        await node.start(a_pod())
        story = [c.method for c in runtime.journal if c.method in (call, "list_sandboxes")]
        first = story.index(call)
        assert "list_sandboxes" in story[first:]
        again = [i for i, method in enumerate(story) if method == call and i > first]
        if again:
            assert "list_sandboxes" in story[first : again[0]]
        assert len(runtime.backend.sandboxes) == 1
        assert node.alive() == ["web/c0"]


@pytest.mark.parametrize("call", CHANGING)
@pytest.mark.parametrize("error", [Unavailable("no answer"), TimedOut("late")])
@pytest.mark.parametrize("happened", [True, False])
async def test_any_call_may_fail_twice_and_the_pod_still_comes_and_goes(
    node: Node, call: str, error: Exception, happened: bool
) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.script(call, error=error, after_effect=happened, times=2)  # type: ignore[arg-type]
        await node.start(a_pod())
        assert node.alive() == ["web/c0"]
        assert len(runtime.backend.sandboxes) == 1
        manager.remove("file", UID)
        await gone(node)


async def test_a_changed_image_restarts_the_only_container_of_a_pod_that_restarts_nothing(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.backend.add_image("other")
        pod = with_container()
        pod = replace(pod, spec=replace(pod.spec, restart_policy="Never"))
        await node.start(pod)
        phases = []
        node.services.board.subscribe(lambda _pod, _facts, status: phases.append(status and status.phase))
        container = replace(pod.spec.containers[0], image="other")
        manager.update("file", replace(pod, spec=replace(pod.spec, containers=(container,))))
        await node.until(lambda: runtime.counts["start_unit"] == 2)
        await node.until(lambda: node.alive() == ["web/c0"])
        await passes(node, 5)
        assert node.phase(UID) == "Running"
        assert {"Failed", "Succeeded"}.isdisjoint(phases)


async def test_the_sandbox_has_the_handler_that_the_pods_runtime_class_names(node: Node) -> None:
    node.classes = {"gpu": "nvidia", "own": "one--kata"}
    async with node.running():
        for name, handler in (("gpu", "nvidia"), ("own", "kata")):
            node.runtimes["one"].handlers += (handler,)
            await node.start(a_pod(name, runtime_class_name=name))
        backend = node.runtimes["one"].backend
        assert [one.spec and one.spec.handler for one in backend.sandboxes.values()] == ["nvidia", "kata"]


async def test_another_image_cancels_the_pull_of_the_one_before(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.script("pull_image", hang=True, times=1)
        manager.update("file", with_container(image="slow"))
        await node.until(lambda: runtime.counts["pull_image"])
        manager.update("file", with_container())
        await node.until(lambda: node.alive() == ["web/c0"])


# --- deletion ------------------------------------------------------------------------------------------


async def test_a_deletion_cancels_a_pull(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.script("pull_image", hang=True)
        manager.update("file", with_container(image="slow"))
        await node.until(lambda: runtime.counts["pull_image"])
        manager.remove("file", UID)
        await gone(node)
        assert runtime.counts["create_unit"] == 0


async def test_a_deletion_ends_the_creation_of_the_other_containers(node: Node) -> None:
    node.limits = HURRIED
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.script("create_unit", hang=True)
        manager.update("file", a_pod(containers=30))
        await node.until(lambda: runtime.counts["create_unit"] >= STARTS_AT_ONCE)
        begun = runtime.counts["create_unit"]
        manager.remove("file", UID)
        await node.until(lambda: not manager.workers, 1e6)
        assert runtime.counts["create_unit"] == begun


async def test_a_deletion_cancels_a_post_start_hook(node: Node) -> None:
    hook = Lifecycle(post_start=LifecycleHandler(exec=ExecAction(command=("never",))))
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.script("exec_sync", hang=True)
        manager.update("file", with_container(lifecycle=hook))
        await node.until(lambda: runtime.counts["exec_sync"])
        assert node.alive() == ["web/c0"]
        manager.remove("file", UID)
        await gone(node)


async def test_a_deletion_does_not_wait_for_a_probe(node: Node) -> None:
    probe = Probe(exec=ExecAction(command=("never",)), period_seconds=1, timeout_seconds=1)
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.script("exec_sync", hang=True)
        await node.start(with_container(liveness_probe=probe))
        await node.until(lambda: runtime.counts["exec_sync"])
        manager.remove("file", UID)
        await gone(node)


async def test_a_deletion_waits_for_a_create_that_is_under_way_and_takes_it_along(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.latency["create_sandbox"] = 0.2
        manager.update("file", a_pod())
        await node.until(lambda: runtime.counts["create_sandbox"])
        manager.remove("file", UID)
        await gone(node)
        assert runtime.counts["create_sandbox"] == 1
        assert runtime.counts["create_unit"] == 0


async def test_a_shorter_grace_overtakes_a_stop_under_way_and_a_longer_one_does_not(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        await node.start(a_pod(termination_grace_period_seconds=600))
        slow = runtime.script("stop_unit", hang=True, times=1)
        manager.remove("file", UID)
        await node.until(lambda: runtime.counts["stop_unit"] == 1)
        manager.remove("file", UID, 900)
        await node.clock.run_for(5)
        assert runtime.counts["stop_unit"] == 1
        deletion = manager.workers[UID].desired.deletion
        assert deletion is not None
        assert deletion.grace_seconds == 600
        manager.remove("file", UID, 0, force=True)
        await node.until(lambda: runtime.counts["stop_unit"] == 2)
        await node.until(lambda: not node.alive())
        slow.release()
        await gone(node)


async def test_a_pod_that_ends_for_a_reason_of_the_node_still_goes_when_its_source_says_so(
    node: Node,
) -> None:
    async with node.running() as manager:
        worker = await node.start(a_pod())
        now = node.clock.monotonic()
        worker.delete(Deletion(requested_at=now, grace_seconds=1, reason="Evicted", message="no room"))
        await node.until(lambda: node.phase(UID) == "Failed")
        assert node.registry.bindings()
        manager.remove("file", UID)
        await gone(node)


async def test_a_deletion_gives_a_pod_that_is_being_evicted_no_more_time(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        worker = await node.start(a_pod(termination_grace_period_seconds=600))
        slow = runtime.script("stop_unit", hang=True, times=1)
        now = node.clock.monotonic()
        worker.delete(Deletion(requested_at=now, grace_seconds=20, reason="Evicted", message="no room"))
        await node.until(lambda: runtime.counts["stop_unit"] == 1)
        await node.clock.run_for(5)
        manager.remove("file", UID)
        deletion = worker.desired.deletion
        assert deletion is not None
        assert not deletion.reason
        assert deletion.requested_at + deletion.grace_seconds == pytest.approx(now + 20, abs=1)
        slow.release()
        await gone(node)


async def test_an_end_that_the_node_hastens_keeps_its_reason_and_only_shrinks(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        worker = await node.start(a_pod(termination_grace_period_seconds=600))
        manager.active.hasten(UID, grace_seconds=1)
        assert worker.desired.deletion is None, "it is not ending"
        slow = runtime.script("stop_unit", hang=True, times=1)
        assert manager.active.end(UID, grace_seconds=300, reason="DeadlineExceeded", message="too long")
        await node.until(lambda: runtime.counts["stop_unit"] == 1)
        manager.active.hasten(UID, grace_seconds=400)
        await node.clock.run_for(5)
        assert runtime.counts["stop_unit"] == 1
        manager.active.hasten(UID, grace_seconds=10)
        await node.until(lambda: runtime.counts["stop_unit"] == 2)
        slow.release()
        await node.until(lambda: node.phase(UID) == "Failed")
        assert node.services.board.statuses[UID].reason == "DeadlineExceeded"


@pytest.mark.parametrize(("has_succeeded", "phase"), [(True, "Succeeded"), (False, "Failed")])
async def test_a_room_ends_a_pod_for_good_with_a_reason_of_its_own(
    node: Node, has_succeeded: bool, phase: str
) -> None:
    async with node.running() as manager:
        await node.start(a_pod())
        end = partial(
            manager.active.end, UID, reason="SessionClosed", message="m", has_succeeded=has_succeeded
        )
        assert end()
        assert not end(), "it is ending"
        await node.until(lambda: node.phase(UID) == phase)
        assert not end(), "it has ended"
        assert not node.alive()
    async with node.running() as manager:
        manager.update("file", a_pod())
        await passes(node, 5)
        status = node.services.board.statuses[UID]
        assert (status.phase, status.reason) == (phase, "SessionClosed")
        assert not node.alive()


async def test_a_binding_that_cannot_be_written_is_reported_once_and_tried_until_it_can(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.running() as manager:
        tries = 0

        async def full(_binding: Binding) -> Binding:
            nonlocal tries
            tries += 1
            raise Unavailable("state database: disk full; free space on its filesystem")

        with monkeypatch.context() as patch:
            patch.setattr(node.registry, "bind", full)
            manager.update("file", a_pod())
            await node.until(lambda: tries > 3)
        await node.until(lambda: node.phase(UID) == "Running")
    reported = [one.message for one in node.sink.recorded if one.reason == "BindingNotWritten"]
    assert reported == ["Cannot bind to runtime one: state database: disk full; free space on its filesystem"]


# --- events ----------------------------------------------------------------------------------------------


async def test_ten_thousand_events_in_a_burst_cost_few_looks(node: Node) -> None:
    async with node.running():
        pods = [a_pod(f"p{number}") for number in range(20)]
        for pod in pods:
            node.manager.update("file", pod)
        await node.until(lambda: len(node.alive()) == 20)
        await node.clock.run_for(3)
        runtime = node.runtimes["one"]
        before = runtime.counts["list_sandboxes"]
        units = list(runtime.backend.units.values())
        for number in range(10_000):
            unit = units[number % len(units)].summary
            runtime.backend.emit(EventKind.CHANGED, unit.uid, sandbox_id=unit.sandbox_id, unit_id=unit.id)
        await node.clock.run_for(15)
        await node.until(lambda: not any(worker.facts.in_flight for worker in node.manager.workers.values()))
        assert runtime.counts["list_sandboxes"] - before < 400
        assert len(node.alive()) == 20
        assert all(unit.summary.attempt == 0 for unit in runtime.backend.units.values())


async def test_an_exit_that_no_event_told_is_found_by_the_slow_list(node: Node) -> None:
    async with node.running():
        runtime = node.runtimes["one"]
        await node.start(a_pod(restart_policy="Never"))
        emit = runtime.backend.emit
        runtime.backend.emit = lambda *args, **fields: None  # type: ignore[method-assign]
        runtime.backend.exit_unit(runtime.backend.find_unit("c0"), 3)
        runtime.backend.emit = emit  # type: ignore[method-assign]
        await node.clock.run_for(400)
        await node.until(lambda: node.phase(UID) == "Failed")


async def test_an_event_that_comes_before_the_change_can_be_seen_is_a_debt(node: Node) -> None:
    async with node.running():
        runtime = node.runtimes["one"]
        await node.start(a_pod())
        unit = runtime.backend.units[runtime.backend.find_unit("c0")].summary
        runtime.backend.emit(EventKind.STOPPED, unit.uid, sandbox_id=unit.sandbox_id, unit_id=unit.id)
        await node.clock.run_for(0.3)
        emit = runtime.backend.emit
        runtime.backend.emit = lambda *args, **fields: None  # type: ignore[method-assign]
        runtime.backend.exit_unit(unit.id, 1)
        runtime.backend.emit = emit  # type: ignore[method-assign]
        await node.until(lambda: node.alive() == ["web/c0"] and len(runtime.backend.units) == 2, seconds=5)


async def test_an_event_of_another_agents_pod_causes_no_look(node: Node) -> None:
    async with node.running():
        await node.start(a_pod())
        await node.clock.run_for(3)
        runtime = node.runtimes["one"]
        before = runtime.counts["list_sandboxes"]
        event = RuntimeEvent(kind=EventKind.STOPPED, unit_id=None, sandbox_id=None, uid=PodUid("foreign"))
        node.manager.pod_changed("one", PodUid("foreign"), event)
        await node.clock.run_for(3)
        assert runtime.counts["list_sandboxes"] == before


# --- clocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [timedelta(days=2), timedelta(days=-2)])
async def test_a_clock_jump_neither_ends_a_pod_with_a_deadline_nor_keeps_it(
    node: Node, jump: timedelta
) -> None:
    async with node.running():
        await node.start(a_pod(active_deadline_seconds=60))
        node.clock.jump(jump.total_seconds())
        await node.clock.run_for(30)
        assert node.phase(UID) == "Running"
        await node.until(lambda: node.phase(UID) == "Failed", seconds=40)
        status = node.services.board.statuses[UID]
        assert status.reason == "DeadlineExceeded"
        await node.until(lambda: not node.alive())


@pytest.mark.parametrize("jump", [timedelta(hours=5), timedelta(hours=-5)])
async def test_a_clock_jump_leaves_the_back_off_between_two_starts_alone(node: Node, jump: timedelta) -> None:
    async with node.running():
        await node.start(a_pod())
        runtime = node.runtimes["one"]
        for expected in (1, 2):
            runtime.backend.exit_unit(runtime.backend.find_unit("c0"), 1)
            if expected == 1:
                await node.until(lambda: runtime.counts["start_unit"] == 2, seconds=1)
        await node.clock.run_for(2)
        node.clock.jump(jump.total_seconds())
        await node.clock.run_for(6)
        assert runtime.counts["start_unit"] == 2
        await node.until(lambda: runtime.counts["start_unit"] == 3, seconds=4)


# --- work that cannot be done ----------------------------------------------------------------------------


async def test_a_runtime_that_refuses_everything_is_not_asked_in_a_busy_loop(node: Node) -> None:
    async with node.running():
        runtime = node.runtimes["one"]
        runtime.script("create_sandbox", error=Unavailable("no"))
        node.manager.update("file", a_pod())
        await passes(node, 60)
        assert 3 < runtime.counts["create_sandbox"] < 20
        assert runtime.counts["list_sandboxes"] < 40


async def test_a_look_that_fails_is_not_repeated_in_a_busy_loop(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod())
        runtime = node.runtimes["one"]
        runtime.script("list_units", error=Unavailable("no"))
        before = runtime.counts["list_units"]
        manager.workers[UID].look_again()
        manager.remove("file", UID)
        await passes(node, 20)
        assert runtime.counts["list_units"] - before < 40
        runtime.scripts.clear()
        await gone(node)


async def test_pods_that_fail_together_do_not_try_again_together(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    async with node.running():
        node.runtimes["one"].script("create_sandbox", error=Conflict("no"))
        for number in range(10):
            node.manager.update("file", a_pod(f"p{number}"))
        await node.until(lambda: node.runtimes["one"].counts["create_sandbox"] >= 10)
        workers = node.manager.workers.values()
        await node.until(lambda: all(worker.facts.sandbox_failure is not None for worker in workers))
        waits = {
            round(failure.retry_at - failure.delay_seconds - worker.facts.changed_at, 6)
            for worker in workers
            if (failure := worker.facts.sandbox_failure) is not None
            and failure.retry_at is not None
            and worker.facts.changed_at is not None
        }
        assert len(waits) > 5, "each draws its own wait"


async def test_a_bug_in_a_step_is_not_repeated_in_a_busy_loop(node: Node) -> None:
    async with node.running():
        tries = 0

        async def broken(*_args: object) -> None:
            nonlocal tries
            tries += 1
            raise OSError(28, "No space left on device")

        prepare = node.services.specs.prepare
        node.services.specs.prepare = broken  # type: ignore[method-assign, assignment]
        node.manager.update("file", a_pod())
        await passes(node, 60)
        assert 2 < tries < 20
        node.services.specs.prepare = prepare  # type: ignore[method-assign]
        await node.until(lambda: node.phase(UID) == "Running")


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_pre_stop_hook_runs_once_although_the_stop_is_tried_again(node: Node, restarts: bool) -> None:
    hook = Lifecycle(pre_stop=LifecycleHandler(exec=ExecAction(command=("bye",))))
    pod = with_container(lifecycle=hook)
    async with node.running() as manager:
        first = node.runtimes["one"]
        await node.start(pod)
        first.script("stop_unit", error=Unavailable("no answer"), times=None if restarts else 3)
        manager.remove("file", UID)
        if not restarts:
            await gone(node)
            assert first.counts["exec_sync"] == 1
            return
        await node.until(lambda: first.counts["stop_unit"] == 2)
    async with node.running() as manager:
        manager.synced("file")
        await gone(node)
        assert first.counts["exec_sync"] + node.runtimes["one"].counts["exec_sync"] == 1
