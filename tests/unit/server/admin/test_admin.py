"""The admin socket over a real unix socket, in front of a fake agent."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from kubeletx.api import AlreadyExists, Conflict, InvalidConfig, InvalidPod, KubeletxError, NotFound
from kubeletx.api.errors import TABLE
from kubeletx.kube.types.api_status import Status
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec
from kubeletx.server.admin.socket import AdminServer
from kubeletx.server.status import to_error, to_status
from kubeletx.streaming.websocket import connect_session
from kubeletx.testing import FakeSession
from kubeletx_testing.waiting import until
from tests.unit.server.fake_admin import FakeAdminBackend


def pod(name: str, namespace: str = "default", image: str = "web") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}"),
        spec=PodSpec(containers=(Container(name="web", image=image),)),
    )


MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default}
spec: {containers: [{name: web, image: web}]}
"""


@pytest.fixture
def backend() -> FakeAdminBackend:
    return FakeAdminBackend()


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "kubeletx.sock"


@pytest.fixture
async def client(backend: FakeAdminBackend, socket_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    server = AdminServer(backend=backend.parts, socket_path=socket_path)
    await server.start()
    connector = aiohttp.UnixConnector(path=str(socket_path))
    async with aiohttp.ClientSession(connector=connector, base_url="http://kubeletx") as session:
        yield session
    await server.stop()


async def test_the_socket_is_only_for_its_owner_and_goes_with_the_server(
    backend: FakeAdminBackend, socket_path: Path
) -> None:
    server = AdminServer(backend=backend.parts, socket_path=socket_path)
    await server.start()
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
    await server.stop()
    assert not socket_path.exists()


async def test_a_socket_left_by_a_dead_agent_is_replaced(
    backend: FakeAdminBackend, socket_path: Path
) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(socket_path))
    dead.close()
    server = AdminServer(backend=backend.parts, socket_path=socket_path)
    await server.start()
    await server.stop()


async def test_a_second_agent_is_refused_and_harms_nothing(
    client: aiohttp.ClientSession, backend: FakeAdminBackend, socket_path: Path
) -> None:
    second = AdminServer(backend=backend.parts, socket_path=socket_path)
    with pytest.raises(AlreadyExists, match="another kubeletx"):
        await second.start()
    await second.stop()
    async with client.get("/version") as answer:
        assert (await answer.json())["pid"] == 4711


async def test_a_path_that_no_socket_can_have_is_refused(backend: FakeAdminBackend, tmp_path: Path) -> None:
    server = AdminServer(backend=backend.parts, socket_path=tmp_path / ("x" * 200))
    with pytest.raises(InvalidConfig, match="too long"):
        await server.start()


async def test_pods_come_as_a_v1_pod_list(client: aiohttp.ClientSession, backend: FakeAdminBackend) -> None:
    backend.put(pod("b"))
    backend.put(pod("a"))
    async with client.get("/v1/pods") as answer:
        found = await answer.json()
    assert (found["kind"], found["apiVersion"]) == ("PodList", "v1")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]


async def test_a_watch_shows_what_is_and_what_changes_and_ends_with_its_client(
    client: aiohttp.ClientSession, backend: FakeAdminBackend
) -> None:
    backend.put(pod("a"))
    async with client.get("/v1/pods", params={"watch": "1"}) as answer:
        assert json.loads(await answer.content.readline())["type"] == "ADDED"
        backend.put(pod("a", image="new"))
        assert json.loads(await answer.content.readline())["type"] == "MODIFIED"
        backend.drop("default", "a")
        assert json.loads(await answer.content.readline())["type"] == "DELETED"
    async with asyncio.timeout(60):
        while backend.watchers:
            await asyncio.sleep(0)


async def test_a_manifest_with_several_pods_says_what_became_of_each(
    client: aiohttp.ClientSession, backend: FakeAdminBackend
) -> None:
    backend.put(pod("changed"))
    backend.put(pod("same"))
    text = "---".join(MANIFEST.replace("NAME", name) for name in ("new", "same", "changed"))
    text = text.strip().removesuffix("}") + ", restartPolicy: Never}\n"
    async with client.post("/v1/pods", data=text.encode()) as answer:
        items = (await answer.json())["items"]
    assert [item["action"] for item in items] == ["created", "unchanged", "failed"]
    assert items[2]["error"]["reason"] == "Conflict"


