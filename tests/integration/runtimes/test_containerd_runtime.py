"""`ContainerdRuntime` on real containerd: what a fake cannot show."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from kubeletx.api import (
    Clock,
    EventKind,
    ImageSpec,
    KubeletxError,
    Process,
    PullProgress,
    Resources,
    RuntimeEvent,
    SandboxId,
    SandboxSpec,
    SupportsCriPassthrough,
    SupportsEvents,
    SupportsExec,
    SupportsImages,
    SupportsResize,
    SystemClock,
    Unavailable,
    UnitId,
    UnitState,
    Unsupported,
    names,
)
from kubeletx.cri import ContainerdRuntime, CriStatusError
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx.testing import FakeClock, FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.lab import Lab, PrivateContainerd, image_ref, make_image

PATIENCE_SECONDS = 60
CHUNK_BYTES = 1 << 16

AGENT = {names.AGENT_ID: f"test-{os.getpid()}"}
SLEEP = Process(command=("sleep", "1000"))

MakeRuntime = Callable[..., Awaitable[ContainerdRuntime]]


@pytest_asyncio.fixture
async def make_runtime(containerd_a: PrivateContainerd, tmp_path: Path) -> AsyncIterator[MakeRuntime]:
    """Makes open runtimes on the first containerd; removes every sandbox afterwards."""
    made: list[ContainerdRuntime] = []

    async def make(
        parameters: str = "", name: str = "under-test", clock: Clock | None = None
    ) -> ContainerdRuntime:
        host = FakeHost(tmp_path, clock=clock or FakeClock())
        runtime = ContainerdRuntime(endpoint(containerd_a.endpoint + parameters, name=name), None, host)
        made.append(runtime)
        await runtime.open()
        return runtime

    yield make
    cleaner = await make()
    for sandbox in await cleaner.list_sandboxes({}):
        await cleaner.stop_sandbox(sandbox.id)
        await cleaner.remove_sandbox(sandbox.id)
    for runtime in made:
        await runtime.close()


@pytest_asyncio.fixture
async def runtime(make_runtime: MakeRuntime) -> ContainerdRuntime:
    return await make_runtime()


@pytest.fixture
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> SandboxSpec:
    return sandbox_spec(
        f"p{abs(hash(request.node.nodeid)) % 10**8}", log_directory=str(tmp_path), labels=AGENT
    )


@contextlib.asynccontextmanager
async def slow_lane(address: str, bytes_per_second: int) -> AsyncIterator[str]:
    """An address (host:port) that leads to `address`, slowly on the way back."""
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, pause: float) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                await asyncio.sleep(pause)
                target.write(data)
                await target.drain()
        target.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(
                copy(reader, far_writer, 0), copy(far_reader, writer, CHUNK_BYTES / bytes_per_second)
            )
        except asyncio.CancelledError:
            pass  # asyncio reports a cancelled handler of a connection as an error
        finally:
            far_writer.transport.abort()
            writer.transport.abort()

    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for task in tasks:  # the server does not end its connections
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def with_image(runtime: ContainerdRuntime, name: str = "busybox") -> ImageSpec:
    images = runtime.capability(SupportsImages)
    assert images is not None
    wanted = ImageSpec(requested=image_ref(name))
    return msgspec.structs.replace(wanted, ref=await images.pull_image(wanted, None, None))


async def start(
    runtime: ContainerdRuntime, spec: SandboxSpec, detail: Process = SLEEP
) -> tuple[SandboxId, UnitId]:
    unit = unit_spec("main", detail=detail, labels=AGENT, log_path="main.log")
    unit = msgspec.structs.replace(unit, image=await with_image(runtime))
    sandbox_id = await runtime.create_sandbox(spec)
    unit_id = await runtime.create_unit(sandbox_id, unit, spec)
    await runtime.start_unit(unit_id)
    return sandbox_id, unit_id


class Listener:
    """Collects a runtime's events in a task."""

    def __init__(self, runtime: ContainerdRuntime) -> None:
        events = runtime.capability(SupportsEvents)
        assert events is not None
        self.seen: list[RuntimeEvent] = []
        self._changed = asyncio.Condition()
        self.task = asyncio.create_task(self._run(events.events()), name="listener")

    async def wait(self, kind: EventKind, some_id: str) -> RuntimeEvent:
        def found() -> RuntimeEvent | None:
            for event in self.seen:
                if event.kind is kind and some_id in (event.unit_id or event.sandbox_id, event.unit_id):
                    return event
            return None

        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(found)
        event = found()
        assert event is not None
        return event

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _run(self, stream: AsyncIterator[RuntimeEvent]) -> None:
        async for event in stream:
            async with self._changed:
                self.seen.append(event)
                self._changed.notify_all()


async def state_of(runtime: ContainerdRuntime, unit_id: UnitId) -> UnitState:
    return (await runtime.unit_status(unit_id)).summary.state


async def wait_state(runtime: ContainerdRuntime, unit_id: UnitId, state: UnitState) -> int:
    """How many looks it took."""
    looks = 1
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await state_of(runtime, unit_id) is not state:
            looks += 1
            await asyncio.sleep(0.005)
    return looks


