"""A `CriRuntime` for one runtime handler of a server, and one for the whole server."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import msgspec
import pytest

from kubeletx.api import (
    SupportsStats,
    Unsupported,
    names,
)
from kubeletx.cri import CriRuntime
from kubeletx.testing import sandbox_spec, unit_spec
from kubeletx_testing.cri_server import FakeCriServer

Code = grpc.StatusCode
MakeRuntime = Callable[..., CriRuntime]

SPEC = sandbox_spec("web", labels={names.AGENT_ID: "agent-1", names.POD_UID: "uid-web"})
UNIT = unit_spec("main", labels={names.AGENT_ID: "agent-1"})


async def test_a_runtime_that_is_one_handler_makes_and_lists_only_its_own(
    server: FakeCriServer, runtime: CriRuntime, make_runtime: MakeRuntime
) -> None:
    crun = make_runtime("?handler=crun")
    await crun.open()
    theirs = await runtime.create_sandbox(SPEC)
    await runtime.start_unit(await runtime.create_unit(theirs, UNIT, SPEC))
    mine_spec = sandbox_spec("mine")
    mine = await crun.create_sandbox(mine_spec)
    unit_id = await crun.create_unit(mine, UNIT, mine_spec)
    await crun.start_unit(unit_id)
    assert server.model.sandboxes[mine].runtime_handler == "crun"
    assert [s.id for s in await crun.list_sandboxes({})] == [mine]
    assert [u.id for u in await crun.list_units({})] == [unit_id]
    stats = crun.capability(SupportsStats)
    assert stats is not None
    assert [s.id for s in await stats.list_unit_stats({})] == [unit_id]
    assert len(await runtime.list_sandboxes({})) == 2
    await crun.close()


async def test_our_own_name_among_the_labels_saves_the_second_list(
    server: FakeCriServer, make_runtime: MakeRuntime
) -> None:
    crun = make_runtime("?handler=crun")
    await crun.open()
    await crun.list_units({names.RUNTIME_NAME: crun.endpoint.name})
    assert server.count("ListPodSandbox") == 0
    await crun.list_units({names.RUNTIME_NAME: "other"})
    assert server.count("ListPodSandbox") == 1
    await crun.close()


async def test_a_pod_that_asks_for_another_handler_is_unsupported_there(make_runtime: MakeRuntime) -> None:
    crun = make_runtime("?handler=crun")
    await crun.open()
    with pytest.raises(Unsupported, match="crun"):
        await crun.create_sandbox(msgspec.structs.replace(SPEC, handler="runc"))
    assert await crun.create_sandbox(msgspec.structs.replace(SPEC, handler="crun"))
    await crun.close()


async def test_a_whole_server_takes_the_handler_that_the_pod_asks_for(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    sandbox_id = await runtime.create_sandbox(msgspec.structs.replace(SPEC, handler="crun"))
    assert server.model.sandboxes[sandbox_id].runtime_handler == "crun"


async def test_an_endpoint_with_an_unknown_handler_is_not_ready(make_runtime: MakeRuntime) -> None:
    kata = make_runtime("?handler=kata")
    await kata.open()
    health = await kata.health()
    assert not health.runtime_ready
    assert "kata" in health.message
    await kata.close()


async def test_the_cgroup_is_a_slice_where_systemd_makes_it(
    server: FakeCriServer, runtime: CriRuntime
) -> None:
    server.model.verbose["config"] = server.model.verbose["config"].replace("false", "true", 1)
    await runtime.open()
    assert runtime.cgroup_driver() == "systemd"
    spec = msgspec.structs.replace(SPEC, cgroup_parent="/kubepods/besteffort/pod1-2")
    sandbox_id = await runtime.create_sandbox(spec)
    await runtime.create_unit(sandbox_id, UNIT, spec)
    for request in (server.last("RunPodSandbox").config, server.last("CreateContainer").sandbox_config):
        assert request.linux.cgroup_parent == "kubepods-besteffort-pod1_2.slice"
