"""Contract of runtimes: exec, attach and port-forward."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from kubeletx.api import (
    Channel,
    EnvVar,
    KubeletxError,
    NotFound,
    Runtime,
    Session,
    StreamRequest,
    StreamUrl,
    SupportsAttach,
    SupportsExec,
    SupportsPortForward,
    TimedOut,
    UnitId,
    UnitSpec,
    UnitState,
)

from .base import (
    ContractBase,
    Pod,
    eventually,
    needs_feature,
    needs_processes,
    running,
    supported,
    within,
)
from .failures import about
from .processes import needs_no_image, with_process

PLACE = 'echo "$PWD|$GREETING"'
TERMINAL = 'test -t 0 && echo terminal; until [ "$(stty size 2>&1)" = "30 100" ]; do sleep 0.1; done; echo resized; exit 4'
NAMESPACES = 'cd /proc/self/ns; echo "namespaces" $(for one in mnt net ipc uts pid; do readlink $one; done)'


class StreamContract(ContractBase):
    """Tests of exec and attach in units, and of port-forwards to a pod."""

    async def test_a_command_runs_to_its_end(self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec) -> None:
        execs = supported(runtime, SupportsExec)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        result = await execs.exec_sync(unit_id, ["echo", "hello"], 20)
        assert (result.stdout, result.stderr, result.exit_code) == (b"hello\n", b"", 0)

    async def test_a_command_reports_its_exit_code(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        unit_id = await pod.start(unit_spec)
        assert (await execs.exec_sync(unit_id, ["sh", "-c", "exit 3"], 20)).exit_code == 3

    async def test_errors_of_a_command_are_kept_apart(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        unit_id = await pod.start(unit_spec)
        result = await execs.exec_sync(unit_id, ["sh", "-c", "echo oops >&2"], 20)
        assert (result.stdout, result.stderr) == (b"", b"oops\n")

    async def test_a_command_that_takes_too_long_times_out(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        unit_id = await pod.start(unit_spec)
        with pytest.raises(TimedOut):
            await execs.exec_sync(unit_id, ["sleep", "30"], 1)

    @about("exec_sync")
    async def test_a_command_that_timed_out_runs_no_longer(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        needs_processes(runtime)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        file = f"/tmp/{pod.spec.name}.pid"
        with pytest.raises(TimedOut):
            await execs.exec_sync(unit_id, ["sh", "-c", f"echo $$ > {file}; exec sleep 30"], 1)

        async def look() -> bool | None:
            script = f"kill -0 $(cat {file}) 2>/dev/null && echo runs; true"
            return b"runs" not in (await execs.exec_sync(unit_id, ["sh", "-c", script], 20)).stdout or None

        await eventually(look, "the end of the process of a command that timed out", seconds=5)
        await execs.exec_sync(unit_id, ["rm", "-f", file], 20)

    @about("exec_sync")
    async def test_a_command_in_a_unit_that_has_ended_is_an_error(
        self, runtime: Runtime, pod: Pod, exiting_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        needs_processes(runtime)
        unit_id = await pod.start(exiting_spec)
        await pod.wait_state(unit_id, UnitState.EXITED)
        with pytest.raises(KubeletxError):
            await execs.exec_sync(unit_id, ["true"], 5)

    @about("exec_sync")
    async def test_a_command_has_the_variables_and_the_working_directory_of_its_unit(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        needs_processes(runtime)
        spec = with_process(unit_spec, working_dir="/tmp")
        spec = msgspec.structs.replace(spec, environment=(EnvVar(name="GREETING", value="good day"),))
        unit_id = await pod.start(spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        result = await execs.exec_sync(unit_id, ["sh", "-c", PLACE], 20)
        assert result.stdout == b"/tmp|good day\n", result

    @about("exec_sync")
    async def test_without_images_a_command_starts_in_the_root_directory(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        needs_no_image(runtime)
        unit_id = await pod.start(with_process(unit_spec, working_dir=""))
        await pod.wait_state(unit_id, UnitState.RUNNING)
        result = await execs.exec_sync(unit_id, ["sh", "-c", PLACE], 20)
        assert result.stdout == b"/|\n", result

    async def test_a_command_in_the_unknown_is_not_found(self, runtime: Runtime) -> None:
        execs = supported(runtime, SupportsExec)
        with pytest.raises(NotFound):
            await execs.exec_sync(UnitId("no-such-unit"), ["true"], 5)

    async def test_a_live_command_reads_until_the_half_close_and_reports_its_end(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        unit_id = await pod.start(unit_spec)
        request = StreamRequest(command=("cat",), stdin=True)
        session = await connect(await execs.exec(unit_id, request), request)
        try:
            async with within(30, "the end of the session's streams"):
                await session.write(b"first\n")
                await session.write(b"second\n")
                await session.close_stdin()
                output = await collect(session)
                assert output[Channel.STDOUT] == b"first\nsecond\n"
                assert await session.wait() == 0
        finally:
            await session.close()
            await session.close()

    async def test_a_live_command_reports_its_exit_code_and_both_outputs(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        unit_id = await pod.start(unit_spec)
        for script, expected in (("exit 3", (b"", b"", 3)), ("echo oops >&2", (b"", b"oops\n", 0))):
            request = StreamRequest(command=("sh", "-c", script))
            session = await connect(await execs.exec(unit_id, request), request)
            async with within(30, "the end of the session's streams"):
                output = await collect(session)
                assert (output[Channel.STDOUT], output[Channel.STDERR], await session.wait()) == expected
                await session.close()

    @about("exec")
    async def test_a_terminal_has_the_size_that_was_set_last(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        needs_processes(runtime)
        needs_feature(runtime, "tty")
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        request = StreamRequest(command=("sh", "-c", TERMINAL), stdin=True, stderr=False, tty=True)
        session = await connect(await execs.exec(unit_id, request), request)
        try:
            async with within(30, "the terminal to have 100 columns and 30 lines"):
                await session.resize(80, 24)
                await session.resize(100, 30)
                output = await collect(session)
                assert (output[Channel.STDOUT].split(), await session.wait()) == (
                    [b"terminal", b"resized"],
                    4,
                )
        finally:
            await session.close()

    @about("exec_sync")
    async def test_a_command_is_in_the_namespaces_of_its_unit(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        execs = supported(runtime, SupportsExec)
        needs_processes(runtime)
        spec = running(unit_spec, "namespaces", f"{NAMESPACES}; exec sleep 1000")
        unit_id = await pod.start(spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        result = await execs.exec_sync(unit_id, ["sh", "-c", NAMESPACES], 20)
        assert result.exit_code == 0, result
        await pod.wait_output(unit_id, spec, result.stdout.decode())

    async def test_attach_joins_the_streams_of_the_unit(
        self, runtime: Runtime, pod: Pod, interactive_spec: UnitSpec
    ) -> None:
        attaches = supported(runtime, SupportsAttach)
        needs_processes(runtime)
        needs_feature(runtime, "stdin")
        unit_id = await pod.start(interactive_spec)
        request = StreamRequest(stdin=True)
        session = await connect(await attaches.attach(unit_id, request), request)
        async with within(30, "the end of the session's streams"), saying(session, b"hello\n"):
            assert (await read_until(session, bool))[:6] == b"hello\n"
        await session.close()

    async def test_a_forwarded_connection_carries_bytes_both_ways(
        self, runtime: Runtime, pod: Pod, echo_server: tuple[UnitSpec, int]
    ) -> None:
        forwards = supported(runtime, SupportsPortForward)
        spec, port = echo_server
        unit_id = await pod.start(spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await asyncio.sleep(0.3)
        session = await connect(await forwards.port_forward(pod.id, port), None, port)
        async with within(30, "the end of the session's streams"):
            await session.write(b"ping\n")
            assert await read_until(session, bool) == b"ping\n"
            await session.close()


@asynccontextmanager
async def saying(session: Session, data: bytes) -> AsyncIterator[None]:
    """Context manager that writes `data` to the session every second during the block.

    One write is not enough, since output may be lost while the session is being attached.
    """

    async def say() -> None:
        while True:
            await session.write(data)
            await asyncio.sleep(1)

    task = asyncio.create_task(say(), name="contract-say")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def echoed(session: Session, data: bytes) -> bytes:
    """Write `data` to a session that echoes it, and return the output once it is as long as `data`."""
    sending = asyncio.create_task(session.write(data), name="contract-write")
    got = await read_until(session, lambda got: len(got) >= len(data))
    await sending
    return got


async def read_until(session: Session, is_enough: Callable[[bytes], bool]) -> bytes:
    """Return the standard output up to now as soon as `is_enough` accepts it; ``bool`` accepts the first output.

    Raises AssertionError if the session ends before.
    """
    got = b""
    async for channel, data in session.output():
        if channel is Channel.STDOUT:
            got += data
            if is_enough(got):
                return got
    raise AssertionError(f"the session ended too early; its output: {got[-200:]!r}")


async def connect(answer: StreamUrl | Session, request: StreamRequest | None, port: int = 0) -> Session:
    """Return `answer` if it is a session; if it is a URL, open a session there.

    `answer`: result of the runtime's exec, attach or port_forward. `request`: what the session is for; None: a
    port-forward to `port`.
    """
    if not isinstance(answer, StreamUrl):
        return answer
    from kubeletx.streaming import open_port_forward, open_session

    if request is None:
        return await open_port_forward(answer.url, port)
    return await open_session(answer.url, request)


async def collect(session: Session) -> dict[Channel, bytes]:
    """Return the whole output of the session until its end, by channel (stdout and stderr)."""
    output = {Channel.STDOUT: b"", Channel.STDERR: b""}
    async for channel, data in session.output():
        output[channel] += data
    return output
