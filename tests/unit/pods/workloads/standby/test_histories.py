"""Standby on the fake runtime with real workers: calls that fail, hang or lose their answer, exits, outages, restarts."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import Conflict, Endpoint, Host, PodUid, Unavailable, UnitId, UnitState
from kubeletx.kube.types.core import Container, ExecAction, Lifecycle, LifecycleHandler, Pod
from kubeletx.pods.worker import PodWorker
from kubeletx.pods.workloads.overrides import overrides_of
from kubeletx.pods.workloads.power import Power
from kubeletx.testing import FakeRuntime
from kubeletx_testing.waiting import let_others_work
from tests.unit.pods.manager_model import HURRIED, Node, a_pod

UID = PodUid("uid-web")
HOOK = Lifecycle(pre_stop=LifecycleHandler(exec=ExecAction(command=("true",))))
RESTING = (UnitState.PAUSED, UnitState.SUSPENDED)
NAMES = ("a", "b", "side")
STATES = {
    "": UnitState.RUNNING,
    "running": UnitState.RUNNING,
    "standby": UnitState.PAUSED,
    "hibernated": UnitState.SUSPENDED,
}


def the_pod() -> Pod:
    pod = a_pod()
    containers = tuple(Container(name=name, image="busybox", lifecycle=HOOK) for name in ("a", "b"))
    side = Container(name="side", image="busybox", restart_policy="Always", lifecycle=HOOK)
    return replace(pod, spec=replace(pod.spec, containers=containers, init_containers=(side,)))


class WatchedRuntime(FakeRuntime):
    """A fake runtime that checks each call about the state of a unit."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        super().__init__(*arguments, **fields)
        self.wrong: list[str] = []
        """What was wrong with calls; an exception would only be one more failed call for the agent."""
        self.ignoring = 0
        """Number of next hibernations that take long and ignore their cancellation."""
        self.deaf = 0
        """Number of such hibernations in flight."""
        self._in_flight: dict[UnitId, list[str]] = defaultdict(list)
        self._last: dict[UnitId, str] = {}

    async def freeze(self, unit_id: UnitId) -> None:
        await self._watched("freeze", unit_id, super().freeze)

    async def hibernate(self, unit_id: UnitId) -> None:
        real: Callable[[UnitId], Awaitable[None]] = super().hibernate
        if self.ignoring:
            self.ignoring -= 1
            real = partial(self._hibernate_in_any_case, real)
        await self._watched("hibernate", unit_id, real)

    async def _hibernate_in_any_case(
        self, real: Callable[[UnitId], Awaitable[None]], unit_id: UnitId
    ) -> None:
        self.deaf += 1
        end = self.clock.monotonic() + 0.2
        while (left := end - self.clock.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await self.clock.sleep(left)
        self.deaf -= 1
        await real(unit_id)

    async def thaw(self, unit_id: UnitId) -> None:
        await self._watched("thaw", unit_id, super().thaw)

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        if self._in_flight[unit_id]:
            self.wrong.append(f"{unit_id} is stopped during {self._in_flight[unit_id]}")
        unit = self.backend.units.get(unit_id)
        if unit is not None and unit.summary.state in RESTING and self._last.get(unit_id) != "thaw":
            self.wrong.append(f"{unit_id} is stopped and was not thawed")
        await super().stop_unit(unit_id, grace_seconds)

    async def _watched(self, method: str, unit_id: UnitId, real: Callable[[UnitId], Awaitable[None]]) -> None:
        calls = self._in_flight[unit_id]
        if any((one == "thaw") is not (method == "thaw") for one in calls):
            self.wrong.append(f"{method} of {unit_id} during {calls}")
        calls.append(method)
        self._last[unit_id] = method
        try:
            await real(unit_id)
        finally:
            calls.remove(method)


class WatchedNode(Node):
    """A node whose runtime is a `WatchedRuntime`; `made` has one for each life of the agent."""

    def __init__(self, root: Path, *names: str) -> None:
        super().__init__(root, *names)
        self.made: list[WatchedRuntime] = []

    def _make(self, endpoint: Endpoint, _settings: Any, _host: Host) -> FakeRuntime:
        old = self.runtimes.get(endpoint.name)
        runtime = WatchedRuntime(endpoint.name, clock=self.clock, backend=old.backend if old else None)
        runtime.backend.add_image("busybox")
        self.runtimes[endpoint.name] = runtime
        self.made.append(runtime)
        return runtime

    def states(self) -> dict[str, UnitState]:
        units = self.runtimes["one"].backend.find_units({})
        return {one.name: one.state for one in units if one.state.is_alive}

    def is_all(self, state: UnitState) -> bool:
        return self.states() == dict.fromkeys(NAMES, state)


FAULTS = ("error", "hang", "lost answer", "slow", "ignores its cancellation")
CALLS = st.sampled_from(["freeze", "thaw", "hibernate", "unit_status"])
EVENTS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from([Power.RUNNING, Power.STANDBY, Power.HIBERNATED, None])),
    st.tuples(st.just("write"), st.sampled_from(list(STATES))),
    st.tuples(st.just("fault"), st.tuples(CALLS, st.sampled_from(FAULTS))),
    st.tuples(st.just("time"), st.sampled_from([0.01, 0.05, 0.3, 2.0])),
    st.tuples(st.just("exit"), st.sampled_from(NAMES)),
    st.tuples(st.just("outage"), st.booleans()),
)
LIVES = st.lists(st.lists(EVENTS, max_size=8), min_size=1, max_size=3)


