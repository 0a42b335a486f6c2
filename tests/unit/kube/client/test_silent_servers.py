"""Servers that are slow, silent, away or much too talkative at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kubeletx.api import SystemClock, TimedOut, Unavailable
from kubeletx.kube.client import ClusterAccess, KubeClient, Reflector, errors, reflector, requests
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import TooManyRequests
from kubeletx.kube.client.reflector import WatchTimes
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.types.core import Pod
from kubeletx.testing.clock import FakeClock
from kubeletx_testing.names_sink import NamesSink
from kubeletx_testing.waiting import until
from tests.unit.kube.client.scripted_server import GONE, Script, bookmark, lines, pod, pod_list, serve

GUARD_SECONDS = 60


@asynccontextmanager
async def running(followed: Reflector[Pod]) -> AsyncIterator[None]:
    task = asyncio.create_task(followed.run())
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_that_outlives_its_time_is_given_up() -> None:
    times = WatchTimes(watch=(0, 0), late=0.05)
    script, found = Script(), NamesSink()
    script.lists = [pod_list(3, pod("a", 1)), pod_list(9, pod("b", 8))]
    async with serve(script) as access:
        client = KubeClient(access, clock=FakeClock(auto_advance=True))
        followed = Reflector(client, PODS, Pod, found, clock=FakeClock(auto_advance=True), times=times)
        async with running(followed):
            await until(lambda: found.names == {"b"})
        await client.close()


class Mute(Script):
    """Its watches stay open when they have said what there is to say."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query or not self.watches:
            return await super().answer(request)
        self.asked.append(dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        said = self.watches.pop(0)
        assert isinstance(said, bytes)
        await response.write(said)
        await self.closed.wait()
        return response


async def test_a_watch_without_its_bookmarks_is_given_up() -> None:
    times = WatchTimes(silent=0.05)
    script, found = Mute(), NamesSink()
    script.lists = [pod_list(3, pod("a", 1)), pod_list(9, pod("b", 8))]
    script.watches = [lines(("ADDED", pod("c", 4)), bookmark(5)), lines(("ADDED", pod("d", 10)))]
    async with serve(script) as access:
        client = KubeClient(access, clock=FakeClock(auto_advance=True))
        followed = Reflector(client, PODS, Pod, found, clock=FakeClock(auto_advance=True), times=times)
        async with running(followed):
            await until(lambda: found.names == {"b", "d"})
        assert [one.get("resourceVersion") for one in script.asked[:4]] == ["0", "3", "5", "9"]
        await client.close()


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [("7", {}, 7.0), ("", {"details": {"retryAfterSeconds": 3}}, 3.0), ("", {}, 1.0)]
    + [(text, {}, errors.LONGEST_RETRY_SECONDS) for text in ("86400", "9" * 400)]
    + [(text, {}, 1.0) for text in ("\u00b2", "-5", "Wed, 21 Oct 2026 07:28:00 GMT")],
)
def test_who_is_asked_to_wait_waits_but_not_for_ever(
    header: str, body: dict[str, Any], seconds: float
) -> None:
    status = errors.parse_status(json.dumps({"code": 429, **body}).encode())
    error = errors.error_of(429, status, "GET /", retry_after=header)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after_seconds == seconds


@pytest.mark.parametrize(("header", "seconds"), [("30", 30.0), ("", 0.0), ("soon", 0.0)])
def test_a_server_error_may_ask_to_wait_too(header: str, seconds: float) -> None:
    status = errors.parse_status(b'{"code": 503, "reason": "ServiceUnavailable", "message": "starting"}')
    error = errors.error_of(503, status, "GET /", retry_after=header)
    assert isinstance(error, Unavailable)
    assert (error.reason, errors.least_seconds(error)) == ("ServiceUnavailable", seconds)


def test_those_who_are_asked_for_the_same_do_not_come_back_together() -> None:
    waits = [server_backoff(draw=random.Random(seed).random).next(0.0, at_least=30.0) for seed in range(100)]
    assert len(set(waits)) == 100
    assert 30.0 <= min(waits) < max(waits) <= 31.0


