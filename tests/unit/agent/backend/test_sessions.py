"""Requests about sessions on the admin socket, over the room of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Set
from pathlib import Path
from typing import Any

import pytest

from kubeletx.agent.backend.sessions import SessionBackend
from kubeletx.api import NotFound, PodUid
from kubeletx.server.session_views import SessionRequest, SessionView
from kubeletx.sessions.meter import PodReading
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx.sessions.usage import SessionUsage
from kubeletx.sessions.usage_records import USAGE_TABLES, UsageFile, UsageRecords
from kubeletx.store import Store
from tests.unit.sessions.room import Room, running_room

REQUEST = SessionRequest(namespace="default", pod="web", name="s1", data=b"blue")


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with running_room(tmp_path / "kubeletx.db") as made:
        yield made


@pytest.fixture
async def backend(tmp_path: Path, room: Room) -> AsyncIterator[SessionBackend]:
    async def read(uids: Set[PodUid]) -> dict[PodUid, PodReading]:
        return {}

    async def blocking(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    store = await Store.open(tmp_path / "usage.db", [USAGE_TABLES])
    usage = SessionUsage(
        room.sessions,
        read=read,
        records=UsageRecords(store, room.clock),
        file=UsageFile(tmp_path / "usage.jsonl"),
        blocking=blocking,
        clock=room.clock,
    )
    yield SessionBackend(room.sessions, usage)
    await usage.stop()
    await store.close()


def _begin(work: object) -> asyncio.Task[SessionView]:
    return asyncio.create_task(work, name="request")  # type: ignore[arg-type]  # any coroutine


async def test_open_waits_until_the_instance_answers_and_close_until_it_has_closed(
    room: Room, backend: SessionBackend
) -> None:
    application = room.connect()
    opening = _begin(backend.open_session(REQUEST, wait=True))
    await room.settle()
    assert not opening.done()
    application.report(pb.STATE_OPEN, "ann")
    await room.settle()
    opened = await opening
    assert (opened.state, opened.pod, opened.data) == ("Live", "default/web", b"blue")
    found = await backend.find_session("default/s1")
    assert (found.state, [client.name for client in found.clients]) == ("Live", ["ann"])
    closing = _begin(backend.close_session("default/s1", 5.0, wait=True))
    await room.settle()
    assert not closing.done()
    application.report(pb.STATE_CLOSED)
    await room.settle()
    ended = await closing
    assert (ended.state, ended.reason) == ("Terminated", "")
    assert [one.name for one in await backend.list_sessions()] == ["s1"]


async def test_without_waiting_the_state_of_now_is_returned(room: Room, backend: SessionBackend) -> None:
    opened = await backend.open_session(REQUEST, wait=False)
    assert opened.state == "Starting"
    again = await backend.open_session(REQUEST, wait=False)
    assert again.created_at == opened.created_at
    await backend.close_session("default/s1", None, wait=False)
    await room.settle()
    assert (await backend.find_session("default/s1")).state == "Terminated"


async def test_a_session_without_a_name_gets_one_of_its_pod(room: Room, backend: SessionBackend) -> None:
    names = [
        (await backend.open_session(SessionRequest(namespace="default", pod="web"), wait=False)).name
        for _ in range(2)
    ]
    assert len(set(names)) == 2
    assert all(name.startswith("web-") for name in names)


async def test_an_open_that_times_out_is_returned_with_its_reason(
    room: Room, backend: SessionBackend
) -> None:
    room.connect()
    opening = _begin(backend.open_session(REQUEST, wait=True))
    await room.settle()
    room.clock.advance(10.5)
    await room.settle()
    assert ((await opening).state, (await opening).reason) == ("Terminated", "OpenTimeout")


async def test_an_unknown_session_is_named(room: Room, backend: SessionBackend) -> None:
    with pytest.raises(NotFound, match="session default/s9 not found"):
        await backend.find_session("default/s9")
    with pytest.raises(NotFound, match="default/s9"):
        await backend.close_session("default/s9", None, wait=True)