async def test_a_bad_manifest_is_a_status_with_file_and_reason(client: aiohttp.ClientSession) -> None:
    async with client.post("/v1/pods", params={"origin": "bad.yaml"}, data=b"kind: Pod\nspec: 3\n") as answer:
        status = await answer.json()
    assert answer.status == 422
    assert (status["kind"], status["status"], status["details"]["kind"]) == (
        "Status",
        "Failure",
        "InvalidPod",
    )
    assert "bad.yaml" in status["message"]


async def test_errors_and_unknown_paths_are_status_objects(client: aiohttp.ClientSession) -> None:
    async with client.delete("/v1/pods/default/none") as answer:
        assert (answer.status, (await answer.json())["message"]) == (404, "pod default/none not found")
    async with client.get("/v1/nothing") as answer:
        assert (answer.status, (await answer.json())["reason"]) == (404, "NotFound")


async def test_an_error_in_a_stream_is_its_last_line(client: aiohttp.ClientSession) -> None:
    async with client.post("/v1/images/pull", params={"image": "missing"}) as answer:
        line = json.loads(await answer.content.readline())
    assert (line["type"], line["object"]["code"]) == ("ERROR", 404)


async def test_an_unexpected_error_is_an_internal_status(
    client: aiohttp.ClientSession, backend: FakeAdminBackend
) -> None:
    backend.errors = [RuntimeError("boom")]
    async with client.get("/v1/node") as answer:
        assert answer.status == 500
        assert "RuntimeError: boom" in (await answer.json())["message"]


async def test_logs_are_plain_bytes(client: aiohttp.ClientSession, backend: FakeAdminBackend) -> None:
    backend.put(pod("a"))
    backend.logs["web"] = [b"one\n", b"two\n"]
    async with client.get("/v1/pods/default/a/log", params={"tailLines": "2"}) as answer:
        assert await answer.read() == b"one\ntwo\n"
    async with client.get("/v1/pods/default/a/log", params={"tailLines": "-2"}) as answer:
        assert answer.status == 400


async def test_a_command_may_be_as_long_as_a_script(
    client: aiohttp.ClientSession, backend: FakeAdminBackend
) -> None:
    backend.put(pod("web"))
    backend.sessions = [session := FakeSession()]
    session.finish(0)
    script = "echo 'a line';" * 10_000
    query = [("command", "sh"), ("command", "-c"), ("command", script), ("stdout", "true")]
    ended = await connect_session(client, "/v1/pods/default/web/exec", query)
    assert [data async for _, data in ended.output()] == []
    assert await ended.wait() == 0
    await ended.close()
    (_, _, _, wanted) = backend.calls[-1]
    assert wanted.command == ("sh", "-c", script)


async def test_a_log_that_fails_in_the_middle_says_so_in_its_last_line(
    client: aiohttp.ClientSession, backend: FakeAdminBackend
) -> None:
    backend.put(pod("web"))
    backend.logs["web"] = [b"one\n", NotFound("the log has gone")]
    for query in ("", "?follow=true"):
        async with client.get("/v1/pods/default/web/log" + query) as answer:
            assert (answer.status, await answer.text()) == (200, "one\nthe log has gone\n")


async def test_a_log_whose_first_line_cannot_be_read_is_an_error(
    client: aiohttp.ClientSession, backend: FakeAdminBackend
) -> None:
    backend.put(pod("web"))
    backend.logs["web"] = [NotFound("there is no log at 0.log")]
    async with client.get("/v1/pods/default/web/log") as answer:
        assert answer.status == 404
        assert (await answer.json())["message"] == "there is no log at 0.log"


