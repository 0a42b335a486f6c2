"""Which strategy a container gets: by annotation, by the endpoint's URL, or by what its runtime can do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kubeletx_quark.cgroups import PROC
from kubeletx_quark.choice import choose
from kubeletx_quark.runtime import QuarkRuntime

from kubeletx.api import InvalidPod, Runtime, SupportsStandby, UnitId, UnitState, Unsupported, names
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.cri_server import FakeCriServer

Opened = Callable[..., Awaitable[Runtime]]
MOUNTED = "31 30 0:34 / /nowhere rw - cgroup cgroup rw,freezer\n"
PAUSE = {names.STANDBY_STRATEGY: "pause"}
TYPES = {"runc": "io.containerd.runc.v2", "kata": "io.containerd.kata.v2", "quark": "io.containerd.quark.v1"}


@pytest.mark.parametrize(
    ("runtime_type", "has_freezer", "strategy"),
    [
        ("io.containerd.runc.v2", True, "freezer"),
        ("io.containerd.runtime.v1.linux", True, "freezer"),
        ("", True, "freezer"),
        ("io.containerd.runc.v2", False, "pause"),
        ("", False, "pause"),
        ("io.containerd.kata.v2", True, "pause"),
        ("io.containerd.runsc.v1", True, "pause"),
        ("io.containerd.quark.v1", True, "signal"),
        ("io.containerd.quark.v1", False, "signal"),
    ],
)
def test_the_runtime_type_and_the_freezer_decide(runtime_type: str, has_freezer: bool, strategy: str) -> None:
    chosen, because = choose(runtime_type, has_freezer=has_freezer)
    assert chosen.value == strategy
    assert because


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeCriServer]:
    """A containerd with handlers of three runtime types; runc is the default."""
    async with FakeCriServer(tmp_path, uuid="1234") as server:
        runtimes = {name: {"runtimeType": kind} for name, kind in TYPES.items()}
        containerd = {"defaultRuntimeName": "runc", "runtimes": runtimes}
        server.model.verbose = {"config": json.dumps({"containerd": containerd})}
        server.model.add_image("busybox")
        yield server


@pytest_asyncio.fixture
async def opened(server: FakeCriServer, tmp_path: Path) -> AsyncIterator[Opened]:
    """Makes and opens runtimes with these parameters in their URLs."""
    made = []

    async def make(parameters: str, proc: Path = PROC) -> Runtime:
        at = endpoint(f"{server.url}?{parameters}")
        runtime = QuarkRuntime(at, None, FakeHost(tmp_path), proc=proc)
        made.append(runtime)
        await runtime.open()
        return runtime

    yield make
    for one in made:
        await one.close()


async def start(runtime: Runtime, name: str, **fields: Any) -> UnitId:
    sandbox = sandbox_spec(name, **fields)
    sandbox_id = await runtime.create_sandbox(sandbox)
    unit_id = await runtime.create_unit(sandbox_id, unit_spec("main"), sandbox)
    await runtime.start_unit(unit_id)
    return unit_id


def standby_of(runtime: Runtime) -> SupportsStandby:
    standby = runtime.capability(SupportsStandby)
    assert standby is not None
    return standby


async def state(runtime: Runtime, unit_id: UnitId) -> UnitState:
    (listed,) = [unit.state for unit in await runtime.list_units({}) if unit.id == unit_id]
    assert (await runtime.unit_status(unit_id)).summary.state is listed
    return listed


@pytest.mark.parametrize(
    ("parameters", "known"),
    [
        ("", ("freezer", "pause", "signal")),
        ("handler=kata", ("pause", "freezer", "signal")),
        ("handler=quark", ("signal", "freezer", "pause")),
        ("handler=quark&strategy=pause", ("pause", "freezer", "signal")),
    ],
)
async def test_the_traits_name_the_strategies_and_the_default_first(
    opened: Opened, parameters: str, known: tuple[str, ...]
) -> None:
    assert (await opened(parameters)).traits().standby_strategies == known


async def test_the_choice_is_logged_once(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = await opened("handler=kata")
    await runtime.open()
    lines = [line for line in capsys.readouterr().out.split("\n") if "Chose the standby strategy" in line]
    assert len(lines) == 1
    assert "strategy=pause" in lines[0]


async def test_an_annotation_chooses_the_strategy_of_one_pod(opened: Opened, server: FakeCriServer) -> None:
    runtime = await opened("strategy=signal")
    unit_id = await start(runtime, "one", annotations=PAUSE)
    await standby_of(runtime).freeze(unit_id)
    assert server.model.paused == {unit_id}
    assert await state(runtime, unit_id) is UnitState.PAUSED
    await standby_of(runtime).thaw(unit_id)
    assert not server.model.paused
    assert await state(runtime, unit_id) is UnitState.RUNNING


async def test_the_annotation_and_the_handler_hold_after_a_restart_of_the_agent(
    opened: Opened, server: FakeCriServer
) -> None:
    first = await opened("strategy=signal")
    units = [await start(first, "one", annotations=PAUSE)]
    plain = await opened("")
    units.append(await start(plain, "two", handler="kata"))
    for parameters in ("strategy=signal", ""):
        later = await opened(parameters)
        unit_id = units.pop(0)
        await standby_of(later).freeze(unit_id)
        assert unit_id in server.model.paused


async def test_the_strategy_costs_no_call_in_a_list(opened: Opened, server: FakeCriServer) -> None:
    runtime = await opened("strategy=pause")
    await start(runtime, "one")
    before = len(server.calls)
    await runtime.list_units({})
    await runtime.list_units({names.POD_UID: "uid-one"})
    assert [call.method for call in server.calls[before:]] == ["ListContainers", "ListContainers"]


async def test_an_unknown_strategy_makes_no_sandbox(opened: Opened, server: FakeCriServer) -> None:
    runtime = await opened("")
    with pytest.raises(
        InvalidPod, match=r"standby-strategy\]: 'ice' is not known; use one of: freezer, pause"
    ):
        await start(runtime, "one", annotations={names.STANDBY_STRATEGY: "ice"})
    assert not server.model.sandboxes


async def test_a_container_is_thawed_as_it_was_frozen_if_the_strategy_has_changed(
    opened: Opened, server: FakeCriServer
) -> None:
    before = await opened("strategy=pause")
    unit_id = await start(before, "one")
    await standby_of(before).freeze(unit_id)
    after = await opened("strategy=freezer")
    assert await state(after, unit_id) is UnitState.PAUSED
    await standby_of(after).thaw(unit_id)
    assert not server.model.paused
    assert await state(after, unit_id) is UnitState.RUNNING


async def test_without_a_request_a_container_whose_cgroup_is_not_seen_is_paused(
    opened: Opened, server: FakeCriServer, tmp_path: Path
) -> None:
    unit_id = await start(await opened(""), "one")
    for name, text in (("self/mountinfo", MOUNTED), ("1/cgroup", f"6:freezer:/../{unit_id}\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    await standby_of(await opened("", tmp_path)).freeze(unit_id)
    assert server.model.paused == {unit_id}
    server.model.paused.clear()
    with pytest.raises(Unsupported, match="is not visible below"):
        await standby_of(await opened("strategy=freezer", tmp_path)).freeze(unit_id)
    assert not server.model.paused
