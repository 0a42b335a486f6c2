"""A runtime that says OK without effect, or fails at once, is asked again after growing waits."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import Internal, KubeletxError, NotFound, PodUid, SandboxState, Unavailable
from kubeletx.testing import FakeClock
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")
SECONDS = 30.0
ALLOWED = 25
"""Calls of one kind in half a minute: a few at once, then one after 0.1 s, 0.2 s and so on up to 10 s."""


class TickingClock(FakeClock):
    """A look that follows a call begins later than the call ended."""

    def monotonic(self) -> float:
        self._monotonic += 1e-6
        return self._monotonic


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, "one")


def spoil(node: Node, method: str, answer: Any = None) -> collections.Counter[str]:
    """`method` of the runtime answers at once and does nothing; how often it was called."""
    calls: collections.Counter[str] = collections.Counter()

    async def say(*_args: Any, **_more: Any) -> Any:
        calls[method] += 1
        if isinstance(answer, KubeletxError):
            raise answer
        return answer

    setattr(node.runtimes["one"], method, say)
    return calls


async def pass_time(node: Node, seconds: float = SECONDS) -> None:
    end = node.clock.monotonic() + seconds
    await node.until(lambda: node.clock.monotonic() >= end)


TROUBLE = [None, NotFound("no such thing"), Internal("broken"), Unavailable("not now")]


@pytest.mark.parametrize("answer", TROUBLE, ids=repr)
@pytest.mark.parametrize("method", ["stop_unit", "stop_sandbox", "remove_sandbox", "remove_unit"])
async def test_a_deletion_without_effect_is_repeated_ever_more_slowly(
    node: Node, method: str, answer: KubeletxError | None
) -> None:
    async with node.running() as manager:
        await node.start(a_pod())
        calls = spoil(node, method, answer)
        if method == "remove_unit":
            spoil(node, "remove_sandbox", answer)
        manager.remove("file", UID)
        looks = node.runtimes["one"].counts["list_sandboxes"]
        await pass_time(node)
        assert sum(calls.values()) <= ALLOWED
        assert node.runtimes["one"].counts["list_sandboxes"] - looks <= 4 * ALLOWED


async def test_a_unit_that_never_starts_is_asked_for_ever_more_slowly(node: Node) -> None:
    async with node.running() as manager:
        calls = spoil(node, "start_unit")
        manager.update("file", a_pod())
        await pass_time(node)
        assert 3 <= calls["start_unit"] <= ALLOWED


async def test_a_unit_that_vanishes_is_made_again_ever_more_slowly(node: Node) -> None:
    async with node.running() as manager:
        backend = node.runtimes["one"].backend
        start = backend.start_unit

        def vanish(unit_id: Any) -> None:
            start(unit_id)
            backend.vanish_unit(unit_id)

        backend.start_unit = vanish  # type: ignore[method-assign]
        manager.update("file", a_pod())
        await pass_time(node)
        assert 3 <= node.runtimes["one"].counts["create_unit"] <= ALLOWED


@pytest.mark.parametrize("state", [SandboxState.NOT_READY, None])
async def test_a_sandbox_that_dies_at_once_is_made_again_ever_more_slowly(
    node: Node, state: SandboxState | None
) -> None:
    async with node.running() as manager:
        backend = node.runtimes["one"].backend
        add = backend.add_sandbox

        def die(spec: Any) -> Any:
            sandbox_id = add(spec)
            backend.drop_sandbox(sandbox_id) if state is None else backend.fail_sandbox(sandbox_id)
            return sandbox_id

        backend.add_sandbox = die  # type: ignore[method-assign]
        manager.update("file", a_pod())
        await pass_time(node)
        assert 3 <= node.runtimes["one"].counts["create_sandbox"] <= ALLOWED


async def test_a_sandbox_that_dies_soon_after_is_made_again_ever_more_slowly(node: Node) -> None:
    async with node.running() as manager:
        backend = node.runtimes["one"].backend
        add = backend.add_sandbox

        def die(spec: Any) -> Any:
            sandbox_id = add(spec)
            node.clock.call_at(node.clock.monotonic() + 0.02, lambda: backend.fail_sandbox(sandbox_id))
            return sandbox_id

        backend.add_sandbox = die  # type: ignore[method-assign]
        manager.update("file", a_pod())
        await pass_time(node)
        assert 3 <= node.runtimes["one"].counts["create_sandbox"] <= ALLOWED


@pytest.mark.parametrize("method", ["create_sandbox", "create_unit", "start_unit", "unit_status"])
@pytest.mark.parametrize("error", [NotFound("none"), Internal("broken"), Unavailable("not now")], ids=repr)
async def test_a_call_that_fails_at_once_is_repeated_ever_more_slowly(
    node: Node, method: str, error: KubeletxError
) -> None:
    async with node.running() as manager:
        calls = spoil(node, method, error)
        manager.update("file", a_pod())
        await pass_time(node)
        assert 2 <= calls[method] <= 3 * ALLOWED


async def test_an_operator_learns_what_has_no_effect(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod())
        spoil(node, "stop_unit")
        manager.remove("file", UID)
        await pass_time(node)
        said = [one.message for one in node.sink.recorded if one.reason == "RuntimeWithoutEffect"]
        assert said == [
            "runtime one reported no error 6 times for stopping container c0, and nothing changed; the agent retries "
            "at most every 10s; see the runtime's log, or restart the runtime"
        ]


async def test_what_had_no_effect_goes_on_soon_after_the_runtime_is_well(node: Node) -> None:
    async with node.running() as manager:
        await node.start(a_pod())
        runtime = node.runtimes["one"]
        spoil(node, "stop_unit")
        manager.remove("file", UID)
        await pass_time(node)
        del runtime.stop_unit
        began = node.clock.monotonic()
        await node.until(lambda: not manager.workers)
        assert node.clock.monotonic() - began < 12


async def test_a_runtime_that_opens_and_answers_no_health_call_is_opened_ever_more_slowly(node: Node) -> None:
    async with node.running():
        runtime = node.runtimes["one"]
        runtime.script("health", error=Unavailable("no answer"))
        await node.until(lambda: not node.registry.get("one").state.reachable)
        before = runtime.counts["open"]
        await pass_time(node)
        assert runtime.counts["open"] - before <= ALLOWED


async def test_leftovers_that_do_not_go_are_cleared_ever_more_slowly(node: Node) -> None:
    node.clock = TickingClock()
    async with node.running() as manager:
        worker = await node.start(a_pod())
        runtime = node.runtimes["one"]
        runtime.backend.kill()
        await node.until(lambda: worker.facts.outage is not None)
        manager.remove("file", UID, 0, True)
        await node.until(lambda: not manager.workers)
        calls = spoil(node, "remove_sandbox")
        runtime.backend.revive()
        await pass_time(node)
        assert 2 <= calls["remove_sandbox"] <= ALLOWED
        assert node.tombstones.all
        del runtime.remove_sandbox
        await node.until(lambda: not node.tombstones.all)
