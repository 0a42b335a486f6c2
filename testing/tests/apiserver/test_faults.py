"""Switches that make the double misbehave."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from kubeletx_testing.apiserver import ApiServerDouble, StatusError
from kubeletx_testing.https_session import https_session
from kubeletx_testing.waiting import until

GUARD_SECONDS = 60


@asynccontextmanager
async def watching(
    api: ApiServerDouble, plural: str = "configmaps", **query: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    tls = ssl.create_default_context(cafile=str(api.ca_file))
    headers = {"Authorization": f"Bearer {api.admin_token}"}
    revision = str(api.revision)
    params = {"watch": "true", "resourceVersion": revision, **query}
    async with (
        asyncio.timeout(GUARD_SECONDS),
        https_session(tls, headers=headers) as session,
        session.get(f"{api.url}/api/v1/{plural}", params=params) as response,
    ):
        yield response


def make(api: ApiServerDouble, name: str) -> None:
    api.admin.create("configmaps", {"metadata": {"name": name}}, "default")


async def collect(response: aiohttp.ClientResponse, received: list[bytes]) -> None:
    async for chunk in response.content.iter_any():
        received.append(chunk)


async def test_a_watch_that_is_cut_ends_in_the_middle(api: ApiServerDouble) -> None:
    async with watching(api) as response:
        api.cut_watches()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


@pytest.mark.parametrize("count", [0, 1, 20])
async def test_a_watch_can_be_cut_inside_a_line(api: ApiServerDouble, count: int) -> None:
    async with watching(api) as response:
        api.cut_watches(after_bytes=count)
        make(api, "one")
        received: list[bytes] = []
        with pytest.raises(aiohttp.ClientPayloadError):
            await collect(response, received)
    assert b"".join(received) == b'{"type":"ADDED","object":'[:count]


async def test_a_watch_cut_after_a_whole_line_has_given_the_event(api: ApiServerDouble) -> None:
    async with watching(api) as response:
        api.cut_watches(after_bytes=100_000)
        make(api, "one")
        line = await response.content.readline()
        assert json.loads(line)["object"]["metadata"]["name"] == "one"
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.readline()


async def test_a_watch_that_is_ended_is_complete(api: ApiServerDouble) -> None:
    async with watching(api) as response:
        api.end_watches("configmaps")
        assert await response.read() == b""


def test_requests_are_refused_as_often_as_asked(api: ApiServerDouble) -> None:
    api.faults.fail(503, times=2, path="/nodes")
    for _ in range(2):
        with pytest.raises(StatusError) as refused:
            api.admin.list("nodes")
        assert refused.value.code == 503
    assert api.admin.list("nodes")["items"] == []


def test_too_many_requests_say_when_to_come_back(api: ApiServerDouble) -> None:
    api.faults.fail(429, retry_after_seconds=7)
    reply = api.admin.send("GET", "/api/v1/nodes")
    assert (reply.code, reply.headers["retry-after"]) == (429, "7")
    assert reply.json["reason"] == "TooManyRequests"


def test_a_dropped_request_gets_no_answer(api: ApiServerDouble) -> None:
    api.faults.drop()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        api.admin.list("nodes")
    assert api.admin.list("nodes")["items"] == []


async def test_a_frozen_server_answers_after_the_thaw(api: ApiServerDouble) -> None:
    api.faults.freeze()
    asked = asyncio.create_task(asyncio.to_thread(api.admin.list, "nodes"))
    await until(lambda: api.requests.all(path="/nodes"))
    assert not asked.done()
    api.faults.thaw()
    assert (await asked)["items"] == []


def test_objects_outlive_a_stop_on_the_same_port(api: ApiServerDouble) -> None:
    make(api, "one")
    api.stop()
    with pytest.raises(ConnectionError):
        api.admin.list("configmaps")
    api.start()
    assert api.admin.get("configmaps", "one", "default")["metadata"]["name"] == "one"


async def test_a_frozen_server_can_be_stopped(api: ApiServerDouble) -> None:
    async with watching(api):
        api.faults.freeze()
        asked = asyncio.create_task(asyncio.to_thread(api.admin.list, "nodes"))
        await until(lambda: api.requests.all(path="/nodes"))
        await asyncio.to_thread(api.stop)
        with pytest.raises((OSError, http.client.HTTPException)):
            await asked


async def test_an_older_backup_turns_the_counter_back_and_cuts_watches(api: ApiServerDouble) -> None:
    backup = api.backup()
    make(api, "one")
    async with watching(api) as response:
        api.restore(backup)
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert api.revision == backup.revision
    with pytest.raises(StatusError):
        api.admin.get("configmaps", "one", "default")


def test_forgotten_history_is_gone_for_watches(api: ApiServerDouble) -> None:
    revision = str(api.revision)
    api.forget_history()
    (event,) = api.admin.watch("configmaps", resourceVersion=revision)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_the_log_counts_requests_by_user_and_verb(api: ApiServerDouble) -> None:
    node = api.node_client("n1")
    node.list("nodes", fieldSelector="metadata.name=n1")
    api.admin.list("nodes")
    records = api.requests.all(user="system:node:n1", verb="list")
    assert [(one.method, one.path, one.code, one.user_agent) for one in records] == [
        ("GET", "/api/v1/nodes", 200, "kubeletx-test")
    ]


@pytest.mark.parametrize("leaves_first", [True, False])
async def test_a_delayed_request_ends_with_the_server(api: ApiServerDouble, leaves_first: bool) -> None:
    rule = api.faults.delay(1.5, path="/configmaps")
    tls = ssl.create_default_context(cafile=str(api.ca_file))
    headers = {"Authorization": f"Bearer {api.admin_token}"}
    async with https_session(tls, headers=headers) as session:
        asked = [asyncio.create_task(session.get(f"{api.url}/api/v1/configmaps")) for _ in range(4)]
        await until(lambda: rule.hits == 4)
        if leaves_first:
            for one in asked:
                one.cancel()
        else:
            await asyncio.to_thread(api.stop)
        await asyncio.gather(*asked, return_exceptions=True)
