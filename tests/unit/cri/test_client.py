"""The client: typed and raw calls, streams, deadlines, cancellation, servers that go away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeletx.api import Internal, NotFound, TimedOut, Unavailable, Unsupported
from kubeletx.cri import CriClient, CriStatusError, methods
from kubeletx.cri.errors import status_of
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx.cri.tracing import CURRENT_SPAN, CurrentSpan
from kubeletx_testing.cri_server import FakeCriServer
from kubeletx_testing.waiting import let_others_work

PATIENCE_SECONDS = 10


async def test_a_call_returns_the_typed_answer(client: CriClient) -> None:
    answer = await client.call(methods.VERSION, pb.VersionRequest())
    assert answer.runtime_name == "containerd"


async def test_calls_of_a_traced_start_continue_its_trace(server: FakeCriServer, client: CriClient) -> None:
    async def call(name: str, start: Any) -> Any:
        return await start()

    token = CURRENT_SPAN.set(CurrentSpan(call=call, traceparent="00-1-2-01"))
    await client.call(methods.VERSION, pb.VersionRequest())
    CURRENT_SPAN.reset(token)
    await client.call(methods.VERSION, pb.VersionRequest())
    assert server.trace_parents == ["00-1-2-01"]


async def test_a_refusal_becomes_our_error_with_code_and_words_kept(client: CriClient) -> None:
    with pytest.raises(NotFound) as caught:
        await client.call(methods.POD_SANDBOX_STATUS, pb.PodSandboxStatusRequest(pod_sandbox_id="x"))
    status = status_of(caught.value)
    assert status is not None
    assert status[0] is grpc.StatusCode.NOT_FOUND


async def test_a_socket_that_is_not_there_is_unavailable_at_once_and_named(tmp_path: Path) -> None:
    client = CriClient(f"unix://{tmp_path}/none.sock")
    with pytest.raises(Unavailable, match=r"none\.sock"):
        await client.call(methods.VERSION, pb.VersionRequest())
    await client.close()


async def test_the_server_side_deadline_is_timed_out(server: FakeCriServer, client: CriClient) -> None:
    server.hold("Version")
    with pytest.raises(TimedOut):
        await client.call(methods.VERSION, pb.VersionRequest(), timeout_seconds=0.05)


async def test_the_caller_s_time_out_stays_a_time_out_of_the_caller(
    server: FakeCriServer, client: CriClient
) -> None:
    server.hold("Version")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.call(methods.VERSION, pb.VersionRequest())


async def test_cancelling_the_task_cancels_the_call(server: FakeCriServer, client: CriClient) -> None:
    server.hold("Version")
    task = asyncio.create_task(client.call(methods.VERSION, pb.VersionRequest()), name="call")
    await server.wait_call("Version")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_closing_the_client_ends_calls_in_flight_without_cancelling_their_tasks(
    server: FakeCriServer, client: CriClient
) -> None:
    server.hold("Version")
    call = asyncio.create_task(client.call(methods.VERSION, pb.VersionRequest()), name="call")
    raw = asyncio.create_task(client.call_bytes("Version", b""), name="raw")
    await server.wait_call("Version")
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(Unavailable):
        await call
    with pytest.raises(CriStatusError, match="UNAVAILABLE"):
        await raw


async def test_a_closed_client_answers_unavailable_and_closes_again(client: CriClient) -> None:
    await client.close()
    await client.close()
    with pytest.raises(Unavailable):
        await client.call(methods.VERSION, pb.VersionRequest())


async def test_a_server_that_dies_in_the_middle_of_a_call_is_unavailable(
    server: FakeCriServer, client: CriClient
) -> None:
    server.hold("Version")
    call = asyncio.create_task(client.call(methods.VERSION, pb.VersionRequest()), name="call")
    await server.wait_call("Version")
    await server.stop()
    with pytest.raises(Unavailable):
        await call


async def test_a_server_that_comes_back_is_found_again(server: FakeCriServer, client: CriClient) -> None:
    await client.call(methods.VERSION, pb.VersionRequest())
    await server.stop()
    with pytest.raises(Unavailable):
        await client.call(methods.VERSION, pb.VersionRequest())
    await server.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await client.call(methods.VERSION, pb.VersionRequest())
                break
            except Unavailable:
                await let_others_work()


async def test_bytes_pass_through_unread(server: FakeCriServer, client: CriClient) -> None:
    request = pb.ImageStatusRequest(image=pb.ImageSpec(image="x")).SerializeToString()
    unknown_field = b"\xa2\x06\x05hello"
    server.model.add_image("x")
    answer = await client.call_bytes("ImageStatus", request + unknown_field)
    assert pb.ImageStatusResponse.FromString(answer).image.repo_tags == ["x"]
    assert server.last("ImageStatus").SerializeToString() == request + unknown_field


async def test_a_raw_call_takes_a_full_path_too(client: CriClient) -> None:
    answer = await client.call_bytes("/runtime.v1.RuntimeService/Version", b"")
    assert pb.VersionResponse.FromString(answer).runtime_name == "containerd"


async def test_a_raw_call_keeps_code_and_words_of_the_server(client: CriClient) -> None:
    request = pb.PodSandboxStatusRequest(pod_sandbox_id="x").SerializeToString()
    with pytest.raises(CriStatusError) as caught:
        await client.call_bytes("PodSandboxStatus", request)
    assert caught.value.code == "NOT_FOUND"
    assert caught.value.details == 'an error occurred when try to find sandbox "x": not found'


async def test_a_word_that_is_not_a_method_is_our_bug(client: CriClient) -> None:
    with pytest.raises(Internal, match="NoSuchThing"):
        await client.call_bytes("NoSuchThing", b"")


async def test_a_stream_yields_typed_answers_until_it_is_closed(
    server: FakeCriServer, client: CriClient
) -> None:
    server.model.unimplemented.clear()
    stream = client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())
    first = asyncio.ensure_future(anext(stream))
    await server.wait_subscribed("GetContainerEvents")
    server.emit(pb.ContainerEventResponse(container_id="c"))
    assert (await first).container_id == "c"
    await stream.aclose()  # type: ignore[attr-defined]  # it is an async generator


async def test_a_raw_stream_yields_bytes(server: FakeCriServer, client: CriClient) -> None:
    server.model.unimplemented.clear()
    stream = client.stream_bytes("GetContainerEvents", b"")
    first = asyncio.ensure_future(anext(stream))
    await server.wait_subscribed("GetContainerEvents")
    server.emit(pb.ContainerEventResponse(container_id="c"))
    assert pb.ContainerEventResponse.FromString(await first).container_id == "c"
    await stream.aclose()  # type: ignore[attr-defined]  # it is an async generator


async def test_a_stream_that_the_server_does_not_know_is_unsupported(client: CriClient) -> None:
    with pytest.raises(Unsupported):
        await anext(client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest()))


async def test_a_stream_ends_with_unavailable_when_the_server_or_the_client_goes(
    server: FakeCriServer, socket_directory: Path
) -> None:
    server.model.unimplemented.clear()
    for end in ("server", "client"):
        client = CriClient(server.url)
        stream = client.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())
        following = asyncio.ensure_future(anext(stream))
        await server.wait_subscribed("GetContainerEvents")
        await (server.stop() if end == "server" else client.close())
        with pytest.raises(Unavailable):
            await following
        await client.close()
        if end == "server":
            await server.start()