class Body:
    """A body in pieces; notes what the deadline was set to before each of them."""

    def __init__(self, pieces: int) -> None:
        self.content = self
        self.pieces = pieces
        self.set_to: list[float] = []

    async def iter_any(self) -> AsyncIterator[bytes]:
        for _ in range(self.pieces):
            yield b"x"

    def reschedule(self, when: float) -> None:
        self.set_to.append(when - asyncio.get_running_loop().time())


async def test_each_piece_of_a_long_answer_has_its_time_but_not_for_ever() -> None:
    body = Body(pieces=3)
    assert await requests._piece_by_piece(body, body, 30.0, 300.0) == b"xxx"  # type: ignore[arg-type]
    assert all(29 < one <= 30 for one in body.set_to)
    last = Body(pieces=2)
    await requests._piece_by_piece(last, last, 30.0, 10.0)  # type: ignore[arg-type]
    assert all(9 < one <= 10 for one in last.set_to)


async def test_a_list_that_stops_in_the_middle_is_an_error() -> None:
    ended = asyncio.Event()

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # On a busy machine the client's time ends before it has sent the request.
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            await reader.read()  # until the client disconnects
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(half, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = KubeClient(ClusterAccess(server=address), clock=SystemClock())
    async with asyncio.timeout(GUARD_SECONDS):
        with pytest.raises(TimedOut, match="no answer within"):
            await client.request("GET", "/api/v1/pods", seconds=0.2, longest_seconds=60)
        assert client.problem
        await client.close()
        await ended.wait()
        server.close()
        await server.wait_closed()


async def test_a_new_watch_that_says_nothing_at_all_is_given_up_too() -> None:
    times = WatchTimes(silent=0.05)
    script, found = Mute(), NamesSink()
    script.lists = [pod_list(3, pod("a", 1)), pod_list(9, pod("b", 8))]
    script.watches = [b""]
    async with serve(script) as access:
        client = KubeClient(access, clock=FakeClock(auto_advance=True))
        followed = Reflector(client, PODS, Pod, found, clock=FakeClock(auto_advance=True), times=times)
        followed._is_bookmarked = True
        async with asyncio.timeout(GUARD_SECONDS), running(followed):
            await until(lambda: "b" in found.names)
        await client.close()


async def test_who_asks_while_connections_are_closed_keeps_the_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Mute()
    script.lists = [pod_list(3, pod("a", 1))] * 2
    async with serve(script) as access:
        client = KubeClient(access, clock=FakeClock(auto_advance=True))
        connections = client._connections
        first = connections.session()
        real_close = first.close
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow_close() -> None:
            begun.set()
            await go_on.wait()
            await real_close()

        monkeypatch.setattr(first, "close", slow_close)
        closing = asyncio.create_task(connections.close())
        await begun.wait()
        second = connections.session()
        go_on.set()
        await closing
        assert connections.session() is second
        assert not second.closed
        await client.close()
        assert second.closed


async def test_connections_are_made_again_when_someone_says_so() -> None:
    script, found = Mute(), NamesSink()
    script.lists = [pod_list(3, pod("a", 1)), pod_list(9, pod("b", 1))]
    script.watches = [lines(("ADDED", pod("c", 4)))]
    async with serve(script) as access:
        client = KubeClient(access, clock=FakeClock(auto_advance=True))
        followed = Reflector(client, PODS, Pod, found, clock=FakeClock(auto_advance=True))
        async with running(followed):
            await until(lambda: "c" in found.names)
            await client.reconnect()
            await until(lambda: found.names == {"b"})
        await client.close()


# --- a thousand at once ---


class Counting:
    """A decoder that counts how often it is called before the event loop turns."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._in_turn = 0
        self.most = self.all = 0

    def decode(self, raw: Any) -> Any:
        if self._in_turn == 0:
            asyncio.get_running_loop().call_soon(self._turn)
        self._in_turn += 1
        self.all += 1
        self.most = max(self.most, self._in_turn)
        return self._inner.decode(raw)

    def _turn(self) -> None:
        self._in_turn = 0


def thousand() -> list[dict[str, Any]]:
    environment = [{"name": f"E{number}", "value": "v" * 60} for number in range(40)]
    containers = [{"name": "main", "image": "registry.local/web:1", "env": environment}]
    return [pod(f"p{number}", number + 1, nodeName="n", containers=containers) for number in range(1000)]


@pytest.mark.parametrize("page", [1000, 500])
async def test_a_thousand_pods_come_whole_and_let_others_have_their_turn(page: int) -> None:
    items, script, found = thousand(), Script(), NamesSink()
    if page == 1000:
        script.lists = [pod_list(2000, *items)]
    else:  # the newest list comes in pages
        script.lists = [
            (410, GONE),
            pod_list(2000, *items[:500], more="token"),
            pod_list(2000, *items[500:]),
        ]
    async with serve(script) as access:
        client = KubeClient(access, clock=FakeClock(auto_advance=True))
        followed = Reflector(client, PODS, Pod, found, clock=FakeClock(auto_advance=True))
        counting = followed._decoder = Counting(followed._decoder)  # type: ignore[assignment]
        async with running(followed):
            await script.idle.wait()
        await client.close()
    assert len(found.names) == counting.all == 1000
    assert counting.most <= reflector.DECODE_BATCH
    assert [one.get("limit") for one in script.asked if "watch" not in one][1:] == ["500"] * (page == 500) * 2


# --- a hundred agents and an outage ---

OUTAGE_SECONDS = 3600.0


class Away(KubeClient):
    """One agent's client of an API server that is away for an hour and then has nothing to say."""

    def __init__(self, clock: FakeClock, asked: list[float], lost_at: float) -> None:
        super().__init__(ClusterAccess(server="http://127.0.0.1:1"), clock=clock)
        self._now = clock.monotonic
        self._asked, self._lost_at = asked, lost_at
        self.back_at = 0.0

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        self._asked.append(self._now())
        if self._now() - self._lost_at < OUTAGE_SECONDS:
            self._connections.note_answer("connection refused")
            raise Unavailable("connection refused")
        self.back_at = self.back_at or self._now()
        self._connections.note_answer("")
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.StreamReader]:
        await asyncio.Event().wait()
        raise AssertionError("never ends")
        yield


