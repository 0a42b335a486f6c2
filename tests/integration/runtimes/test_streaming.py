"""Our SPDY client against containerd's own streaming server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeletx.api import (
    Channel,
    Internal,
    NotFound,
    Session,
    StreamRequest,
    StreamUrl,
    SupportsExec,
    SupportsImages,
    SupportsPortForward,
    UnitId,
)
from kubeletx.cri import ContainerdRuntime
from kubeletx.streaming import open_port_forward, open_session
from kubeletx.testing import FakeClock, FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx.testing.contract.base import Pod, sweep
from kubeletx.testing.contract.streams import echoed
from kubeletx_testing.lab import PrivateContainerd, image_ref

SERVER = f"exec nc -{16 * 'l'} -p 7777 -e cat"
"""busybox takes the number of its letters l as the length of the queue of connections that wait."""


@pytest.fixture
async def pod(containerd_a: PrivateContainerd, tmp_path: Path) -> AsyncIterator[Pod]:
    """A pod on containerd, with a unit that echoes on port 7777."""
    host = FakeHost(tmp_path, clock=FakeClock(auto_advance=True))
    runtime = ContainerdRuntime(endpoint(containerd_a.endpoint), None, host)
    await runtime.open()
    (tmp_path / "logs").mkdir()
    spec = sandbox_spec("streams", log_directory=str(tmp_path / "logs"))
    one = Pod(runtime, spec, await runtime.create_sandbox(spec))
    yield one
    await sweep(runtime, one.id)
    await runtime.close()


@pytest.fixture
async def unit(pod: Pod) -> UnitId:
    """The unit, started."""
    assert pod.runtime.capability(SupportsImages) is not None
    return await pod.start(
        unit_spec("main", image=image_ref("busybox"), command=("sh", "-c", SERVER), log_path="main.log")
    )


async def run(pod: Pod, unit: UnitId, request: StreamRequest) -> Session:
    execs = pod.runtime.capability(SupportsExec)
    assert execs is not None
    answer = await execs.exec(unit, request)
    assert isinstance(answer, StreamUrl)
    return await open_session(answer.url, request)


async def collect(session: Session) -> dict[Channel, bytes]:
    output = {Channel.STDOUT: b"", Channel.STDERR: b""}
    async for channel, data in session.output():
        output[channel] += data
    return output


async def test_megabytes_come_back_unchanged_and_in_order(pod: Pod, unit: UnitId) -> None:
    data = bytes(range(256)) * (16 << 10)
    async with asyncio.timeout(60):
        session = await run(pod, unit, StreamRequest(command=("cat",), stdin=True))

        async def send() -> None:
            await session.write(data)
            await session.close_stdin()

        sending = asyncio.create_task(send())
        assert (await collect(session))[Channel.STDOUT] == data
        await sending
        assert await session.wait() == 0
        await session.close()


async def test_a_terminal_has_the_size_it_was_given(pod: Pod, unit: UnitId) -> None:
    async with asyncio.timeout(60):
        script = 'until [ "$(stty size)" = "37 101" ]; do usleep 50000; done; stty size; exit 4'
        session = await run(pod, unit, StreamRequest(command=("sh", "-c", script), stdin=True, tty=True))
        await session.resize(101, 37)
        assert b"37 101" in (await collect(session))[Channel.STDOUT]
        assert await session.wait() == 4
        await session.close()


async def test_a_program_that_does_not_exist_says_so(pod: Pod, unit: UnitId) -> None:
    async with asyncio.timeout(60):
        session = await run(pod, unit, StreamRequest(command=("/no/such/program",)))
        await collect(session)
        with pytest.raises(Internal, match="no such file"):
            await session.wait()
        await session.close()


async def test_a_token_is_good_for_one_connection(pod: Pod, unit: UnitId) -> None:
    execs = pod.runtime.capability(SupportsExec)
    assert execs is not None
    request = StreamRequest(command=("true",))
    answer = await execs.exec(unit, request)
    assert isinstance(answer, StreamUrl)
    async with asyncio.timeout(60):
        session = await open_session(answer.url, request)
        await collect(session)
        assert await session.wait() == 0
        await session.close()
        with pytest.raises(NotFound):
            await open_session(answer.url, request)


async def test_ten_forwarded_connections_at_once(pod: Pod, unit: UnitId) -> None:
    forwards = pod.runtime.capability(SupportsPortForward)
    assert forwards is not None
    execs = pod.runtime.capability(SupportsExec)
    assert execs is not None
    listens = "until grep -q ':1E61 ' /proc/net/tcp /proc/net/tcp6; do usleep 50000; done"  # port 7777
    assert (await execs.exec_sync(unit, ["sh", "-c", listens], 60)).exit_code == 0

    async def one(number: int) -> None:
        answer = await forwards.port_forward(pod.id, 7777)
        assert isinstance(answer, StreamUrl)
        session = await open_port_forward(answer.url, 7777)
        text = f"hello {number}\n".encode() * 10_000
        assert await echoed(session, text) == text
        await session.close()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(one(number))


async def test_a_port_no_one_listens_on_is_refused_in_words(pod: Pod, unit: UnitId) -> None:
    forwards = pod.runtime.capability(SupportsPortForward)
    assert forwards is not None
    async with asyncio.timeout(60):
        answer = await forwards.port_forward(pod.id, 4)
        assert isinstance(answer, StreamUrl)
        session = await open_port_forward(answer.url, 4)
        await collect(session)
        with pytest.raises(Internal, match="refused"):
            await session.wait()
        await session.close()