async def test_it_knows_what_it_talks_to(runtime: ContainerdRuntime) -> None:
    assert (await runtime.version()).name == "containerd"
    health = await runtime.health()
    assert health.runtime_ready
    assert health.network_ready
    assert health.handlers == ("runc", "runc-two")
    assert runtime.cgroup_driver() in ("cgroupfs", "systemd")
    images = runtime.capability(SupportsImages)
    assert images is not None
    info = await images.store_info()
    assert info.id.endswith("/k8s.io")
    assert not info.id.startswith("cri-")


async def test_events_tell_who_started_and_ended_and_status_follows_within_a_few_looks(
    runtime: ContainerdRuntime, spec: SandboxSpec
) -> None:
    listener = Listener(runtime)
    await asyncio.sleep(0.1)
    short = Process(command=("sh", "-c", "sleep 0.3; exit 5"))
    sandbox_id, unit_id = await start(runtime, spec, short)
    started = await listener.wait(EventKind.STARTED, unit_id)
    assert (started.uid, started.sandbox_id) == (spec.uid, sandbox_id)
    stopped = await listener.wait(EventKind.STOPPED, unit_id)
    assert (stopped.uid, stopped.sandbox_id) == (spec.uid, sandbox_id)
    # The event may come before the CRI has noted the exit, so the first look may show it running.
    await wait_state(runtime, unit_id, UnitState.EXITED)
    assert (await runtime.unit_status(unit_id)).exit_code == 5
    await runtime.remove_sandbox(sandbox_id)
    await listener.wait(EventKind.DELETED, sandbox_id)
    await listener.stop()


async def test_commands_in_a_unit_make_no_events(runtime: ContainerdRuntime, spec: SandboxSpec) -> None:
    listener = Listener(runtime)
    await asyncio.sleep(0.1)
    _, unit_id = await start(runtime, spec)
    await listener.wait(EventKind.STARTED, unit_id)
    before = len(listener.seen)
    execs = runtime.capability(SupportsExec)
    assert execs is not None
    for _ in range(3):
        await execs.exec_sync(unit_id, ["true"], 10)
    await runtime.stop_unit(unit_id, 0)
    await listener.wait(EventKind.STOPPED, unit_id)
    assert [e.kind for e in listener.seen[before:]] == [EventKind.STOPPED]
    await listener.stop()


async def test_a_killed_containerd_ends_events_and_calls_and_is_the_same_when_it_is_back(
    runtime: ContainerdRuntime, spec: SandboxSpec, containerd_a: PrivateContainerd
) -> None:
    sandbox_id, unit_id = await start(runtime, spec)
    before = await runtime.unit_status(unit_id)
    listener = Listener(runtime)
    await asyncio.sleep(0.1)
    containerd_a.kill()
    with pytest.raises(Unavailable):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await listener.task
    with pytest.raises(Unavailable):
        await runtime.health()
    with pytest.raises(Unavailable):
        await runtime.stop_unit(unit_id, 0)
    await asyncio.to_thread(containerd_a.start_daemon)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await runtime.open()
                break
            except Unavailable:
                await asyncio.sleep(0.02)
    after = await runtime.unit_status(unit_id)
    assert (after.summary, after.started_at_ns) == (before.summary, before.started_at_ns)
    assert await runtime.create_sandbox(spec) == sandbox_id
    listener = Listener(runtime)
    await asyncio.sleep(0.1)
    await runtime.stop_unit(unit_id, 0)
    await listener.wait(EventKind.STOPPED, unit_id)
    await listener.stop()


async def test_a_hung_containerd_never_hangs_a_caller_and_the_call_is_found_done_later(
    runtime: ContainerdRuntime, spec: SandboxSpec, containerd_a: PrivateContainerd
) -> None:
    await with_image(runtime)
    containerd_a.pause()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await runtime.health()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await runtime.create_sandbox(spec)
    finally:
        containerd_a.resume()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                sandbox_id = await runtime.create_sandbox(spec)
                break
            except Unavailable:
                await asyncio.sleep(0.02)
    mine = [s for s in await runtime.list_sandboxes(AGENT) if s.uid == spec.uid]
    assert [s.id for s in mine] == [sandbox_id]


async def test_ten_creates_of_one_key_at_once_make_one_sandbox(
    runtime: ContainerdRuntime, spec: SandboxSpec
) -> None:
    async def create() -> SandboxId:
        while True:
            try:
                return await runtime.create_sandbox(spec)
            except Unavailable:
                await asyncio.sleep(0.02)

    async with asyncio.timeout(PATIENCE_SECONDS):
        ids = await asyncio.gather(*(create() for _ in range(10)))
    assert len(set(ids)) == 1
    assert [s.id for s in await runtime.list_sandboxes({}) if s.uid == spec.uid] == [ids[0]]