async def test_a_hundred_agents_do_not_come_back_all_at_once() -> None:
    clock, asked = FakeClock(), list[float]()
    began = clock.monotonic()
    clients = [Away(clock, asked, began) for _ in range(100)]
    tasks = [
        asyncio.create_task(
            Reflector(client, PODS, Pod, NamesSink(), clock=clock, draw=random.Random(number)).run()
        )
        for number, client in enumerate(clients)
    ]
    await clock.run_for(OUTAGE_SECONDS + 60.0)
    try:
        back = sorted(client.back_at - began - OUTAGE_SECONDS for client in clients)
        assert 0 <= back[0] <= back[-1] <= 60.0, "none is forgotten, none waits longer than the cap"
        assert max(Counter(int(one) for one in back).values()) <= 10, "spread over the time of one back-off"
        per_second = Counter(int(one - began) for one in asked if 60 < one - began < OUTAGE_SECONDS)
        assert max(per_second.values()) <= 12, "nor do they knock together while it is away"
        assert len(asked) < 100 * OUTAGE_SECONDS / 25, "each knocks every 45 s or so"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_no_delay_is_the_same_for_two_agents_and_none_is_longer_than_twice_the_cap() -> None:
    several = [server_backoff(draw=random.Random(seed).random).next(0.0) for seed in range(100)]
    assert len(set(several)) == 100
    one = server_backoff(draw=random.Random(1).random)
    assert all(one.next(now * 30.0) <= 60.0 for now in range(500))


def test_a_long_wait_is_not_a_quiet_time() -> None:
    slow, now = server_backoff(first=2.0, cap=300.0, draw=random.Random(1).random), 0.0
    for _ in range(20):
        now += (last := slow.next(now))
    assert last >= 300.0
    assert slow.next(now + 121.0) <= 4.0


async def test_a_stream_that_is_about_to_end_may_be_given_up_again() -> None:
    client = KubeClient(ClusterAccess(server="http://127.0.0.1:1"), clock=SystemClock())
    streams = client._connections.streams

    async def stream() -> None:
        async with asyncio.timeout(None) as one:
            streams.add(one)
            await client.reconnect()
            try:
                await asyncio.Event().wait()
            finally:
                await client.reconnect()
                streams.discard(one)

    with pytest.raises(TimeoutError):
        await stream()
    await client.close()
