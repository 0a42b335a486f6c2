"""Containers on a runtime of plugins/quark over real containerd and runc, which run a shell script."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from kubeletx_quark.cgroups import container_cgroup, find_hierarchy
from kubeletx_quark.plugin import make_runtime
from msgspec.structs import replace

from kubeletx.api import (
    ImageSpec,
    Process,
    Runtime,
    SandboxId,
    SupportsImages,
    SupportsStandby,
    SystemClock,
    UnitId,
    UnitState,
    names,
)
from kubeletx.cri import ContainerdTask, ContainerdTasks, CriClient
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.lab import PrivateContainerd, image_ref

BUSY = "while :; do :; done"
CHILD = f"({BUSY}) & echo started; wait"
Start = Callable[..., Awaitable["Unit"]]


class Unit:
    """A running container on a runtime, and its pid on this machine."""

    def __init__(self, runtime: Runtime, unit_id: UnitId, pid: int, log: Path) -> None:
        self.runtime, self.id, self.pid, self.log = runtime, unit_id, pid, log
        found = runtime.capability(SupportsStandby)
        assert found is not None
        self.standby = found

    async def state(self) -> UnitState:
        (listed,) = [one for one in await self.runtime.list_units({}) if one.id == self.id]
        status = (await self.runtime.unit_status(self.id)).summary.state
        assert listed.state is status
        return status

    def directory(self, controller: str) -> Path:
        return container_cgroup(find_hierarchy(controller), self.pid, self.id)

    def cpu_ns(self) -> int:
        """CPU time of the container."""
        file = self.directory("cpuacct") / "cpuacct.usage"
        if file.exists():
            return int(file.read_text())
        text = (self.directory("cpuacct") / "cpu.stat").read_text()
        return int(dict(line.split() for line in text.splitlines())["usage_usec"]) * 1000

    async def until_busy(self, busy: bool = True) -> None:
        """Wait until the container uses CPU time, or none for a moment; a program handles a signal when it has its turn."""
        async with asyncio.timeout(60):
            while True:
                before = self.cpu_ns()
                await asyncio.sleep(0.05)
                if (self.cpu_ns() > before) is busy:
                    return


@asynccontextmanager
async def starting(containerd: PrivateContainerd, directory: Path) -> AsyncIterator[Start]:
    """Yield a function that starts a container: it takes the parameters of the endpoint's URL and a shell script.

    Each container is on a new runtime and in a new sandbox. `annotations`: of the sandbox. `directory`: for logs.
    """
    made: list[tuple[Runtime, SandboxId]] = []

    async def run(parameters: str, script: str, annotations: Mapping[str, str] | None = None) -> Unit:
        host = FakeHost(directory, clock=SystemClock())
        served = endpoint(f"{containerd.endpoint}?{parameters}")
        runtime = make_runtime(served, None, host)
        await runtime.open()
        images = runtime.capability(SupportsImages)
        assert images is not None
        image = ImageSpec(requested=image_ref("busybox"))
        image = replace(image, ref=await images.pull_image(image, None, None))
        name = f"quark-{os.getpid()}-{len(made)}"
        sandbox = sandbox_spec(name, log_directory=str(directory), annotations=dict(annotations or {}))
        sandbox_id = await runtime.create_sandbox(sandbox)
        made.append((runtime, sandbox_id))
        spec = unit_spec(
            "main",
            detail=Process(command=("sh", "-c", script)),
            log_path="main.log",
            labels={
                names.CONTAINER_NAME: "main",
                names.AGENT_ID: host.agent_id,
                names.RUNTIME_NAME: served.name,
            },
        )
        unit_id = await runtime.create_unit(sandbox_id, replace(spec, image=image), sandbox)
        await runtime.start_unit(unit_id)
        return Unit(runtime, unit_id, (await task(containerd, unit_id)).pid, directory / "main.log")

    try:
        yield run
    finally:
        for runtime, sandbox_id in made:
            await runtime.stop_sandbox(sandbox_id)
            await runtime.remove_sandbox(sandbox_id)
            await runtime.close()


async def task(containerd: PrivateContainerd, unit_id: UnitId) -> ContainerdTask:
    client = CriClient(containerd.endpoint)
    try:
        return await ContainerdTasks(client).get(unit_id)
    finally:
        await client.close()