async def test_two_handlers_are_two_runtimes_on_one_store(make_runtime: MakeRuntime, tmp_path: Path) -> None:
    one = await make_runtime("?handler=runc", "one")
    two = await make_runtime("?handler=runc-two", "two")
    mine = await one.create_sandbox(sandbox_spec("one", log_directory=str(tmp_path)))
    other = await two.create_sandbox(sandbox_spec("two", log_directory=str(tmp_path)))
    assert [s.id for s in await one.list_sandboxes({})] == [mine]
    assert [s.id for s in await two.list_sandboxes({})] == [other]
    assert (await one.sandbox_status(mine)).summary.handler == "runc"
    assert (await one.health()).handlers == ("runc",)
    stores = set()
    for runtime in (one, two):
        images = runtime.capability(SupportsImages)
        assert images is not None
        stores.add((await images.store_info()).id)
    assert len(stores) == 1
    with pytest.raises(Unsupported):
        await one.create_sandbox(sandbox_spec("three", handler="runc-two"))
    kata = await make_runtime("?handler=kata", "kata")
    assert not (await kata.health()).runtime_ready


async def test_a_command_that_does_not_exist_is_an_error_in_words_and_the_unit_says_why(
    runtime: ContainerdRuntime, spec: SandboxSpec
) -> None:
    with pytest.raises(KubeletxError, match="no-such-command"):
        await start(runtime, spec, Process(command=("no-such-command",)))
    (unit,) = await runtime.list_units(AGENT)
    status = await runtime.unit_status(unit.id)
    assert (status.summary.state, status.reason, status.exit_code) == (UnitState.EXITED, "StartError", 128)


async def test_limits_reach_the_unit_and_can_change(runtime: ContainerdRuntime, spec: SandboxSpec) -> None:
    _, unit_id = await start(runtime, spec)
    resize = runtime.capability(SupportsResize)
    assert resize is not None
    await resize.update_resources(unit_id, Resources(cpu_shares=256, memory_limit_bytes=64 << 20))
    granted = (await runtime.unit_status(unit_id)).resources
    assert granted["cpu_shares"] == 256
    assert granted["memory_limit_bytes"] == 64 << 20


async def test_another_agent_s_pods_are_not_listed_by_our_labels(
    runtime: ContainerdRuntime, spec: SandboxSpec
) -> None:
    theirs = msgspec.structs.replace(spec, labels={names.AGENT_ID: "another"})
    await start(runtime, theirs)
    assert await runtime.list_sandboxes(AGENT) == []
    assert len(await runtime.list_sandboxes({})) == 1
    with pytest.raises(KubeletxError, match="another agent"):
        await runtime.create_sandbox(spec)


async def test_raw_calls_reach_containerd_with_its_own_words(runtime: ContainerdRuntime) -> None:
    raw = runtime.capability(SupportsCriPassthrough)
    assert raw is not None
    answer = await raw.cri_unary("/runtime.v1.RuntimeService/Version", b"", 10)
    assert pb.VersionResponse.FromString(answer).runtime_name == "containerd"
    with pytest.raises(CriStatusError) as caught:
        await raw.cri_unary("RuntimeConfig", b"", 10)
    assert caught.value.code == "UNIMPLEMENTED"
    assert caught.value.details.startswith("unknown method RuntimeConfig")


async def test_an_image_that_cannot_be_pulled_says_why(runtime: ContainerdRuntime) -> None:
    images = runtime.capability(SupportsImages)
    assert images is not None
    missing = ImageSpec(requested=image_ref("no-such-image"))
    with pytest.raises(KubeletxError, match="not found"):
        await images.pull_image(missing, None, None)
    assert await images.find_image(missing) is None


async def test_a_pull_reports_how_much_has_come(
    make_runtime: MakeRuntime, lab: Lab, containerd_a: PrivateContainerd
) -> None:
    images = (await make_runtime(clock=SystemClock())).capability(SupportsImages)
    assert images is not None
    size = 6 << 20
    lab.registry.push([make_image("slow", tag="1", size_bytes=size)])
    seen: list[PullProgress] = []
    async with slow_lane(lab.registry.address, bytes_per_second=2 << 20) as address:
        containerd_a.add_registry("slow.local", address)
        image = ImageSpec(requested="slow.local/slow:1")
        await images.pull_image(image, None, None, seen.append)
    done = [one.done_bytes for one in seen]
    assert done == sorted(done)
    assert any(one.total_bytes is not None and size <= one.total_bytes < 2 * size for one in seen)
    assert any(0 < one.done_bytes < size for one in seen)
    await images.remove_image(image)


async def test_of_a_tag_with_a_digest_containerd_uses_the_digest_only(runtime: ContainerdRuntime) -> None:
    """A reference with both names the same image as without its tag (`ImageReference.canonical`)."""
    images = runtime.capability(SupportsImages)
    assert images is not None
    tagged = await with_image(runtime)
    status = await images.find_image(tagged)
    assert status is not None
    repository, digest = status.digests[0].split("@")
    both = ImageSpec(requested=f"{repository}:no-such-tag@{digest}")
    assert await images.pull_image(both, None, None) == tagged.ref
    known = await images.find_image(both)
    assert known is not None
    assert f"{repository}@{digest}" in known.digests
    assert not any("no-such-tag" in one for one in (*known.tags, *known.digests))
