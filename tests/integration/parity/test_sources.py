"""Where static pods come from (S2, S3, S5, S6, S8, S9): directory, single file, URL, refused references."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import PrivateAgent, pod_manifest, put_manifest
from tests.integration.support.bench import Bench, until

MakeBench = Callable[..., Bench]


class PodServer:
    """A tiny HTTP server with one body, which remembers what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.headers.append(dict(self.headers.items()))
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, name="pod-server")
        self.url = f"http://127.0.0.1:{self.server.server_port}/pods"


@pytest.fixture(scope="module")
def pod_server() -> Iterator[PodServer]:
    one = PodServer()
    one.thread.start()
    yield one
    one.server.shutdown()
    one.thread.join()
    one.server.server_close()


@pytest.fixture(scope="module")
def bench(make_bench: MakeBench, pod_server: PodServer) -> Bench:
    pod_server.body = json.dumps(pod_manifest("from-url")).encode()
    return make_bench(
        node_name="lab-node",
        flags=(
            "--hostname-override=Lab-Node",
            f"--manifest-url={pod_server.url}",
            "--manifest-url-header=X-Token:one",
            "--manifest-url-header=X-Token:two",
            "--http-check-frequency=1s",
        ),
    )


def test_a_static_pod_gets_the_kubelets_defaults(bench: Bench) -> None:
    bench.put("plain")
    pod = bench.ready("plain")
    assert pod.metadata.name == "plain-lab-node"
    assert pod.metadata.namespace == "default"
    assert pod.spec.node_name == "lab-node"
    notes = pod.metadata.annotations
    assert notes["kubernetes.io/config.source"] == "file"
    assert notes["kubernetes.io/config.hash"]
    assert notes["kubernetes.io/config.seen"]
    assert [(one.operator, one.effect) for one in pod.spec.tolerations] == [("Exists", "NoExecute")]
    assert pod.spec.restart_policy == "Always"
    assert pod.spec.dns_policy == "ClusterFirst"


def test_a_changed_manifest_has_another_uid_and_the_same_one_keeps_it(bench: Bench) -> None:
    bench.put("again", metadata={"labels": {"v": "1"}})
    first = bench.ready("again").metadata.uid
    bench.remove("again")
    bench.put("again", metadata={"labels": {"v": "1"}})
    assert bench.ready("again").metadata.uid == first
    bench.put("again", metadata={"labels": {"v": "2"}})
    assert bench.until("again", lambda pod: pod.metadata.uid != first).metadata.labels == {"v": "2"}


def test_hidden_files_and_subdirectories_are_not_read(bench: Bench) -> None:
    put_manifest(bench.manifests, pod_manifest("hidden"), name=".hidden.json")
    below = bench.manifests / "below"
    below.mkdir()
    put_manifest(below, pod_manifest("deeper"))
    bench.put("visible")
    bench.ready("visible")
    assert bench.agent.pod("hidden") is None
    assert bench.agent.pod("deeper") is None


def test_a_manifest_may_be_yaml(bench: Bench) -> None:
    text = b"""\
apiVersion: v1
kind: Pod
metadata: {name: yaml-pod, namespace: other}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "registry.local/busybox:1", command: [sleep, "1000"]}
"""
    put_manifest(bench.manifests, text, name="pod.yaml")
    assert bench.ready("yaml-pod").metadata.namespace == "other"


def test_the_url_is_asked_with_its_headers_and_its_pod_runs(bench: Bench, pod_server: PodServer) -> None:
    pod = bench.ready("from-url")
    assert pod.metadata.name == "from-url-lab-node"
    assert pod.metadata.annotations["kubernetes.io/config.source"] == "http"
    assert pod.spec.tolerations == ()
    assert "X-Token" in pod_server.headers[0]


def test_an_error_of_the_url_keeps_its_pods_and_a_list_replaces_them(
    bench: Bench, pod_server: PodServer
) -> None:
    uid = bench.ready("from-url").metadata.uid
    pod_server.status = 500
    asked = len(pod_server.headers)
    until(lambda: len(pod_server.headers) >= asked + 2, "two more requests")
    assert bench.ready("from-url").metadata.uid == uid
    items = [pod_manifest("from-url"), pod_manifest("second-from-url")]
    body = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items}).encode()
    pod_server.status, pod_server.body = 200, body
    bench.ready("second-from-url")
    assert bench.ready("from-url").metadata.uid == uid
    pod_server.body = json.dumps(items[1]).encode()
    bench.agent.wait_gone("from-url")
    bench.ready("second-from-url")


_REFUSED: dict[str, dict[str, Any]] = {
    "account": {"spec": {"serviceAccountName": "robot"}},
    "csi": {"spec": {"volumes": [{"name": "v", "csi": {"driver": "d"}}]}},
    "token": {
        "spec": {
            "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
        }
    },
}


def test_references_to_api_objects_are_refused_with_the_field(bench: Bench) -> None:
    for name, parts in _REFUSED.items():
        bench.put(f"refused-{name}", **parts)
    bench.put("after-refusals")
    bench.ready("after-refusals")
    for name in _REFUSED:
        file = f"refused-{name}.json"
        until(partial(_is_logged, bench, file), f"a line on {name}")
        assert bench.agent.pod(f"refused-{name}") is None, name


def _is_logged(bench: Bench, text: str) -> bool:
    return text in bench.agent.log_path.read_text()


def test_one_file_is_a_source_too(make_agent: Callable[..., PrivateAgent], tmp_path: Path) -> None:
    path = put_manifest(tmp_path, pod_manifest("lonely"))
    agent = make_agent(manifest_dir=path)
    agent.start()
    agent.wait_for("lonely")
    path.unlink()
    put_manifest(tmp_path, pod_manifest("other"), name=path.name)
    agent.wait_for("other")
    agent.wait_gone("lonely")


def test_a_missing_directory_is_an_empty_set_until_it_comes(
    make_agent: Callable[..., PrivateAgent], tmp_path: Path
) -> None:
    directory = tmp_path / "later"
    agent = make_agent(manifest_dir=directory, flags=("--file-check-frequency=1s",))
    agent.start()
    assert agent.pods() == ()
    directory.mkdir()
    put_manifest(directory, pod_manifest("late"))
    agent.wait_for("late")