async def test_a_change_goes_on_when_its_client_leaves(
    client: aiohttp.ClientSession, backend: FakeAdminBackend
) -> None:
    backend.may_cordon.clear()
    await backend.add_runtime("container:a:unix:///a")
    request = asyncio.create_task(client.post("/v1/runtimes/a/cordon").__aenter__())
    async with asyncio.timeout(60):
        await until(lambda: backend.calls[-1] == ("cordon", "a"))
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        backend.may_cordon.set()
        await until(lambda: backend.runtimes["a"].cordoned)


async def test_metrics_and_health_are_there(client: aiohttp.ClientSession) -> None:
    async with client.get("/metrics") as answer:
        text = await answer.text()
    assert 'kubelet_node_name{node="node-1"} 1.0' in text
    assert "process_resident_memory_bytes" in text
    async with client.get("/healthz") as answer:
        assert await answer.text() == "ok"


@pytest.mark.parametrize("cls", list(TABLE))
def test_every_error_class_comes_back_as_itself(cls: type[KubeletxError]) -> None:
    if issubclass(cls, InvalidConfig | InvalidPod):
        error: KubeletxError = cls(obj="file", field="spec.x", problem="is 3", fix="write 4")
    else:
        error = cls("it is so", reason="Because")
    back = to_error(to_status(error))
    assert type(back) is cls
    assert str(back) == str(error)


def test_a_status_of_someone_else_is_an_internal_error() -> None:
    assert str(to_error(Status(message="who knows"))) == "who knows"


def test_subclasses_count_as_what_they_extend() -> None:
    class Gone(NotFound):
        pass

    assert to_status(Gone("x")).code == 404
    assert to_status(Conflict("x")).reason == "Conflict"


HALF_PAIR = b'{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "\\ud800"}}}'


async def test_half_of_a_surrogate_pair_in_a_manifest_is_the_authors_mistake(
    client: aiohttp.ClientSession,
) -> None:
    async with client.post("/v1/pods", params={"origin": "web.json"}, data=HALF_PAIR) as response:
        assert response.status == 422
        message = (await response.json())["message"]
    assert message.startswith("web.json: has half of a surrogate pair in metadata.labels.b")


async def test_a_request_that_is_not_utf8_is_the_clients_mistake(client: aiohttp.ClientSession) -> None:
    async with client.delete("/v1/pods/default/web", data=b'{"force": "\xff"}') as response:
        assert response.status == 400
        assert "correct the request" in (await response.json())["message"]


async def test_text_that_utf8_cannot_hold_is_sent_escaped(
    client: aiohttp.ClientSession, backend: FakeAdminBackend
) -> None:
    backend.pods = {("default", "a"): pod("a", image="x\udcff")}
    async with client.get("/v1/pods") as response:
        (item,) = (await response.json())["items"]
    assert item["spec"]["containers"][0]["image"] == "x\\udcff"


MISSPELT = MANIFEST.replace("NAME", "web").replace("spec: {", "spec: {restartPolice: Never, ")


@pytest.mark.parametrize(
    ("query", "warnings", "error"),
    [
        ({}, ['unknown field "spec.restartPolice"'], ""),
        ({"fieldValidation": "Warn"}, ['unknown field "spec.restartPolice"'], ""),
        ({"fieldValidation": "Ignore"}, [], ""),
        ({"fieldValidation": "Strict"}, [], 'strict decoding error: unknown field "spec.restartPolice"'),
    ],
)
async def test_unknown_fields_are_named_refused_or_ignored(
    client: aiohttp.ClientSession,
    backend: FakeAdminBackend,
    query: dict[str, str],
    warnings: list[str],
    error: str,
) -> None:
    async with client.post("/v1/pods", params=query, data=MISSPELT) as response:
        (item,) = (await response.json())["items"]
    assert item["warnings"] == warnings
    assert error in (item["error"] or {"message": ""})["message"]
    assert bool(backend.pods) is not bool(error)


async def test_a_validation_that_does_not_exist_is_refused(client: aiohttp.ClientSession) -> None:
    async with client.post("/v1/pods", params={"fieldValidation": "x"}, data=MISSPELT) as response:
        assert response.status == 400
        assert "use Strict, Warn or Ignore" in (await response.json())["message"]
