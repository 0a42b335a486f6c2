"""Single attempts of every kind of probe (P4, P5, P6)."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from kubeletx.api import Internal, NotFound, TimedOut, Unavailable, UnitId
from kubeletx.cri.stubs import health_v1_pb2 as pb
from kubeletx.kube.types.core import (
    Container,
    ContainerPort,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    HTTPHeader,
    Probe,
    TCPSocketAction,
)
from kubeletx.pods.probes.ask import ask, ask_http
from kubeletx.pods.probes.outcome import ProbeOutcome, ProbeResult
from kubeletx.pods.probes.targets import ProbeTarget
from tests.unit.pods.exec_finders import FakeExecFinder, result
from tests.unit.pods.servers import answer, free_port, web

EXEC = Probe(exec=ExecAction(command=("check", "it")), timeout_seconds=3)


def target(*ports: ContainerPort, pod_ip: str = "127.0.0.1") -> ProbeTarget:
    return ProbeTarget(container=Container(name="web", ports=ports), unit_id=UnitId("u"), pod_ip=pod_ip)


async def http(status: bytes, **fields: object) -> ProbeResult:
    async with web(status) as server:
        probe = Probe(http_get=HTTPGetAction(port=server.port, **fields))  # type: ignore[arg-type]
        return await ask(probe, target(), FakeExecFinder())


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (200, ProbeOutcome.SUCCESS),
        (204, ProbeOutcome.SUCCESS),
        (302, ProbeOutcome.WARNING),
        (399, ProbeOutcome.WARNING),
        (400, ProbeOutcome.FAILURE),
        (500, ProbeOutcome.FAILURE),
    ],
)
async def test_http_passes_from_200_to_399(code: int, expected: ProbeOutcome) -> None:
    assert (await http(answer(code))).result is expected


async def test_http_failures_read_as_the_kubelets() -> None:
    assert (await http(answer(503))).message == "HTTP probe failed with statuscode: 503"


async def test_a_redirect_to_another_host_passes_with_a_warning() -> None:
    got = await http(answer(301, b"Found elsewhere", Location="http://198.51.100.1/x"))
    assert got.result is ProbeOutcome.WARNING
    assert got.message == "Probe terminated redirects, Response body: Found elsewhere"


async def test_http_headers_and_named_ports_are_used() -> None:
    async with web(answer()) as server:
        probe = Probe(
            http_get=HTTPGetAction(
                path="/h", port="web", http_headers=(HTTPHeader(name="Host", value="shop"),)
            )
        )
        port = ContainerPort(name="web", container_port=server.port)
        assert (await ask(probe, target(port), FakeExecFinder())).result is ProbeOutcome.SUCCESS
        assert "Host: shop" in server.heads[0]


async def test_a_port_name_that_is_not_there_is_an_error_and_no_failure() -> None:
    got = await ask(Probe(http_get=HTTPGetAction(port="nope")), target(), FakeExecFinder())
    assert got.result is ProbeOutcome.UNKNOWN
    assert "'nope'" in got.message


async def test_a_server_that_is_silent_fails_at_the_time_out() -> None:
    waiting = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await waiting.wait()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    got = await ask_http(HTTPGetAction(port=port), Container(name="web"), "127.0.0.1", 0.02)
    waiting.set()
    listener.close()
    await listener.wait_closed()
    assert got.result is ProbeOutcome.FAILURE
    late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    assert got.message == f'Get "http://127.0.0.1:{port}/": {late}'


async def test_tcp_passes_when_the_port_opens() -> None:
    async with web(answer()) as server:
        probe = Probe(tcp_socket=TCPSocketAction(port=server.port))
        assert (await ask(probe, target(), FakeExecFinder())).result is ProbeOutcome.SUCCESS
    port = await free_port()
    got = await ask(Probe(tcp_socket=TCPSocketAction(port=port)), target(), FakeExecFinder())
    assert got.result is ProbeOutcome.FAILURE
    assert got.message == f"dial tcp 127.0.0.1:{port}: connect: connection refused"


async def test_network_probes_of_a_pod_without_an_address_are_suspended() -> None:
    for probe in (
        Probe(http_get=HTTPGetAction(port=1)),
        Probe(tcp_socket=TCPSocketAction(port=1)),
        Probe(grpc=GRPCAction(port=1)),
    ):
        assert (await ask(probe, target(pod_ip=""), FakeExecFinder())).result is ProbeOutcome.SUSPENDED


async def test_exec_passes_with_exit_code_0_and_fails_with_its_output_otherwise() -> None:
    finder = FakeExecFinder()
    assert (await ask(EXEC, target(), finder)).result is ProbeOutcome.SUCCESS
    assert finder.commands == [(UnitId("u"), ("check", "it"), 3)]
    got = await ask(EXEC, target(), FakeExecFinder(result(2, b"disk full")))
    assert (got.result, got.message) == (ProbeOutcome.FAILURE, "disk full")


async def test_an_exec_time_out_is_the_containers_failure_if_the_runtime_answers() -> None:
    assert (await ask(EXEC, target(), FakeExecFinder(TimedOut("late")))).result is ProbeOutcome.FAILURE


@pytest.mark.parametrize(
    "finder",
    [
        FakeExecFinder(TimedOut("late"), is_up=False),
        FakeExecFinder(Unavailable("no connection")),
        FakeExecFinder(has_exec=False),
    ],
)
async def test_exec_neither_passes_nor_fails_while_the_runtime_does_not_answer(
    finder: FakeExecFinder,
) -> None:
    assert (await ask(EXEC, target(), finder)).result is ProbeOutcome.SUSPENDED
    assert len(finder.commands) <= 1


@pytest.mark.parametrize("error", [Internal("shim broke"), NotFound("no unit")])
async def test_an_error_is_tried_three_times_and_does_not_count(error: Internal | NotFound) -> None:
    finder = FakeExecFinder(error)
    got = await ask(EXEC, target(), finder)
    assert got.result is ProbeOutcome.UNKNOWN
    assert not got.counts
    assert len(finder.commands) == 3


async def test_grpc_asks_for_its_service_and_needs_serving() -> None:
    asked: list[str] = []
    status = pb.HealthCheckResponse.SERVING

    async def check(request: pb.HealthCheckRequest, context: object) -> pb.HealthCheckResponse:
        asked.append(request.service)
        return pb.HealthCheckResponse(status=status)

    handler = grpc.unary_unary_rpc_method_handler(
        check,
        request_deserializer=pb.HealthCheckRequest.FromString,
        response_serializer=pb.HealthCheckResponse.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    probe = Probe(grpc=GRPCAction(port=port, service="shop"), timeout_seconds=5)
    assert (await ask(probe, target(), FakeExecFinder())).result is ProbeOutcome.SUCCESS
    assert asked == ["shop"]
    status = pb.HealthCheckResponse.NOT_SERVING
    got = await ask(probe, target(), FakeExecFinder())
    assert got.result is ProbeOutcome.FAILURE
    assert "NOT_SERVING" in got.message
    status = 99  # type: ignore[assignment]
    got = await ask(probe, target(), FakeExecFinder())
    assert got.result is ProbeOutcome.FAILURE
    assert "99" in got.message
    await server.stop(None)


async def test_grpc_without_health_service_or_server_fails_in_words() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    got = await ask(Probe(grpc=GRPCAction(port=port), timeout_seconds=5), target(), FakeExecFinder())
    await server.stop(None)
    assert got.result is ProbeOutcome.FAILURE
    assert "does not implement" in got.message
    closed = Probe(grpc=GRPCAction(port=await free_port()), timeout_seconds=2)
    assert (await ask(closed, target(), FakeExecFinder())).result is ProbeOutcome.FAILURE


async def test_a_probe_without_handler_gives_no_answer() -> None:
    assert (await ask(Probe(), target(), FakeExecFinder())).result is ProbeOutcome.UNKNOWN
