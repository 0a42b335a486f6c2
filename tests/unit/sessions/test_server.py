"""The session service over real gRPC: who may say what, and what one hostile instance can do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from kubeletx.api import PodUid, Unavailable
from kubeletx.sessions.certificates import load_ca
from kubeletx.sessions.model import SessionState
from kubeletx.sessions.server import MAX_BYTES, CallLimits, SessionServer
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx_testing.instance_client import InstanceClient
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.sessions.room import UID, Room

OTHER = PodUid("u2")
Connect = Callable[..., InstanceClient]


@pytest.fixture
async def server(room: Room, tmp_path: Path) -> AsyncIterator[SessionServer]:
    """The service of `room`, on a socket in `tmp_path`, with an instance for each of two pods."""
    room.pods.add(OTHER, name="other")
    for view in room.pods.views.values():
        room.sessions.ensure_instance(view.pod)
    now = datetime.now(UTC)
    ca = load_ca(tmp_path, now)
    one = SessionServer(
        find=room.sessions.instance,
        ca=ca.pem,
        pair=ca.server_pair(now),
        clock=room.clock,
        limits=CallLimits(calls=4, burst=10),
    )
    await one.start(tmp_path / "session.sock")
    yield one
    await one.stop()


@pytest.fixture
def connect(room: Room, server: SessionServer, tmp_path: Path) -> Connect:
    """Makes clients with a certificate of a pod."""

    def make(
        uid: PodUid = UID, *, pod_id: str = "", ca_directory: Path = tmp_path, days: int = 0
    ) -> InstanceClient:
        now = datetime.now(UTC)
        ca = load_ca(ca_directory, now)
        pair = ca.instance_pair(uid, "default/web", now + timedelta(days=days))
        directory = tmp_path / f"files-{uid}"
        directory.mkdir(exist_ok=True)
        (directory / "ca.crt").write_bytes(load_ca(tmp_path, now).pem)
        (directory / "tls.crt").write_bytes(pair.certificate)
        (directory / "tls.key").write_bytes(pair.key)
        return InstanceClient(f"unix:{tmp_path / 'session.sock'}", directory, pod_id)

    return make


async def code(call: object) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call  # type: ignore[misc]  # any awaitable
    assert isinstance(raised.value, grpc.aio.AioRpcError)
    return raised.value.code()


def message(session_id: str = "default/s1", pod_id: str = "", **fields: object) -> bytes:
    made = pb.SessionMessage(
        sessionIdentifier=pb.SessionIdentifier(podId=pod_id, identifier=session_id),
        **{"messageType": pb.SESSION_STATE, "sessionStatus": pb.SessionStatus(), **fields},  # type: ignore[arg-type]
    )
    return made.SerializeToString()


async def test_a_session_opens_and_closes_over_the_socket(room: Room, connect: Connect) -> None:
    async with connect(pod_id="default/web") as client:
        await client.attach()
        await room.open(data=b"hello")
        opened = await client.read()
        assert opened is not None
        assert opened.openSession.sessionConfiguration.sessionData == b"hello"
        await client.report("default/s1", pb.STATE_OPEN, "ann")
        await until(lambda: room.session().state is SessionState.LIVE)
        await room.sessions.close("default/s1", 5)
        closing = await client.read()
        assert closing is not None
        assert closing.closeSession.gracePeriodSeconds == 5
        await client.report("default/s1", pb.STATE_CLOSED)
        await until(lambda: room.session().is_over)


async def test_a_pod_speaks_only_for_itself_and_each_refusal_is_logged_once(
    room: Room, connect: Connect
) -> None:
    await room.open()
    with capture_logs() as logs:
        async with connect(OTHER, pod_id="default/web") as thief:
            for _ in range(3):
                assert await code(thief.attach()) is grpc.StatusCode.PERMISSION_DENIED
                assert (
                    await code(thief.report("default/s1", pb.STATE_CLOSED))
                    is grpc.StatusCode.PERMISSION_DENIED
                )
            assert await code(thief.put(message())) is grpc.StatusCode.PERMISSION_DENIED
    assert room.session().state is SessionState.STARTING
    refused = [log["err"] for log in logs if log["event"] == "Refused a message of an instance"]
    assert refused == [
        "podId: 'default/web' is not the pod of this certificate, default/other",
        "sessionIdentifier.podId: 'default/web' is not the pod of this certificate, default/other",
        "pod default/other has no session 'default/s1'",
    ]


async def test_the_certificate_of_a_pod_that_is_gone_is_refused(room: Room, connect: Connect) -> None:
    room.pod_gone()
    async with connect() as client:
        assert await code(client.attach()) is grpc.StatusCode.PERMISSION_DENIED


async def test_a_certificate_of_another_ca_or_of_the_future_is_refused(
    connect: Connect, tmp_path: Path
) -> None:
    async with connect(ca_directory=tmp_path / "foreign") as foreign, connect(OTHER, days=40_000) as early:
        for client in (foreign, early):
            assert await code(client.put(message())) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"\xff\xff", "SessionMessage"),
        (message(session_id=""), "sessionIdentifier.identifier"),
        (message(messageType=pb.OPEN_SESSION), "messageType"),
        (message(sessionStatus=pb.SessionStatus(sessionState=7)), "sessionStatus.sessionState"),  # type: ignore[arg-type]
    ],
)
async def test_a_malformed_message_is_refused_with_its_field(
    room: Room, connect: Connect, data: bytes, field: str
) -> None:
    await room.open()
    async with connect() as client:
        with pytest.raises(grpc.aio.AioRpcError, match=field) as raised:
            await client.put(data)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_above_the_size_limit_is_refused(connect: Connect) -> None:
    async with connect() as client:
        assert await code(client.put(bytes(MAX_BYTES + 1))) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_report_of_the_most_and_longest_clients_is_taken(room: Room, connect: Connect) -> None:
    names = [f"{number:04}".ljust(253, "x") for number in range(1000)]
    clients = [pb.ClientSession(clientIdentifier=name) for name in names]
    for one in clients:
        one.timeJoin.FromDatetime(datetime(2026, 1, 1, 0, 0, 0, 999_999))
    status = pb.SessionStatus(sessionState=pb.STATE_OPEN, clientSession=clients)
    report = pb.SessionMessage(messageType=pb.SESSION_STATE, sessionStatus=status)
    report.sessionIdentifier.identifier = "default/s1"
    async with connect() as client:
        await client.attach()
        await room.open()
        await client.put(report.SerializeToString())
        await until(lambda: len(room.session().clients) == 1000)


async def test_a_second_stream_ends_the_first(connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await first.attach()
        await second.attach()
        assert await first.read() is None


async def test_twenty_flooding_instances_that_do_not_read_are_slowed_down_and_an_honest_one_is_not(
    room: Room, connect: Connect
) -> None:
    uids = [PodUid(f"hostile-{number}") for number in range(20)]
    async with AsyncExitStack() as stack:
        floods: dict[PodUid, list[asyncio.Task[None]]] = {}
        for uid in uids:
            room.pods.add(uid, name=uid)
            room.sessions.ensure_instance(room.pods.views[uid].pod)
            client = await stack.enter_async_context(connect(uid))
            await client.attach()
            floods[uid] = [asyncio.create_task(client.put(message()), name="flood") for _ in range(30)]
        honest = await stack.enter_async_context(connect())
        await honest.attach()
        await room.open()
        assert await honest.read() is not None
        await honest.report("default/s1", pb.STATE_OPEN)
        await until(lambda: room.session().state is SessionState.READY)
        await until(lambda: all(sum(call.done() for call in calls) >= 9 for calls in floods.values()))
        calls = [call for flood in floods.values() for call in flood]
        denied = [call for call in calls if call.done() and "has no session" in str(call.exception())]
        assert len(denied) <= 11 * len(uids)  # the clock stands still: the burst, and nothing more
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_an_instance_that_connects_in_a_loop_is_slowed_down(room: Room, connect: Connect) -> None:
    async with connect() as client:
        for _ in range(10):
            await client.attach()
        resting = room.clock.sleepers
        late = asyncio.create_task(client.attach(), name="attach")
        await until(lambda: room.clock.sleepers > resting)
        room.clock.advance(1.0)
        await late


async def test_an_instance_has_a_limit_of_open_calls(room: Room, connect: Connect) -> None:
    async with connect() as first, connect() as second:
        await first.attach()
        assert await code(second.put(message())) is grpc.StatusCode.PERMISSION_DENIED
        resting = room.clock.sleepers
        flood = [asyncio.create_task(second.put(message()), name="flood") for _ in range(30)]
        await until(lambda: room.clock.sleepers >= resting + 4)
        while not all(call.done() for call in flood):
            room.clock.advance(1.0)
            await let_others_work()
        codes = {call.exception().code() for call in flood}  # type: ignore[union-attr]
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
        assert codes <= {
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.UNAVAILABLE,  # gRPC's own limit of calls on one connection
        }


async def test_an_instance_that_does_not_read_loses_its_stream(room: Room, connect: Connect) -> None:
    async with connect() as client:
        await client.attach()
        instance = room.sessions.instance(UID)
        assert instance is not None
        block = pb.SessionMessage(openSession=pb.OpenSession())
        block.openSession.sessionConfiguration.sessionData = bytes(100_000)

        def fill() -> bool:
            copy = pb.SessionMessage.FromString(block.SerializeToString())
            return not instance.send(copy)

        await until(fill)
        assert not instance.is_connected


async def test_a_stale_socket_is_replaced_and_a_taken_address_is_named(
    room: Room, server: SessionServer, tmp_path: Path
) -> None:
    ca = load_ca(tmp_path, datetime.now(UTC))
    pair = ca.server_pair(datetime.now(UTC))
    (tmp_path / "second").mkdir()
    socket = tmp_path / "second" / "session.sock"
    servers = [
        SessionServer(find=room.sessions.instance, ca=ca.pem, pair=pair, clock=room.clock) for _ in range(3)
    ]
    port = await servers[0].start(socket, "127.0.0.1:0")
    inode = socket.stat().st_ino
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
        await servers[1].start(tmp_path / "third.sock", f"127.0.0.1:{port}")
    await servers[2].start(socket)
    assert socket.stat().st_ino != inode
    assert socket.stat().st_mode & 0o777 == 0o666
    for one in (servers[0], servers[2]):
        await one.stop()
