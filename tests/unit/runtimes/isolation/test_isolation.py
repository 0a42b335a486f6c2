"""What process isolation adds: containment, supervision, and the host's side in the child."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.api import (
    Conflict,
    ImageSpec,
    InvalidConfig,
    PodAddress,
    PodUid,
    PullProgress,
    SupportsEvents,
    SupportsExec,
    SupportsImages,
    Unavailable,
    UnitId,
)
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.testing import FakeClock, FakeEventSink, FakeHost, endpoint, sandbox_spec
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.runtimes.conftest import Listener


class Network:
    """A pod network of the test."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def add(
        self, uid: PodUid, name: str, namespace: str, netns: str, ports: list[dict[str, Any]]
    ) -> PodAddress:
        self.calls.append((uid, name, namespace, netns, ports))
        return PodAddress(ips=("10.0.0.2/24",))

    async def problem(self) -> str:
        return ""

    async def check(self, uid: PodUid) -> bool:
        return True

    async def delete(self, uid: PodUid) -> None:
        return None


def module() -> Any:
    return importlib.import_module("tests.unit.runtimes.isolation.isolated_fake")


def isolated(host: FakeHost, settings: Any = None) -> IsolatedRuntime:
    return IsolatedRuntime(module().make, endpoint("fake://"), settings, host)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[IsolatedRuntime]:
    runtime = isolated(FakeHost(tmp_path))
    await runtime.open()
    yield runtime
    await runtime.close()


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_the_plugin_runs_in_another_process_that_ends_with_close(tmp_path: Path) -> None:
    runtime = isolated(FakeHost(tmp_path))
    with pytest.raises(Unavailable, match="its process is not running"):
        await runtime.health()
    await runtime.open()
    pid = runtime.pid
    assert pid is not None
    assert pid != os.getpid()
    await runtime.open()
    assert runtime.pid == pid
    await runtime.close()
    assert not is_there(pid)
    await runtime.close()


async def test_a_crash_costs_the_calls_under_way_and_the_next_opening_starts_again(
    runtime: IsolatedRuntime,
) -> None:
    pid = runtime.pid
    with pytest.raises(Unavailable, match="the process of runtime under-test: its connection closed"):
        await runtime.start_unit(UnitId("crash"))
    with pytest.raises(Unavailable):
        await runtime.health()
    with pytest.raises(Unavailable, match="started again in"):
        await runtime.open()
    runtime.kept.not_before = 0.0
    await runtime.open()
    assert runtime.pid not in (None, pid)
    assert (await runtime.health()).runtime_ready


async def test_code_that_blocks_is_killed_at_the_next_opening(runtime: IsolatedRuntime) -> None:
    pid = runtime.pid
    assert pid is not None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await runtime.start_unit(UnitId("block"))
    runtime.kept.ping_seconds = 0.1
    with pytest.raises(Unavailable):
        await runtime.open()
    assert not is_there(pid)
    runtime.kept.not_before = 0.0
    await runtime.open()
    assert (await runtime.health()).runtime_ready


async def test_errors_keep_their_class_and_data(runtime: IsolatedRuntime) -> None:
    with pytest.raises(Conflict, match="mine") as caught:
        await runtime.start_unit(UnitId("own-error"))
    assert type(caught.value) is module().OwnError
    assert caught.value.number == 7
    assert caught.value.reason == "Own"


async def test_the_hosts_side_is_there_in_the_child(tmp_path: Path) -> None:
    network = Network()
    host = FakeHost(tmp_path, pod_network=network)
    runtime = isolated(host, module().Settings(extra_image="own"))
    with capture_logs() as lines:
        await runtime.open()
        await runtime.health()
    assert host.sink.reasons() == ["Asked"]
    assert network.calls == [("u", "n", "ns", "/ns", [{"hostPort": 1}])]
    images = runtime.capability(SupportsImages)
    assert images is not None
    assert await images.find_image(ImageSpec(requested="own")) is not None
    asked = [line for line in lines if line["event"] == "Asked plugin for health"]
    assert [(line["pid"], line["runtime"]) for line in asked] == [(str(runtime.pid), "under-test")]
    await runtime.close()


