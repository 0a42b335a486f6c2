"""The agent ends between any two actions, events come twice or never: every pod exists exactly once."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import PodUid, SandboxState
from kubeletx.kube.types.core import Pod
from kubeletx.pods.manager import SOURCE_SECONDS
from kubeletx.pods.model.frame import at_ns
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")


def check(node: Node) -> None:
    """What holds at every moment."""
    backend = node.runtimes["one"].backend
    alive = Counter(node.alive())
    assert all(count == 1 for count in alive.values()), alive
    ready = [s for s in backend.sandboxes.values() if s.summary.state is SandboxState.READY]
    assert len(ready) <= 1, ready


async def tick(node: Node) -> None:
    """A very short while, for threads too."""
    await let_others_work()
    await node.clock.run_for(0.01)
    check(node)


# of each life: how many ticks, whether a container exits at its end, whether the database is lost before it
lives = st.lists(st.tuples(st.integers(0, 14), st.booleans(), st.booleans()), min_size=1, max_size=5)


async def play(root: Path, history: list[tuple[int, bool, bool]], *, delete: bool) -> None:
    node = Node(root, "one")
    node.exit_seconds = 0.0  # a crash waits for no call in flight
    exits = 0
    stays: set[str] = set()
    for ticks, exits_now, loses in history:
        if loses:
            for path in root.glob("db*"):
                path.unlink()
        async with node.running(keeps_orphans=loses) as manager:
            backend = node.runtimes["one"].backend
            for call in (
                "create_sandbox",
                "create_unit",
                "start_unit",
            ):  # takes effect before or after a while
                node.runtimes["one"].script(call, delay_seconds=0.015, after_effect=loses is not exits_now)
            assert stays <= {str(u.summary.id) for u in backend.units.values() if u.summary.state.is_alive}
            manager.update("file", a_pod(containers=2))
            manager.synced("file")
            for _ in range(ticks):
                await tick(node)
            if exits_now and node.alive() == ["web/c0", "web/c1"]:
                exits += 1
                backend.exit_unit(backend.find_unit("c0"), 1)
                await tick(node)
            stays = {str(u.summary.id) for u in backend.units.values() if u.summary.state.is_alive}
    async with node.running() as manager:
        backend = node.runtimes["one"].backend
        if delete:
            manager.synced("file")
            await node.until(lambda: not manager.workers or manager.is_orphan(UID))
            manager.remove("file", UID)
            await node.until(lambda: not manager.workers)
            assert not backend.sandboxes
            assert not backend.units
            assert not list((root / "pods").glob("*"))
            assert not list((root / "logs").glob("*"))
            assert not node.registry.bindings()
            return
        manager.update("file", a_pod(containers=2))
        manager.synced("file")
        await node.until(lambda: node.alive() == ["web/c0", "web/c1"], seconds=700)
        check(node)
        assert stays <= {str(u.summary.id) for u in backend.units.values() if u.summary.state.is_alive}
        attempts = {
            u.summary.name: u.summary.attempt for u in backend.units.values() if u.summary.state.is_alive
        }
        assert attempts["c1"] == 0
        assert attempts["c0"] <= exits
        assert len(backend.sandboxes) == 1


@settings(max_examples=25, deadline=None)
@given(history=lives, delete=st.booleans())
def test_a_restart_between_any_two_actions_costs_and_doubles_nothing(
    history: list[tuple[int, bool, bool]], delete: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(play(Path(root), history, delete=delete))


async def play_events(root: Path, seed: int, loss: float, doubles: float) -> None:
    chance = random.Random(seed)
    node = Node(root, "one")
    node.exit_seconds = 0.0  # a crash waits for no call in flight
    async with node.running() as manager:
        backend = node.runtimes["one"].backend
        emit = backend.emit

        def unreliable(*args: object, **fields: object) -> None:
            if chance.random() >= loss:
                for _ in range(1 + (chance.random() < doubles)):
                    emit(*args, **fields)  # type: ignore[arg-type]

        backend.emit = unreliable  # type: ignore[method-assign, assignment]
        manager.update("file", a_pod(containers=2, restart_policy="Never"))
        manager.update("file", a_pod("two", containers=1))
        for _ in range(chance.randrange(60)):
            await tick_many(node)
        await node.until(lambda: len(node.alive()) == 3, seconds=700)
        for name in ("c0", "c1"):
            backend.exit_unit(backend.find_unit(name, pod="web"), 0)
        backend.exit_unit(backend.find_unit("c0", pod="two"), 1)
        for _ in range(40):  # the slow list comes after 300 s at the latest
            await let_others_work()
            await node.clock.run_for(10)
        await node.until(lambda: node.phase(UID) == "Succeeded")
        await node.until(lambda: node.alive() == ["two/c0"])
        assert len(backend.sandboxes) <= 2
        manager.remove("file", UID)
        manager.remove("file", PodUid("uid-two"))
        await node.until(lambda: not manager.workers)
        assert not backend.sandboxes


async def tick_many(node: Node) -> None:
    await let_others_work()
    await node.clock.run_for(0.01)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    loss=st.sampled_from([0.0, 0.3, 1.0]),
    doubles=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_events_that_are_lost_or_come_twice_change_nothing_in_the_end(
    seed: int, loss: float, doubles: float
) -> None:
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(play_events(Path(root), seed, loss, doubles))


# --- what a source may say ------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path, "one")
    node.exit_seconds = 0.0
    return node


async def test_two_pods_of_one_name_live_one_after_the_other(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod(uid="first", termination_grace_period_seconds=5))
        manager.update("file", a_pod(uid="second"))
        await node.clock.run_for(2)
        assert [one.uid for one in manager.queued()] == ["second"]
        slow = node.runtimes["one"].script("stop_unit", hang=True, times=1)
        manager.remove("file", PodUid("first"))
        await node.clock.run_for(2)
        assert list(manager.workers) == ["first"]
        slow.release()
        await node.until(lambda: node.phase("second") == "Running")
        assert list(manager.workers) == ["second"]
        assert node.alive() == ["web/c0"]


async def test_a_pod_that_is_wanted_again_while_it_ends_gets_a_new_life(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod())
        old = node.runtimes["one"].backend.find_unit("c0")
        slow = node.runtimes["one"].script("stop_unit", hang=True, times=1)
        manager.remove("file", UID)
        await node.clock.run_for(1)
        manager.update("file", a_pod())
        assert manager.workers[UID].desired.deletion is not None
        slow.release()
        await node.until(lambda: UID in manager.workers and manager.workers[UID].desired.deletion is None)
        await node.until(lambda: node.phase(UID) == "Running")
        assert node.runtimes["one"].backend.find_unit("c0") != old


async def test_a_pod_that_is_wanted_again_and_then_not_does_not_come_back(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod())
        slow = node.runtimes["one"].script("stop_unit", hang=True, times=1)
        manager.remove("file", UID)
        await node.clock.run_for(1)
        manager.update("file", a_pod())
        manager.remove("file", UID)
        slow.release()
        await node.until(lambda: not manager.workers)
        await node.clock.run_for(1)
        assert not manager.workers


async def lose_database(node: Node) -> None:
    for path in node.root.glob("db*"):
        path.unlink()


async def test_an_orphan_is_kept_over_restarts_until_its_source_has_claimed_it(node: Node) -> None:
    async with node.running():
        await node.start(a_pod())
    await lose_database(node)
    for keeps in (True, False):  # the loss is noticed once
        async with node.running(keeps_orphans=keeps) as manager:
            manager.synced("file")
            await node.clock.run_for(5)
            assert manager.is_orphan(UID)
            assert node.alive() == ["web/c0"]
    async with node.running() as manager:
        manager.update("file", a_pod())
        manager.synced("file")
        await node.clock.run_for(5)
        assert not manager.is_orphan(UID)
        assert node.runtimes["one"].counts["create_unit"] == 0
        await until(lambda: not node.threads_work)
    async with node.running() as manager:
        manager.synced("file")
        await node.until(lambda: not manager.workers)


async def test_an_orphan_makes_way_for_its_sources_next_pod_of_the_same_name(node: Node) -> None:
    async with node.running():
        await node.start(a_pod(uid="old"))
    await lose_database(node)
    async with node.running(keeps_orphans=True) as manager:
        manager.update("file", a_pod(uid="new"))
        manager.synced("file")
        await node.until(lambda: node.phase("new") == "Running")
        assert list(manager.workers) == ["new"]
        assert node.alive() == ["web/c0"]


async def test_an_orphan_of_a_silent_source_is_left_alone(node: Node) -> None:
    async with node.running():
        await node.start(a_pod(), source="http")
        await node.start(a_pod("other"), source="file")
    async with node.running() as manager:
        manager.synced("file")  # "http" says nothing
        await node.until(lambda: PodUid("uid-other") not in manager.workers)
        await node.clock.run_for(60)
        assert node.alive() == ["web/c0"]
        manager.synced("http")
        await node.until(lambda: not manager.workers)


async def test_nothing_is_started_for_a_pod_before_its_source_has_named_it(node: Node) -> None:
    async with node.running():
        await node.start(a_pod())
        await node.start(a_pod("gone"))
    backend = node.runtimes["one"].backend
    for unit in list(backend.units.values()):
        backend.exit_unit(unit.summary.id, 1)
    made = len(backend.units)
    async with node.running() as manager:
        await node.clock.run_for(SOURCE_SECONDS / 2)
        assert node.alive() == []
        assert len(backend.units) == made
        manager.update("file", a_pod())
        manager.synced("file")
        await node.until(lambda: node.alive() == ["web/c0"])
        await node.until(lambda: PodUid("uid-gone") not in manager.workers)
        assert len(backend.units) <= made + 1, "the pod that its source no longer has was not restarted"


async def test_a_pod_of_a_source_that_stays_silent_goes_on_after_a_while(node: Node) -> None:
    async with node.running():
        await node.start(a_pod())
    backend = node.runtimes["one"].backend
    backend.exit_unit(backend.find_unit("c0"), 1)
    async with node.running():
        await node.clock.run_for(SOURCE_SECONDS - 1)
        assert node.alive() == []
        await node.until(lambda: node.alive() == ["web/c0"])


async def test_a_pod_found_again_counts_on_the_node_once_it_is_claimed(node: Node) -> None:
    pod = a_pod()
    container = pod.spec.containers[0]
    resources = replace(container.resources, requests={"cpu": "600m"})
    hungry = replace(pod, spec=replace(pod.spec, containers=(replace(container, resources=resources),)))
    async with node.running():
        await node.start(hungry)
    await lose_database(node)
    async with node.running(keeps_orphans=True, allocatable={"cpu": 1000, "memory": 1 << 30}) as manager:
        manager.update("file", hungry)
        second = replace(hungry, metadata=replace(hungry.metadata, name="two", uid=PodUid("two")))
        manager.update("file", second)
        await node.until(lambda: node.phase("two") == "Failed")
        assert node.alive() == ["web/c0"]


async def test_a_pod_that_was_bound_again_while_its_old_runtime_was_away_is_ended_there(
    tmp_path: Path,
) -> None:
    """The database is lost while a runtime is away: only its return shows that an unnamed pod was on it."""
    node = Node(tmp_path, "one", "two")
    node.exit_seconds = 0.0  # a crash waits for no call in flight
    async with node.running():
        node.registry.cordon("one")
        await node.start(a_pod())
        node.registry.cordon("one", False)
        assert node.alive("two") == ["web/c0"]
    await lose_database(node)
    node.runtimes["two"].backend.kill()
    async with node.running(keeps_orphans=True, listed=("one",)) as manager:
        manager.update("file", a_pod())
        manager.synced("file")
        await node.until(lambda: node.alive("one") == ["web/c0"])
        node.runtimes["two"].backend.revive()
        await node.until(lambda: not node.runtimes["two"].backend.sandboxes)
        await node.clock.run_for(5)
        assert node.alive("one") == ["web/c0"]
        assert list(manager.workers) == [UID]


async def test_a_pod_is_as_old_as_when_it_was_first_seen_also_after_restarts(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    node.exit_seconds = 0.0  # a crash waits for no call in flight

    def seen_now() -> Pod:
        """As a source that has just read the manifest gives it."""
        pod = a_pod()
        return replace(pod, metadata=replace(pod.metadata, creation_timestamp=node.clock.now()))

    async with node.running() as manager:
        first = seen_now()
        created = (await node.start(first)).desired.pod.metadata.creation_timestamp
        assert created == first.metadata.creation_timestamp
    for _ in range(2):  # the second restart reads what the first one wrote
        await node.clock.run_for(100)
        async with node.running() as manager:
            assert manager.workers[UID].desired.pod.metadata.creation_timestamp == created
            manager.update("file", seen_now())
            assert manager.workers[UID].desired.pod.metadata.creation_timestamp == created
            await node.clock.run_for(1)


async def test_without_the_database_a_pod_is_as_old_as_its_sandbox(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    node.exit_seconds = 0.0  # a crash waits for no call in flight
    async with node.running():
        await node.start(a_pod())
    for path in tmp_path.glob("db*"):
        path.unlink()
    await node.clock.run_for(100)
    (sandbox,) = node.runtimes["one"].backend.sandboxes.values()
    async with node.running(keeps_orphans=True) as manager:
        await node.until(lambda: UID in manager.workers)
        found = manager.workers[UID].desired.pod.metadata.creation_timestamp
        assert found == at_ns(sandbox.summary.created_at_ns)
