"""The pod manager and its workers on fake runtimes: whole lives, with trouble at the worst moments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from msgspec.structs import replace

from kubeletx.api import PodUid, SandboxId, SandboxStatus, TimedOut, Unavailable
from kubeletx.kube.types.core import ImageVolumeSource, Pod, PodStatus, Volume
from kubeletx.pods.model.actions import PrepareVolumes
from kubeletx.pods.model.draft import Plan
from kubeletx.pods.model.facts import DesiredPod, PodFacts
from tests.unit.pods.manager_model import Node, a_pod


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, "one", "two")


async def test_all_containers_of_a_pod_start_at_the_first_try(node: Node) -> None:
    with structlog.testing.capture_logs() as said:
        async with node.running():
            await node.start(a_pod(containers=4))
            assert node.alive() == ["web/c0", "web/c1", "web/c2", "web/c3"]
    assert [line for line in said if line["log_level"] == "warning"] == []


async def test_a_pod_comes_and_goes_without_a_trace(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod())
        manager.remove("file", PodUid("uid-web"))
        await node.until(lambda: not manager.workers)
        assert node.alive() == []
        assert not node.runtimes["one"].backend.sandboxes
        assert not list((node.root / "pods").iterdir())
        assert not list((node.root / "logs").iterdir())
        assert not node.registry.bindings()


async def test_a_create_whose_answer_was_late_leaves_one_sandbox(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        runtime.script("create_sandbox", error=TimedOut("late"), after_effect=True, times=1)
        worker = await node.start(a_pod())
        assert len(runtime.backend.sandboxes) == 1
        assert runtime.counts["create_sandbox"] == 1
        assert worker.facts.unsettled_until is not None
        manager.remove("file", PodUid("uid-web"))
        await node.until(lambda: not manager.workers)
        assert not runtime.backend.sandboxes


async def test_a_runtime_that_gives_no_addresses_is_not_asked_in_a_busy_loop(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        reported = runtime.sandbox_status

        async def without_address(sandbox_id: SandboxId) -> SandboxStatus:
            return replace(await reported(sandbox_id), ips=())

        monkeypatch.setattr(runtime, "sandbox_status", without_address)
        manager.update("file", a_pod())
        await node.until(lambda: runtime.counts["create_sandbox"] == 2)
        began = node.clock.monotonic()
        await node.until(lambda: node.clock.monotonic() - began > 30)
        assert runtime.counts["create_sandbox"] < 15
        monkeypatch.undo()
        await node.until(lambda: node.phase("uid-web") == "Running", seconds=400)
        await node.until(lambda: len(runtime.backend.sandboxes) == 1)


async def test_a_pod_deleted_while_its_create_was_lost_leaves_nothing(node: Node) -> None:
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        lost = runtime.script("create_sandbox", hang=True, error=Unavailable("cut off"), after_effect=True)
        manager.update("file", a_pod())
        await node.until(lambda: runtime.backend.sandboxes)
        manager.remove("file", PodUid("uid-web"))
        lost.release()
        await node.until(lambda: not manager.workers)
        assert not runtime.backend.sandboxes


async def test_pods_end_with_a_runtime_that_is_removed_by_force_and_others_go_on(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod("named", runtime="one"))
        await node.start(a_pod("free"))
        await node.start(a_pod("other", runtime="two"))
        node.runtimes["one"].backend.kill()
        await node.registry.remove("one", force=True)
        manager.end_on("one", force=True)
        await node.until(lambda: node.alive("two") == ["free/c0", "other/c0"])
        named = PodUid("uid-named")
        await node.until(lambda: named in manager.workers and manager.workers[named].facts.waiting)
        waiting = manager.workers[named].facts.waiting
        assert waiting is not None
        assert waiting.reason == "RuntimeNotFound"
        assert node.registry.bound_uids("one") == ()


async def test_a_runtime_that_returns_is_cleared_of_old_lives_before_new_ones_begin(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod("named", runtime="one"))
        backend = node.runtimes["one"].backend
        (old,) = backend.sandboxes
        backend.kill()
        await node.until(lambda: not node.registry.get("one").state.reachable)
        await node.registry.remove("one", force=True)
        manager.end_on("one", force=True)
        await node.until(lambda: manager.workers[PodUid("uid-named")].facts.runtime is None)
        backend.revive()
        await node.registry.add(name="one", workload_type="container", url="fake://one")
        runtime = node.runtimes["one"]
        runtime.script("remove_sandbox", delay_seconds=5.0, times=1)
        await node.until(lambda: node.phase("uid-named") == "Running")
        assert [c.method for c in runtime.journal if c.method in ("create_sandbox", "remove_sandbox")] == [
            "remove_sandbox",
            "create_sandbox",
        ]
        assert old not in backend.sandboxes
        assert node.alive() == ["named/c0"]
        assert not node.tombstones.all


async def test_a_drain_brings_back_what_its_source_still_has_and_nothing_else(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod("wanted"))
        await node.start(a_pod("job", restart_policy="Never"))
        await node.start(a_pod("going", termination_grace_period_seconds=20))
        backend = node.runtimes["one"].backend
        backend.exit_unit(backend.find_unit("c0", pod="job"), 0)
        await node.until(lambda: node.phase("uid-job") == "Succeeded")
        stuck = node.runtimes["one"].script("stop_unit", hang=True, key=backend.find_unit("c0", pod="going"))
        manager.remove("file", PodUid("uid-going"))
        await node.clock.settle()
        node.registry.cordon("one")
        manager.end_on("one")
        stuck.release()
        await node.until(lambda: set(manager.workers) == {PodUid("uid-wanted")})
        await node.until(lambda: node.alive("two") == ["wanted/c0"])
        assert not backend.sandboxes


async def test_an_action_that_is_cancelled_before_it_began_blocks_nothing(node: Node) -> None:
    async with node.running() as manager:
        publish = node.services.publish

        def remove_at_once(desired: DesiredPod, facts: PodFacts, plan: Plan) -> PodStatus:
            """The deletion comes after the actions were started and before any of them ran."""
            if any(isinstance(action, PrepareVolumes) for action in plan.actions):
                manager.remove("file", desired.uid)
            return publish(desired, facts, plan)

        node.services.publish = remove_at_once  # type: ignore[method-assign]
        manager.update("file", a_pod())
        await node.until(lambda: not manager.workers)


async def test_images_of_volumes_and_of_waiting_pods_are_in_use_too(node: Node) -> None:
    volume = Volume(name="v", image=ImageVolumeSource(reference="in-a-volume"))
    async with node.running() as manager:
        manager.update("file", a_pod(volumes=(volume,)))
        manager.update("file", a_pod(uid="next", containers=2))
        assert sorted(manager.images({"one"})) == ["busybox"] * 3 + ["in-a-volume"]


async def test_an_image_is_in_use_only_in_the_store_of_the_runtime_that_its_pod_has_or_will_get(
    node: Node,
) -> None:
    async with node.running() as manager:
        bound = await node.start(a_pod(uid="a", name="a"))
        assert bound.facts.runtime == "one"
        assert list(manager.images({"one"})) == ["busybox"]
        assert list(manager.images({"two"})) == []
        node.runtimes["two"].backend.kill()
        await node.until(lambda: not node.registry.get("two").state.reachable)
        waiting = a_pod(uid="b", name="b")
        manager.update("file", replace(waiting, spec=replace(waiting.spec, runtime_service_name="two")))
        assert list(manager.images({"two"})) == ["busybox"]
        nowhere = a_pod(uid="c", name="c")
        manager.update("file", replace(nowhere, spec=replace(nowhere.spec, runtime_service_name="gone")))
        assert [len(list(manager.images({name}))) for name in ("one", "two")] == [2, 2]


async def test_a_runtime_annotation_that_changes_on_a_bound_pod_is_an_event(node: Node) -> None:
    def on(runtime: str) -> Pod:
        pod = a_pod()
        notes = {"kubeletx.io/runtime-service-name": runtime}
        return replace(pod, metadata=replace(pod.metadata, annotations=notes))

    async with node.running() as manager:
        await node.start(on("one"))
        manager.update("file", on("one"))
        assert "RuntimeMismatch" not in node.sink.reasons()
        manager.update("file", on("two"))
        manager.update("file", on("two"))
        (event,) = [one for one in node.sink.recorded if one.reason == "RuntimeMismatch"]
        assert (event.type, event.ref.name) == ("Warning", "web")
        assert event.message == (
            "kubeletx.io/runtime-service-name changed, but the pod stays on runtime one; make a new pod to move it"
        )


@pytest.mark.parametrize("restart_policy", ["Always", "Never"])
async def test_a_wrong_list_changes_nothing(node: Node, restart_policy: str) -> None:
    async with node.running():
        await node.start(a_pod(restart_policy=restart_policy))
        await node.clock.run_for(20)  # the looks after the start have ended; they would read the wrong lists
        runtime, handle = node.runtimes["one"], node.registry.find("one")
        assert handle is not None
        made = (runtime.counts["create_sandbox"], runtime.counts["create_unit"])
        uid = PodUid("uid-web")
        before = node.services.board.statuses[uid]
        lists = {"list_units": runtime.list_units, "list_sandboxes": runtime.list_sandboxes}
        wrong = dict.fromkeys(lists, 2)

        def forgetful(name: str) -> Callable[[Mapping[str, str]], Awaitable[Any]]:
            async def answer(match: Mapping[str, str]) -> Any:
                wrong[name] -= 1
                return [] if wrong[name] >= 0 else await lists[name](match)

            return answer

        for name in lists:
            setattr(runtime, name, forgetful(name))
        await handle.relist()
        assert handle.snapshot(uid) is None
        await node.clock.run_for(5)
        assert max(wrong.values()) < 0
        assert node.services.board.statuses[uid] == before
        assert node.alive() == ["web/c0"]
        assert (runtime.counts["create_sandbox"], runtime.counts["create_unit"]) == made
