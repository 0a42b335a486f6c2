"""A task that a cut-off start left in containerd does not keep a pod for ever: it is ended, or an event says how."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from kubeletx.api import Conflict, Internal, PodUid, SandboxId, UnitId
from kubeletx.cri import ContainerdRuntime, CriRuntime
from kubeletx.testing import FakeHost, endpoint, sandbox_spec
from kubeletx_testing.cri_server import FakeCriServer
from tests.unit.pods.manager_model import Node, a_pod

UNKNOWN = grpc.StatusCode.UNKNOWN


def refusal(container_id: str) -> str:
    return f"failed to delete containerd container: cannot delete running task {container_id}: failed precondition"


@pytest.fixture
def socket_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cri-") as name:
        yield Path(name)


@pytest_asyncio.fixture
async def server(socket_directory: Path) -> AsyncIterator[FakeCriServer]:
    async with FakeCriServer(socket_directory, uuid="u") as server:
        yield server


class TaskEnder(ContainerdRuntime):
    """Its containerd ends tasks."""

    def __init__(self, server: FakeCriServer, root: Path) -> None:
        super().__init__(endpoint(server.url), None, FakeHost(root))
        self.ended: list[str] = []

    async def end_task(self, task_id: str) -> bool:
        self.ended.append(task_id)
        return True


async def test_a_left_task_of_the_container_is_ended_and_the_container_removed(
    server: FakeCriServer, tmp_path: Path
) -> None:
    runtime = TaskEnder(server, tmp_path)
    await runtime.open()
    server.refuse("RemoveContainer", UNKNOWN, refusal("c1"), times=1)
    await runtime.remove_unit(UnitId("c1"))
    assert runtime.ended == ["c1"]
    assert server.count("RemoveContainer") == 2
    await runtime.close()


async def test_a_left_task_of_a_container_in_the_sandbox_is_ended(
    server: FakeCriServer, tmp_path: Path
) -> None:
    runtime = TaskEnder(server, tmp_path)
    await runtime.open()
    sandbox_id = await runtime.create_sandbox(sandbox_spec("p"))
    runtime.known.add_unit(UnitId("c1"), sandbox_id, PodUid("p"))
    server.refuse("RemovePodSandbox", UNKNOWN, refusal("c1"), times=1)
    await runtime.remove_sandbox(sandbox_id)
    assert runtime.ended == ["c1"]
    await runtime.close()


async def test_a_task_that_is_not_of_the_pod_is_never_ended(server: FakeCriServer, tmp_path: Path) -> None:
    runtime = TaskEnder(server, tmp_path)
    await runtime.open()
    server.refuse("RemovePodSandbox", UNKNOWN, refusal("other"))
    with pytest.raises(Conflict):
        await runtime.remove_sandbox(SandboxId("s1"))
    assert runtime.ended == []
    await runtime.close()


async def test_a_task_that_is_still_there_afterwards_is_an_error(
    server: FakeCriServer, tmp_path: Path
) -> None:
    runtime = TaskEnder(server, tmp_path)
    await runtime.open()
    server.refuse("RemoveContainer", UNKNOWN, refusal("c1"))
    with pytest.raises(Internal, match="cannot delete running task"):
        await runtime.remove_unit(UnitId("c1"))
    assert runtime.ended == ["c1"]
    await runtime.close()


@pytest.mark.parametrize("kind", [CriRuntime, ContainerdRuntime])
async def test_where_the_task_cannot_be_ended_the_error_says_what_to_do(
    server: FakeCriServer, tmp_path: Path, kind: type[CriRuntime]
) -> None:
    runtime = kind(endpoint(server.url), None, FakeHost(tmp_path))
    await runtime.open()
    server.refuse("Kill", grpc.StatusCode.UNIMPLEMENTED)
    server.refuse("RemoveContainer", UNKNOWN, refusal("c1"))
    with pytest.raises(Conflict, match=r"ctr -n k8s\.io tasks delete --force c1', or restart the runtime"):
        await runtime.remove_unit(UnitId("c1"))
    await runtime.close()


async def test_a_container_that_cannot_be_removed_makes_an_event(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    async with node.running() as manager:
        await node.start(a_pod())
        runtime = node.runtimes["one"]
        runtime.script("remove_unit", error=Conflict("end it with ctr"))
        for _ in range(2):
            before = runtime.counts["start_unit"]
            runtime.backend.exit_unit(runtime.backend.find_unit("c0"), 1)
            await node.until(lambda before=before: runtime.counts["start_unit"] > before, 400)
        await node.until(lambda: "FailedKillPod" in node.sink.reasons())
        assert any("end it with ctr" in one.message for one in node.sink.recorded)
        assert manager.workers
