"""A containerd task that was created and never started, as a start that is cut off can leave it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from kubeletx_containerd.runtime import ContainerdRuntime

from kubeletx.api import ImageSpec, NotFound, Process, SandboxId, SupportsImages, UnitId
from kubeletx.cri.containerd import NAMESPACE_HEADER
from kubeletx.cri.images import CRI_NAMESPACE
from kubeletx.cri.methods import method
from kubeletx.cri.stubs import containerd_tasks_pb2 as tasks
from kubeletx.cri.stubs.containerd_types_pb2 import Mount
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx.testing.lab import PrivateContainerd, image_ref

pytestmark = pytest.mark.integration

CREATE = method(
    "containerd.services.tasks.v1.Tasks", "Create", tasks.CreateTaskRequest, tasks.CreateTaskResponse
)
GET = method("containerd.services.tasks.v1.Tasks", "Get", tasks.GetRequest, tasks.GetResponse)
HEADER = ((NAMESPACE_HEADER, CRI_NAMESPACE),)


@pytest_asyncio.fixture
async def runtime(containerd_a: PrivateContainerd, tmp_path: Path) -> AsyncIterator[ContainerdRuntime]:
    runtime = ContainerdRuntime(endpoint(containerd_a.endpoint), None, FakeHost(tmp_path))
    await runtime.open()
    yield runtime
    await runtime.close()


async def leave_a_task(runtime: ContainerdRuntime, log_directory: Path) -> tuple[SandboxId, UnitId]:
    """A container whose task is created behind the CRI's back; it stays CREATED."""
    images = runtime.capability(SupportsImages)
    assert images is not None
    image = ImageSpec(requested=image_ref("busybox"))
    image = msgspec.structs.replace(image, ref=await images.pull_image(image, None, None))
    sandbox = sandbox_spec("left", log_directory=str(log_directory))
    unit = unit_spec("main", detail=Process(command=("sleep", "1000")), log_path="main.log")
    sandbox_id = await runtime.create_sandbox(sandbox)
    unit_id = await runtime.create_unit(sandbox_id, msgspec.structs.replace(unit, image=image), sandbox)
    rootfs = Mount(type="bind", source="/", options=["bind", "ro"])
    request = tasks.CreateTaskRequest(container_id=unit_id, rootfs=[rootfs])
    await runtime.client.call(CREATE, request, timeout_seconds=30, metadata=HEADER)
    return sandbox_id, unit_id


async def is_there(runtime: ContainerdRuntime, unit_id: UnitId) -> bool:
    try:
        request = tasks.GetRequest(container_id=unit_id)
        await runtime.client.call(GET, request, timeout_seconds=30, metadata=HEADER)
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
