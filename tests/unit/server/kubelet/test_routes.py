"""What the kubelet's API answers to those who may ask."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from yarl import URL

from kubeletx.api import Unavailable
from kubeletx.kube.types.status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateWaiting,
    ContainerStatus,
    PodStatus,
)
from kubeletx.server.views import ConfigValue, LogOptions, PodTarget
from tests.unit.server.api_client import IMPATIENT, pod, read_slowly, serving


def status(name: str, state: ContainerState) -> ContainerStatus:
    return ContainerStatus(name=name, state=state, ready=False, restart_count=0, image="i", image_id="i")


async def test_pods_are_a_pod_list(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        code, text = await api.get("/pods")
        found = json.loads(text)
        assert (code, found["kind"], found["apiVersion"]) == (200, "PodList", "v1")
        assert [one["metadata"]["name"] for one in found["items"]] == ["web"]


async def test_running_pods_show_only_what_runs(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        statuses = (
            status("a", ContainerState(running=ContainerStateRunning())),
            status("b", ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff"))),
        )
        api.backend.put(replace(pod("web", "a", "b"), status=PodStatus(container_statuses=statuses)))
        api.backend.put(pod("idle"))
        code, text = await api.get("/runningpods/")
        (found,) = json.loads(text)["items"]
        assert (code, found["metadata"]["name"]) == (200, "web")
        assert [one["name"] for one in found["spec"]["containers"]] == ["a"]


async def test_the_configuration_is_shown_as_a_kubelet_shows_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        api.backend.config_values = (
            ConfigValue(key="", value="/var/lib/kubeletx", origin="default", flag="root-dir"),
            ConfigValue(key="maxPods", value=77, origin="flag --max-pods"),
            ConfigValue(key="authentication.x509.clientCAFile", value="/ca.crt", origin="config.yaml"),
            ConfigValue(key="authentication.webhook.enabled", value=True, origin="default"),
            ConfigValue(key="featureGates", value={"A": True}, origin="config.yaml (no effect)", unused=True),
        )
        code, text = await api.get("/configz")
        assert code == 200
        assert json.loads(text)["kubeletconfig"] == {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "maxPods": 77,
            "authentication": {"x509": {"clientCAFile": "/ca.crt"}, "webhook": {"enabled": True}},
        }


async def test_logs_come_with_their_options(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        api.backend.logs["main"] = [b"one\n", b"two\n"]
        path = "/containerLogs/default/web/main?follow=true&tailLines=2&sinceTime=2026-01-02T03:04:05Z&previous=true"
        assert await api.get(path) == (200, "one\ntwo\n")
        (_, ref, options) = api.backend.calls[-1]
        assert isinstance(options, LogOptions)
        assert (ref, options.container, options.follow, options.tail_lines) == (
            "default/web",
            "main",
            True,
            2,
        )
        assert options.previous
        assert options.since_at is not None


LOG_HEAD = b"GET /containerLogs/default/web/main HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"


async def test_a_log_reaches_a_client_that_reads_slowly_to_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path, listen=IMPATIENT) as api, asyncio.timeout(60):
        api.backend.logs["main"] = [bytes([65 + number % 26]) * 999 + b"\n" for number in range(700)]
        answer = await read_slowly(api, LOG_HEAD.replace(b"close", b"keep-alive"), 1.5)
        assert len(re.findall(rb"[A-Z]{999}\n", answer)) == 700
        assert answer.endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize("query", ["", "?follow=true"])
async def test_a_log_that_fails_in_the_middle_says_so_in_its_last_line(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path) as api:
        api.backend.logs["main"] = [b"one\n", Unavailable("cannot read log: Input/output error")]
        code, text = await api.get("/containerLogs/default/web/main" + query)
        assert (code, text) == (200, "one\ncannot read log: Input/output error\n")


async def test_a_bug_in_the_middle_of_an_answer_cuts_it_and_gives_no_second_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, asyncio.timeout(60):
        api.backend.logs["main"] = [b"one\n", ZeroDivisionError()]
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port, ssl=api.tls(api.admin))
        writer.write(LOG_HEAD)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                answer += piece
        writer.close()
        assert answer.count(b"HTTP/1.1") <= 1
        assert not answer.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/containerLogs/default/none/main", 404, 'pod "none" not found in namespace "default"'),
        ("/containerLogs/default/web/none", 404, 'container "none" not found in pod "web"'),
        ("/containerLogs/default/web/main?tailLines=x", 400, "Unable to decode query"),
        ("/containerLogs/default/web/main?tailLines=9223372036854775808", 400, "Unable to decode query"),
        ("/containerLogs/default/web/main?limitBytes=" + "9" * 5000, 400, "Unable to decode query"),
        ("/containerLogs/default/web/main?sinceTime=yesterday", 400, "Unable to decode query"),
        ("/containerLogs/default/web/main?sinceTime=0001-01-01T00:00:00%2B14:00", 400, "is not a time"),
        ("/containerLogs/default/web/main?sinceSeconds=0", 422, "sinceSeconds must be greater than 0"),
        ("/containerLogs/default/web/main?limitBytes=0", 422, "limitBytes must be greater than 0"),
        (
            "/containerLogs/default/web/main?sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z",
            422,
            "both set",
        ),
        ("/containerLogs/default/web/main", 400, "has no log"),
        ("/containerLogs/default/web", 404, "Not Found"),
        ("/containerLogs/default/web/main/x", 404, "Not Found"),
        ("/containerLogs/default/web/..%2F..%2F..%2Fetc%2Fpasswd", 404, "not found in pod"),
        ("/containerLogs/..%2F..%2Fetc/passwd/x", 404, "not found in namespace"),
        ("/containerLogs/default/../../../../etc/passwd", 404, "Not Found"),
        ("/logs/../pods", 404, "page not found"),
        ("/PODS", 404, "Not Found"),
        ("//pods", 404, "Not Found"),
        ("/healthz/nothing", 404, "no part"),
        ("/exec/default/web/main?command=ls&output=1", 400, "Upgrade request required"),
        ("/attach/default/web/main?output=1", 400, "Upgrade request required"),
        ("/exec/default/web/main?command=ls", 400, "at least 1 of stdin, stdout, stderr"),
        ("/portForward/default/web", 400, "Upgrade request required"),
    ],
)
async def test_paths_and_parameters_that_make_no_sense_are_refused(
    tmp_path: Path, path: str, code: int, words: str
) -> None:
    async with (
        serving(tmp_path) as api,
        api.client(api.admin) as session,
        session.get(URL(api.url + path, encoded=True)) as answer,
    ):
        text = await answer.text()
        assert (answer.status, words in text) == (code, True), text
        assert answer.content_type == "text/plain"
    assert not any(call[0] in ("exec", "attach", "port-forward") for call in api.backend.calls)


async def test_a_container_that_waits_has_no_log_yet_and_says_why(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        waiting = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
        api.backend.put(replace(pod(), status=PodStatus(container_statuses=(status("main", waiting),))))
        assert await api.get("/containerLogs/default/web/main") == (
            400,
            'container "main" in pod "web" is waiting to start: ContainerCreating',
        )


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("ErrImagePull", "image can't be pulled"),
        ("ImagePullBackOff", "trying and failing to pull image"),
        ("CreateContainerError", "CreateContainerError"),
    ],
)
async def test_a_container_without_its_image_has_no_log_in_the_kubelet_s_words(
    tmp_path: Path, reason: str, text: str
) -> None:
    async with serving(tmp_path) as api:
        waiting = ContainerState(waiting=ContainerStateWaiting(reason=reason))
        api.backend.put(replace(pod(), status=PodStatus(container_statuses=(status("main", waiting),))))
        code, body = await api.get("/containerLogs/default/web/main?follow=true")
        assert (code, body) == (400, f'container "main" in pod "web" is waiting to start: {text}')
        code, body = await api.get("/containerLogs/default/web/main?previous=true")
        assert code == 400
        assert "waiting to start" not in body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/pods"),
        ("DELETE", "/containerLogs/default/web/main"),
        ("POST", "/metrics"),
        ("GET", "/run/default/web/main"),
        ("PUT", "/exec/default/web/main"),
        ("HEAD", "/pods"),
    ],
)
async def test_other_methods_are_refused(tmp_path: Path, method: str, path: str) -> None:
    async with serving(tmp_path) as api:
        code, _ = await api.ask(method, path, certificate=api.admin)
        assert code == 405


async def test_health_is_whole_and_in_parts(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for path in ("/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop"):
            assert await api.get(path) == (200, "ok")


async def test_metrics_are_text(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        code, text = await api.get("/metrics")
        assert code == 200
        assert 'kubelet_node_name{node="node-1"} 1.0' in text


async def test_another_life_of_a_pod_is_not_meant(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        target = PodTarget(namespace="default", name="web", uid="other")
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "SPDY/3.1",
            "X-Stream-Protocol-Version": "portforward.k8s.io",
        }
        code, text = await api.ask(
            "POST", f"/portForward/default/web/{target.uid}", certificate=api.admin, headers=headers
        )
        assert (code, text) == (404, 'pod "web" not found in namespace "default"')