def fault(runtime: WatchedRuntime, call: str, kind: str) -> None:
    """Let the next call of this method fail, hang until its deadline, lose its answer, or take long."""
    match kind:
        case "error":
            runtime.script(call, times=1, error=Conflict("it failed"))
        case "hang":
            runtime.script(call, times=1, hang=True)
        case "lost answer":
            runtime.script(call, times=1, error=Unavailable("connection lost"), after_effect=True)
        case "slow":
            runtime.script(call, times=1, delay_seconds=0.2)
        case "ignores its cancellation":
            runtime.ignoring += 1


async def happen(node: WatchedNode, worker: PodWorker, event: str, detail: Any) -> None:
    runtime = node.runtimes["one"]
    match event:
        case "ask":
            worker.ask_power(detail, "sessions")
        case "write":
            await node.services.overrides.amend(worker, lambda one: replace(one, power=detail))
        case "fault":
            fault(node.made[-1], *detail)
        case "time":
            await let_others_work()
            await node.clock.run_for(detail)
        case "exit" if detail in node.states():
            runtime.backend.exit_unit(runtime.backend.find_unit(detail), 1)
        case "outage":
            (runtime.backend.kill if detail else runtime.backend.revive)()


async def end_deaf_calls(node: WatchedNode) -> None:
    """Let calls end that ignore their cancellation: the end of the agent waits for them and does not move the clock."""
    node.made[-1].ignoring = 0
    while node.made[-1].deaf:
        await node.clock.run_for(0.3)


async def play(root: Path, lives: list[list[tuple[str, Any]]], *, deletes: bool) -> None:
    node = WatchedNode(root, "one")
    node.limits = HURRIED  # a call of the history may hang
    await live(node, lives, deletes=deletes)
    assert [wrong for one in node.made for wrong in one.wrong] == []


async def live(node: WatchedNode, lives: list[list[tuple[str, Any]]], *, deletes: bool) -> None:
    for events in lives:
        async with node.running() as manager:
            manager.update("file", the_pod())
            manager.synced("file")
            await node.until(lambda: set(node.states()) == set(NAMES), seconds=900)
            worker = manager.workers[UID]
            for event, detail in events:
                await happen(node, worker, event, detail)
            await end_deaf_calls(node)
            node.runtimes["one"].backend.revive()
    async with node.running() as manager:
        manager.update("file", the_pod())
        manager.synced("file")
        if deletes:
            manager.remove("file", UID)
            await node.until(lambda: not manager.workers, seconds=900)
            assert not node.runtimes["one"].backend.units
            return
        worker = manager.workers[UID]
        await node.until(lambda: overrides_of(worker.facts) is not None)
        stored = overrides_of(worker.facts)
        wanted = STATES[stored.power if stored is not None else ""]
        await node.until(lambda: node.is_all(wanted), seconds=900)
        worker.ask_power(Power.RUNNING, "sessions")
        await node.until(lambda: node.is_all(UnitState.RUNNING), seconds=900)


@settings(max_examples=25, deadline=None)
@given(lives=LIVES, deletes=st.booleans())
def test_a_pod_ends_in_the_stored_state_or_deleted_whatever_its_runtime_did(
    lives: list[list[tuple[str, Any]]], deletes: bool
) -> None:
    with tempfile.TemporaryDirectory() as root, structlog.testing.capture_logs() as logs:
        asyncio.run(play(Path(root), lives, deletes=deletes))
    assert not [one for one in logs if one["event"] == "Action failed with a bug"]
