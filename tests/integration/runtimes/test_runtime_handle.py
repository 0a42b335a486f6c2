"""`RuntimeHandle` on real containerd: which events are news, outages, process isolation, images per store."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from kubeletx_containerd.plugin import make_runtime

from kubeletx.api import (
    Endpoint,
    EventKind,
    Host,
    ImageSpec,
    PodUid,
    Process,
    Runtime,
    RuntimeEvent,
    RuntimeName,
    SandboxId,
    SupportsImages,
    SystemClock,
    Unavailable,
    UnitId,
    UnitState,
    names,
)
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.handles.limits import Limits
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.testing import FakeEventSink, FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.lab import PrivateContainerd, image_ref

AGENT = f"handle-{os.getpid()}"
LIMITS = Limits(
    probe_seconds=3.0,
    probe_interval_seconds=1.0,
    health_grace_seconds=1.0,
    settle_seconds=0.3,
    query_seconds=5.0,
)


class Rig:
    """A handle on the first containerd."""

    def __init__(self, containerd: PrivateContainerd, directory: Path, isolated: bool) -> None:
        self.pods: list[tuple[PodUid, RuntimeEvent | None]] = []
        self.directory = directory
        self.sink = FakeEventSink()
        clock = SystemClock()
        host: Host = FakeHost(directory, clock=clock, agent_id=AGENT)
        at: Endpoint = endpoint(containerd.endpoint, name="under-test", kind="containerd")
        runtime: Runtime = (
            IsolatedRuntime(make_runtime, at, None, host) if isolated else make_runtime(at, None, host)
        )
        self.handle = RuntimeHandle(
            endpoint=at,
            runtime=runtime,
            agent_id=AGENT,
            clock=clock,
            events=self.sink,
            listener=self,
            limits=LIMITS,
        )

    def runtime_changed(self, name: RuntimeName) -> None:
        """Not of interest here."""

    def pod_changed(self, name: RuntimeName, uid: PodUid, event: RuntimeEvent | None) -> None:
        self.pods.append((uid, event))

    async def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)

    async def image(self) -> ImageSpec:
        service = self.handle.capability(SupportsImages)
        assert service is not None
        wanted = ImageSpec(requested=image_ref("busybox"))
        return msgspec.structs.replace(wanted, ref=await service.pull_image(wanted, None, None))

    async def start(self, pod: str, *command: str) -> tuple[SandboxId, UnitId]:
        """A pod as the workers start one: create, start, status, note."""
        labels = {names.AGENT_ID: AGENT, names.RUNTIME_NAME: self.handle.name, names.POD_UID: f"uid-{pod}"}
        spec = sandbox_spec(pod, log_directory=str(self.directory), labels=labels)
        sandbox_id = await self.handle.create_sandbox(spec)
        self.handle.note_sandbox(await self.handle.sandbox_status(sandbox_id))
        unit = unit_spec("main", detail=Process(command=command), labels=labels, log_path="main.log")
        unit = msgspec.structs.replace(unit, image=await self.image())
        unit_id = await self.handle.create_unit(sandbox_id, unit, spec)
        await self.handle.start_unit(unit_id)
        self.handle.note_unit(await self.handle.unit_status(unit_id))
        return sandbox_id, unit_id


@contextlib.asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Rig]:
    task = asyncio.create_task(rig.handle.run())
    try:
        await rig.until(lambda: rig.handle.is_listed and rig.handle.has_event_stream)
        await asyncio.sleep(1)
        yield rig
        await rig.until(lambda: rig.handle.state.reachable)
        for sandbox in await rig.handle.list_sandboxes({names.AGENT_ID: AGENT}):
            await rig.handle.stop_sandbox(sandbox.id)
            await rig.handle.remove_sandbox(sandbox.id)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(params=["in-process", "isolated"])
async def rig(
    request: pytest.FixtureRequest, containerd_a: PrivateContainerd, tmp_path: Path
) -> AsyncIterator[Rig]:
    async with running(Rig(containerd_a, tmp_path, request.param == "isolated")) as rig:
        yield rig


async def test_our_own_starts_are_not_news_and_an_exit_is_reported_at_once(rig: Rig) -> None:
    await asyncio.gather(*(rig.start(f"p{number}", "sleep", "1000") for number in range(4)))
    await asyncio.sleep(1)
    assert rig.pods == []
    assert len(rig.handle.pods()) == 4
    _, unit_id = await rig.start("short", "sleep", "0.5")
    began = asyncio.get_running_loop().time()
    await rig.until(lambda: rig.pods)
    assert asyncio.get_running_loop().time() - began < LIMITS.safety_relist_seconds[0] / 2
    uid, event = rig.pods[0]
    assert uid == "uid-short"
    assert event is not None
    assert event.kind is EventKind.STOPPED
    async with asyncio.timeout(60):
        while not rig.handle.shows(uid, event):  # the CRI status may lag behind the event
            await rig.handle.look(uid)
            await asyncio.sleep(0.01)
    snapshot = rig.handle.snapshot(uid)
    assert snapshot is not None
    assert snapshot.units[0].state is UnitState.EXITED
    status = snapshot.status_of(unit_id)
    assert status is not None
    assert status.exit_code == 0


async def test_removal_leaves_nothing_known_and_is_not_news(rig: Rig) -> None:
    sandbox_id, unit_id = await rig.start("gone", "sleep", "1000")
    await rig.handle.stop_unit(unit_id, 0)
    rig.handle.note_unit(await rig.handle.unit_status(unit_id))
    await rig.handle.stop_sandbox(sandbox_id)
    rig.handle.note_sandbox(await rig.handle.sandbox_status(sandbox_id))
    await rig.handle.remove_unit(unit_id)
    await rig.handle.remove_sandbox(sandbox_id)
    assert rig.handle.snapshot(PodUid("uid-gone")) is None
    await asyncio.sleep(1)
    assert rig.pods == []


async def test_a_stopped_daemon_is_one_outage_and_everything_is_still_known_after_it(
    rig: Rig, containerd_a: PrivateContainerd
) -> None:
    await rig.start("kept", "sleep", "1000")
    before = dict(rig.handle.pods())
    containerd_a.pause()
    try:
        await rig.until(lambda: not rig.handle.state.reachable)
        with pytest.raises(Unavailable):
            await rig.handle.look(PodUid("uid-kept"))
        assert dict(rig.handle.pods()) == before
    finally:
        containerd_a.resume()
    await rig.until(lambda: rig.handle.state.ready and rig.handle.has_event_stream)
    assert dict(rig.handle.pods()) == before
    assert rig.sink.reasons() == [
        names.Event.RUNTIME_READY,
        names.Event.RUNTIME_NOT_READY,
        names.Event.RUNTIME_READY,
    ]


async def test_a_restarted_daemon_is_found_again_with_its_events(
    rig: Rig, containerd_a: PrivateContainerd
) -> None:
    _, unit_id = await rig.start("kept", "sleep", "1000")
    containerd_a.restart()
    await rig.until(lambda: rig.handle.state.ready and rig.handle.has_event_stream)
    await asyncio.sleep(1)
    rig.pods.clear()
    with containerd_a.cri() as cri:
        cri.call("StopContainer", container_id=unit_id, timeout=0)
    await rig.until(lambda: rig.pods)
    assert rig.pods[0][0] == "uid-kept"
