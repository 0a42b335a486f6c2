"""`ContainerdTasks` against the scripted server."""

from __future__ import annotations

import signal

import grpc
import pytest

from kubeletx.api import Conflict, Internal, NotFound, TimedOut, Unsupported
from kubeletx.cri import ContainerdTask, ContainerdTasks, CriClient, TaskState
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx_testing.cri_server import FakeCriServer


@pytest.fixture
def tasks(server: FakeCriServer, client: CriClient) -> ContainerdTasks:
    server.uuid = "1234"
    server.model.containers["c1"] = pb.ContainerStatus(id="c1", state=pb.CONTAINER_RUNNING)
    return ContainerdTasks(client)


async def state(tasks: ContainerdTasks) -> TaskState:
    return (await tasks.get("c1")).state


async def test_a_task_is_paused_and_resumed(tasks: ContainerdTasks) -> None:
    assert await tasks.get("c1") == ContainerdTask(id="c1", state=TaskState.RUNNING, pid=1)
    await tasks.pause("c1")
    assert await state(tasks) is TaskState.PAUSED
    await tasks.resume("c1")
    assert await state(tasks) is TaskState.RUNNING


async def test_what_is_paused_or_runs_already_is_not_an_error(tasks: ContainerdTasks) -> None:
    await tasks.resume("c1")
    await tasks.pause("c1")
    await tasks.pause("c1")
    assert await state(tasks) is TaskState.PAUSED


async def test_a_task_that_stopped_is_neither_paused_nor_resumed(
    server: FakeCriServer, tasks: ContainerdTasks
) -> None:
    server.model.exit("c1", 3)
    assert await tasks.get("c1") == ContainerdTask(id="c1", state=TaskState.STOPPED, pid=1, exit_code=3)
    for change in (tasks.pause, tasks.resume):
        with pytest.raises(Conflict, match="task c1 has stopped"):
            await change("c1")


async def test_a_refusal_of_a_running_task_is_raised_as_it_is(
    server: FakeCriServer, tasks: ContainerdTasks
) -> None:
    for name in ("Pause", "Kill"):
        server.refuse(name, grpc.StatusCode.UNKNOWN, "freezer is not there")
    with pytest.raises(Internal, match="freezer is not there"):
        await tasks.pause("c1")
    with pytest.raises(Internal, match="freezer is not there"):
        await tasks.kill("c1")


async def test_a_kill_sends_the_signal_and_may_come_twice(
    server: FakeCriServer, tasks: ContainerdTasks
) -> None:
    await tasks.kill("c1", signal.SIGTERM, all_processes=True)
    request = server.last("Kill")
    assert (request.container_id, request.signal, request.all) == ("c1", signal.SIGTERM, True)
    assert (await tasks.get("c1")).exit_code == 128 + signal.SIGTERM
    await tasks.kill("c1")
    server.refuse("Kill", grpc.StatusCode.FAILED_PRECONDITION, "not running", times=1)
    await tasks.kill("c1")
    await tasks.kill("c2")


async def test_the_state_of_a_task_whose_shim_does_not_answer_is_an_error(
    server: FakeCriServer, tasks: ContainerdTasks
) -> None:
    server.model.hung.add("c1")
    with pytest.raises(TimedOut, match="task c1"):
        await tasks.get("c1")


async def test_an_unknown_task_is_not_found_and_its_deletion_succeeds(tasks: ContainerdTasks) -> None:
    for call in (tasks.get, tasks.pause, tasks.resume):
        with pytest.raises(NotFound):
            await call("c2")
    await tasks.delete("c2")


async def test_a_deletion_kills_all_processes_first(server: FakeCriServer, tasks: ContainerdTasks) -> None:
    await tasks.delete("c1")
    names = [call.method for call in server.calls]
    assert names == ["Kill", "Wait", "Delete"]
    assert server.last("Kill").all


async def test_another_server_than_containerd_does_not_know_tasks(
    server: FakeCriServer, tasks: ContainerdTasks
) -> None:
    server.uuid = ""
    with pytest.raises(Unsupported):
        await tasks.get("c1")
