"""Lifecycle hooks (T1 to T3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import ExecResult, TimedOut, UnitId
from kubeletx.kube.types.core import (
    Container,
    ContainerPort,
    ExecAction,
    HTTPGetAction,
    HTTPHeader,
    LifecycleHandler,
    SleepAction,
    TCPSocketAction,
)
from kubeletx.pods.probes.lifecycle_hooks import HookTarget, run_hook, stop_seconds
from kubeletx.testing.clock import FakeClock
from tests.unit.pods.exec_finders import FakeExecFinder, result
from tests.unit.pods.servers import answer, free_port, web

EXEC = LifecycleHandler(exec=ExecAction(command=("bye",)))


def target(*ports: ContainerPort, pod_ip: str = "127.0.0.1") -> HookTarget:
    return HookTarget(container=Container(name="web", ports=ports), unit_id=UnitId("u"), pod_ip=pod_ip)


async def run(
    handler: LifecycleHandler, finder: FakeExecFinder | None = None, *, pod_ip: str = "127.0.0.1"
) -> str:
    return await run_hook(
        handler, target(pod_ip=pod_ip), finder=finder or FakeExecFinder(), clock=FakeClock()
    )


async def test_a_command_that_exits_with_0_is_success() -> None:
    finder = FakeExecFinder()
    assert await run(EXEC, finder) == ""
    assert finder.commands[0][:2] == (UnitId("u"), ("bye",))


async def test_a_command_that_fails_reports_code_and_output() -> None:
    got = await run(EXEC, FakeExecFinder(result(4, b"no such file\n")))
    assert got == "command exited with code 4: no such file"


@pytest.mark.parametrize("finder", [FakeExecFinder(TimedOut("late")), FakeExecFinder(has_exec=False)])
async def test_a_command_that_cannot_run_is_a_failure_and_no_exception(finder: FakeExecFinder) -> None:
    got = await run(EXEC, finder)
    assert got


@pytest.mark.parametrize("code", [200, 404, 500])
async def test_any_http_answer_is_success(code: int) -> None:
    async with web(answer(code)) as server:
        assert await run(LifecycleHandler(http_get=HTTPGetAction(port=server.port))) == ""


async def test_a_transport_error_of_an_http_hook_is_a_failure() -> None:
    got = await run(LifecycleHandler(http_get=HTTPGetAction(port=await free_port())))
    assert "refused" in got


async def test_an_https_hook_falls_back_to_http_without_its_credentials() -> None:
    reported: list[str] = []
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(4096)
        if head.startswith(b"GET"):
            heads.append(head.decode())
            writer.write(answer(200))
        else:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    headers = (HTTPHeader(name="Authorization", value="secret"), HTTPHeader(name="X-A", value="1"))
    handler = LifecycleHandler(http_get=HTTPGetAction(port=port, scheme="HTTPS", http_headers=headers))
    got = await run_hook(
        handler, target(), finder=FakeExecFinder(), clock=FakeClock(), on_fallback=reported.append
    )
    listener.close()
    await listener.wait_closed()
    assert got == ""
    assert len(reported) == 1
    assert "X-A: 1" in heads[0]
    assert "secret" not in heads[0]


async def test_a_network_hook_without_an_address_or_port_fails_in_words() -> None:
    got = await run(LifecycleHandler(http_get=HTTPGetAction(port=80)), pod_ip="")
    assert got == "the pod has no address"
    got = await run(LifecycleHandler(http_get=HTTPGetAction(port="nope")))
    assert "'nope'" in got


async def test_a_tcp_hook_needs_an_open_port() -> None:
    async with web(answer()) as server:
        assert await run(LifecycleHandler(tcp_socket=TCPSocketAction(port=server.port))) == ""
    assert await run(LifecycleHandler(tcp_socket=TCPSocketAction(port=await free_port())))


async def test_a_sleep_takes_its_time_on_the_clock() -> None:
    clock = FakeClock()
    handler = LifecycleHandler(sleep=SleepAction(seconds=7))
    task = asyncio.create_task(
        run_hook(handler, target(), finder=FakeExecFinder(), clock=clock, timeout_seconds=30)
    )
    await clock.run_for(6)
    assert not task.done()
    await clock.run_for(2)
    assert await task == ""


async def test_a_hook_ends_at_its_deadline() -> None:
    clock = FakeClock()
    handler = LifecycleHandler(sleep=SleepAction(seconds=100))
    task = asyncio.create_task(
        run_hook(handler, target(), finder=FakeExecFinder(), clock=clock, timeout_seconds=5)
    )
    await clock.run_for(6)
    assert await task == "ran longer than 5s"
    assert clock.sleepers == 0


async def test_a_cancelled_hook_leaves_nothing_behind() -> None:
    clock = FakeClock()
    handler = LifecycleHandler(sleep=SleepAction(seconds=100))
    task = asyncio.create_task(run_hook(handler, target(), finder=FakeExecFinder(), clock=clock))
    await clock.run_for(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers == 0
    assert len(asyncio.all_tasks()) == 1


async def test_a_bug_in_a_door_is_not_hidden() -> None:
    def broken(command: Sequence[str]) -> ExecResult:
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError):
        await run(EXEC, FakeExecFinder(broken))


async def test_a_hook_without_handler_fails() -> None:
    assert await run(LifecycleHandler())


@given(grace=st.integers(0, 600), hook=st.floats(0, 1000))
def test_the_stop_gets_what_the_hook_left_but_at_least_two_seconds(grace: int, hook: float) -> None:
    left = stop_seconds(grace, hook)
    assert 0 <= left <= grace
    if grace >= 2:
        assert left >= 2
    if hook < grace - 3:
        assert abs(left - (grace - hook)) <= 1
