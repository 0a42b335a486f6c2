"""Tasks of real containerd: created and never started, without a record, paused, resumed and killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from google.protobuf.empty_pb2 import Empty

from kubeletx.api import (
    ImageSpec,
    NotFound,
    Process,
    SandboxId,
    SupportsImages,
    UnitId,
    UnitState,
    UnitStatus,
)
from kubeletx.cri import CRI_NAMESPACE, ContainerdRuntime, ContainerdTasks, TaskState
from kubeletx.cri.containerd import NAMESPACE_HEADER
from kubeletx.cri.methods import method
from kubeletx.cri.stubs import containerd_containers_pb2 as containers
from kubeletx.cri.stubs import containerd_tasks_pb2 as tasks
from kubeletx.cri.stubs.containerd_types_pb2 import Mount
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.lab import PrivateContainerd, image_ref

pytestmark = pytest.mark.integration

CREATE = method(tasks.DESCRIPTOR.services_by_name["Tasks"], tasks.CreateTaskRequest, tasks.CreateTaskResponse)
DELETE = method(
    containers.DESCRIPTOR.services_by_name["Containers"], containers.DeleteContainerRequest, Empty
)
HEADER = ((NAMESPACE_HEADER, CRI_NAMESPACE),)


@pytest_asyncio.fixture
async def runtime(containerd_a: PrivateContainerd, tmp_path: Path) -> AsyncIterator[ContainerdRuntime]:
    runtime = ContainerdRuntime(endpoint(containerd_a.endpoint), None, FakeHost(tmp_path))
    await runtime.open()
    yield runtime
    await runtime.close()


async def make_container(
    runtime: ContainerdRuntime, log_directory: Path, *command: str
) -> tuple[SandboxId, UnitId]:
    images = runtime.capability(SupportsImages)
    assert images is not None
    image = ImageSpec(requested=image_ref("busybox"))
    image = msgspec.structs.replace(image, ref=await images.pull_image(image, None, None))
    sandbox = sandbox_spec("tasks", log_directory=str(log_directory))
    unit = unit_spec("main", detail=Process(command=command), log_path="main.log")
    sandbox_id = await runtime.create_sandbox(sandbox)
    return sandbox_id, await runtime.create_unit(
        sandbox_id, msgspec.structs.replace(unit, image=image), sandbox
    )


async def leave_a_task(runtime: ContainerdRuntime, log_directory: Path) -> tuple[SandboxId, UnitId]:
    """A container whose task is created behind the CRI's back; it stays CREATED."""
    sandbox_id, unit_id = await make_container(runtime, log_directory, "sleep", "1000")
    rootfs = Mount(type="bind", source="/", options=["bind", "ro"])
    request = tasks.CreateTaskRequest(container_id=unit_id, rootfs=[rootfs])
    await runtime.client.call(CREATE, request, timeout_seconds=30, metadata=HEADER)
    return sandbox_id, unit_id


async def wait_exited(runtime: ContainerdRuntime, unit_id: UnitId) -> UnitStatus:
    while (status := await runtime.unit_status(unit_id)).summary.state is not UnitState.EXITED:
        await asyncio.sleep(0.05)
    return status


async def is_there(runtime: ContainerdRuntime, unit_id: UnitId) -> bool:
    try:
        await ContainerdTasks(runtime.client).get(unit_id)
    except NotFound:
        return False
    return True


@pytest.mark.parametrize("whole", [True, False], ids=["sandbox", "container"])
async def test_a_task_that_was_never_started_goes_with_its_pod(
    runtime: ContainerdRuntime, tmp_path: Path, whole: bool
) -> None:
    sandbox_id, unit_id = await leave_a_task(runtime, tmp_path)
    assert await is_there(runtime, unit_id)
    if not whole:
        await runtime.remove_unit(unit_id)
        assert not await is_there(runtime, unit_id)
    await runtime.stop_sandbox(sandbox_id)
    await runtime.remove_sandbox(sandbox_id)
    assert not await is_there(runtime, unit_id)
    assert sandbox_id not in [one.id for one in await runtime.list_sandboxes({})]


@pytest.mark.parametrize("state", ["exited", "running"])
async def test_a_container_that_another_client_deleted_from_containerd_goes_with_its_pod(
    runtime: ContainerdRuntime, tmp_path: Path, state: str
) -> None:
    sandbox_id, unit_id = await make_container(runtime, tmp_path, "sleep", "1000")
    await runtime.start_unit(unit_id)
    pid = (await ContainerdTasks(runtime.client).get(unit_id)).pid
    if state == "exited":
        await ContainerdTasks(runtime.client).kill(unit_id)
        await wait_exited(runtime, unit_id)
    request = containers.DeleteContainerRequest(id=unit_id)
    await runtime.client.call(DELETE, request, timeout_seconds=30, metadata=HEADER)
    assert unit_id in [one.id for one in await runtime.list_units({})]
    await runtime.stop_unit(unit_id, 0)
    assert not Path(f"/proc/{pid}").exists()
    await runtime.stop_sandbox(sandbox_id)
    await runtime.remove_sandbox(sandbox_id)
    assert sandbox_id not in [one.id for one in await runtime.list_sandboxes({})]
    assert unit_id not in [one.id for one in await runtime.list_units({})]


async def test_a_container_is_paused_resumed_and_killed_by_its_task(
    runtime: ContainerdRuntime, tmp_path: Path
) -> None:
    sandbox_id, unit_id = await make_container(runtime, tmp_path, "sleep", "1000")
    tasks = ContainerdTasks(runtime.client)
    with pytest.raises(NotFound):
        await tasks.get(unit_id)
    await runtime.start_unit(unit_id)
    for _ in range(2):
        await tasks.pause(unit_id)
        assert (await tasks.get(unit_id)).state is TaskState.PAUSED
    for _ in range(2):
        await tasks.resume(unit_id)
        assert (await tasks.get(unit_id)).state is TaskState.RUNNING
    await tasks.kill(unit_id)
    assert (await wait_exited(runtime, unit_id)).exit_code == 137
    await tasks.kill(unit_id)
    await runtime.stop_sandbox(sandbox_id)
    await runtime.remove_sandbox(sandbox_id)
    await tasks.delete(unit_id)