async def test_capabilities_are_those_of_the_plugin(runtime: IsolatedRuntime) -> None:
    execs = runtime.capability(SupportsExec)
    assert isinstance(execs, SupportsExec)
    assert runtime.capability(SupportsExec) is execs
    assert runtime.capability(int) is None


async def test_progress_is_reported(runtime: IsolatedRuntime) -> None:
    images = runtime.capability(SupportsImages)
    assert images is not None
    seen: list[PullProgress] = []
    ref = await images.pull_image(ImageSpec(requested="busybox"), None, None, seen.append)
    assert ref.startswith("sha256:")
    assert seen == [PullProgress(done_bytes=4 << 20, total_bytes=4 << 20, message="done")]


async def test_more_events_than_the_window_arrive_and_a_left_stream_ends(runtime: IsolatedRuntime) -> None:
    events = runtime.capability(SupportsEvents)
    assert events is not None
    stream = events.events()
    first = asyncio.create_task(anext(stream))
    early = 0
    while not first.done():  # the child has no stream yet
        await runtime.create_sandbox(sandbox_spec(f"early{early}"))
        early += 1
        await let_others_work()
    made = {await runtime.create_sandbox(sandbox_spec(f"p{number}")) for number in range(100)}
    seen = set()
    async with asyncio.timeout(60):
        while not made <= seen:
            seen.add((await anext(stream)).sandbox_id)
    await stream.aclose()  # type: ignore[attr-defined]
    assert runtime.kept.running().peer.waiting_calls == 0


async def test_a_cancelled_call_is_cancelled_in_the_child_too(runtime: IsolatedRuntime) -> None:
    task = asyncio.create_task(runtime.start_unit(UnitId("hang")))
    await runtime.health()
    await runtime.health()  # sent after the call that hangs, so that one has begun in the child
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    images = runtime.capability(SupportsImages)
    assert images is not None
    assert await images.find_image(ImageSpec(requested="cancelled")) is not None
    assert runtime.kept.running().peer.waiting_calls == 0


async def test_a_handle_finds_a_crashed_plugin_again(tmp_path: Path) -> None:
    clock = FakeClock()
    listener = Listener()
    runtime = isolated(FakeHost(tmp_path))
    handle = RuntimeHandle(
        endpoint=endpoint("fake://"),
        runtime=runtime,
        agent_id="a",
        clock=clock,
        events=FakeEventSink(),
        listener=listener,
    )

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await let_others_work()
                await clock.run_for(0.2)

    task = asyncio.create_task(handle.run())
    await until(lambda: handle.state.ready and handle.has_event_stream)
    pid = runtime.pid
    with pytest.raises(Unavailable):
        await handle.start_unit(UnitId("crash"))
    runtime.kept.not_before = 0.0
    await until(lambda: runtime.pid not in (None, pid) and handle.state.ready)
    assert (await handle.look(PodUid("x"))).is_empty
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert runtime.pid is None


def test_a_factory_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot run in a process of its own: .* add isolation=none"):
        IsolatedRuntime(lambda *_: None, endpoint("fake://"), None, FakeHost(tmp_path))  # type: ignore[arg-type, return-value]


async def test_the_child_ends_when_the_agent_is_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, pathlib\n"
        "from kubeletx.runtimes.isolation import IsolatedRuntime\n"
        "from kubeletx.testing import FakeHost, endpoint\n"
        "from tests.unit.runtimes.isolation import isolated_fake\n"
        "async def main():\n"
        f"    runtime = IsolatedRuntime(isolated_fake.make, endpoint('fake://'), None, FakeHost(pathlib.Path({str(tmp_path)!r})))\n"
        "    await runtime.open()\n"
        "    print('pid', runtime.pid, flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
    )
    try:
        assert agent.stdout is not None
        line = b""
        while not line.startswith(b"pid "):
            line = await agent.stdout.readline()
            assert line, "the agent ended early"
        pid = int(line.split()[1])
        assert is_there(pid)
    finally:
        agent.kill()
        await agent.wait()
    async with asyncio.timeout(60):
        await until(lambda: not is_there(pid) or " Z " in Path(f"/proc/{pid}/stat").read_text())
