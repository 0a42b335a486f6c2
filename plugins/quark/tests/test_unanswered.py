"""Frozen containers whose state containerd cannot tell, since their shims do not answer or for another fault."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from kubeletx_quark.plugin import make_runtime
from kubeletx_quark.resting import ASKS

from kubeletx.api import Host, Runtime, SupportsStandby, TimedOut, UnitId, UnitState
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.cri_server import FakeCriServer
from kubeletx_testing.waiting import let_others_work, until


def runtime_of(server: FakeCriServer, host: Host) -> Runtime:
    return make_runtime(endpoint(f"{server.url}?strategy=pause"), None, host)


async def run_frozen(server: FakeCriServer, host: FakeHost, count: int) -> list[UnitId]:
    """Start containers that an earlier agent process has hibernated; the kernel does not show that."""
    runtime, hibernated = runtime_of(server, host), host.state_directory / "hibernated"
    await runtime.open()
    hibernated.mkdir(parents=True)
    made = []
    for number in range(count):
        sandbox = sandbox_spec(f"pod-{number}")
        unit_id = await runtime.create_unit(await runtime.create_sandbox(sandbox), unit_spec(), sandbox)
        await runtime.start_unit(unit_id)
        server.model.paused.add(unit_id)
        (hibernated / unit_id).touch()
        made.append(unit_id)
    await runtime.close()
    return made


async def states(runtime: Runtime) -> Counter[UnitState]:
    return Counter(unit.state for unit in await runtime.list_units({}))


async def test_a_container_whose_state_cannot_be_read_is_found_by_a_later_look(
    server: FakeCriServer, tmp_path: Path
) -> None:
    host = FakeHost(tmp_path)
    await run_frozen(server, host, 5)
    runtime = runtime_of(server, host)
    server.refuse("Get", grpc.StatusCode.INTERNAL, "disk fault", times=1)
    await runtime.open()
    server.refuse("Get", grpc.StatusCode.INTERNAL, "disk fault", times=5)
    assert await states(runtime) == {UnitState.SUSPENDED: 4, UnitState.RUNNING: 1}
    assert await states(runtime) == {UnitState.SUSPENDED: 5}
    await runtime.close()


async def test_a_container_that_was_frozen_again_in_the_meantime_is_not_hibernated(
    server: FakeCriServer, tmp_path: Path
) -> None:
    host = FakeHost(tmp_path)
    (unit_id,) = await run_frozen(server, host, 1)
    runtime = runtime_of(server, host)
    server.refuse("Get", grpc.StatusCode.INTERNAL, "disk fault", times=1)
    await runtime.open()
    server.model.paused.clear()
    assert await states(runtime) == {UnitState.RUNNING: 1}
    able = runtime.capability(SupportsStandby)
    assert able is not None
    await able.freeze(unit_id)
    assert await states(runtime) == {UnitState.PAUSED: 1}
    await runtime.close()


async def test_a_container_whose_shim_does_not_answer_stays_frozen_and_is_thawed_later(
    server: FakeCriServer, tmp_path: Path
) -> None:
    host = FakeHost(tmp_path)
    (unit_id,) = await run_frozen(server, host, 1)
    runtime = runtime_of(server, host)
    await runtime.open()
    server.model.hung.add(unit_id)
    able = runtime.capability(SupportsStandby)
    assert able is not None
    with pytest.raises(TimedOut):
        await able.thaw(unit_id)
    assert await states(runtime) == {UnitState.SUSPENDED: 1}
    server.model.hung.clear()
    await able.thaw(unit_id)
    assert (server.model.paused, await states(runtime)) == (set(), {UnitState.RUNNING: 1})
    await runtime.close()


async def test_the_note_of_a_lifted_limit_of_swap_is_kept_while_the_shim_does_not_answer(
    server: FakeCriServer, tmp_path: Path
) -> None:
    host = FakeHost(tmp_path)
    (unit_id,) = await run_frozen(server, host, 1)
    server.model.hung.add(unit_id)
    notes = host.state_directory / "swap-limits"
    notes.mkdir()
    for name in ("0-gone", unit_id, "z-gone"):
        (notes / name).write_text("0")
    runtime = runtime_of(server, host)
    await runtime.open()
    assert [note.name for note in notes.iterdir()] == [unit_id]
    await runtime.close()


async def test_states_are_read_several_at_once(server: FakeCriServer, tmp_path: Path) -> None:
    async def check(call: Coroutine[Any, Any, object]) -> None:
        gate, wanted = server.hold("Get"), server.count("Get") + ASKS
        task = asyncio.create_task(call, name="call")
        await until(lambda: server.count("Get") == wanted)
        await let_others_work()
        assert server.count("Get") == wanted
        gate.set()
        await task

    host = FakeHost(tmp_path)
    await run_frozen(server, host, ASKS + 1)
    runtime = runtime_of(server, host)
    await check(runtime.open())
    await check(runtime.list_units({}))
    assert await states(runtime) == {UnitState.SUSPENDED: ASKS + 1}
    await runtime.close()
