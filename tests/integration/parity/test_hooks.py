"""Lifecycle hooks and the sequence of a stop (T1 to T6)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx_testing.lab.cgroups import cgroups_below
from tests.integration.support.bench import (
    Bench,
    condition,
    find_status,
    on_term,
    one_container,
    restarts,
    status,
    until,
    with_containers,
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A directory that outlives the pod, mounted at /v."""
    return tmp_path


def at(host: Path) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "hostPath": {"path": str(host)}}]}


MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
STAMP = "cut -d' ' -f1 /proc/uptime"
TRAP = on_term(f"{STAMP} > /v/term; exit 0")


def shell(script: str) -> dict[str, Any]:
    return {"exec": {"command": ["sh", "-c", script]}}


def test_a_container_is_not_running_before_its_post_start_hook_is_done(bench: Bench) -> None:
    hook = shell("while [ ! -e /tmp/go ]; do sleep 0.1; done; touch /tmp/done")
    bench.put("post-start", container={"lifecycle": {"postStart": hook}})
    bench.event("post-start", "Started")
    (unit,) = bench.units("post-start")
    until(lambda: bench.units("post-start")[0].state == cri.CONTAINER_RUNNING, "a container that runs")
    pod = bench.pod("post-start")
    waiting = status(pod).state.waiting
    assert waiting is not None
    assert waiting.reason == "ContainerCreating"
    assert condition(pod, "Ready").status == "False"
    with bench.agent.lab["containerd-a"].cri() as calls:
        calls.call("ExecSync", container_id=unit.id, cmd=["touch", "/tmp/go"], timeout=10)
    bench.ready("post-start")
    assert bench.exec("post-start", "ls /tmp/done") == "/tmp/done\n"


def test_a_failing_post_start_hook_kills_the_container(bench: Bench) -> None:
    bench.put("post-fail", container={"lifecycle": {"postStart": shell("echo no; exit 3")}})
    reported = bench.event("post-fail", "FailedPostStartHook")
    assert reported["type"] == "Warning"
    bench.until("post-fail", lambda pod: restarts(pod) >= 1)
    assert bench.event("post-fail", "Killing")["message"] == "Container main failed its postStart hook"


def test_a_post_start_hook_may_sleep(bench: Bench) -> None:
    bench.put("post-sleep", container={"lifecycle": {"postStart": {"sleep": {"seconds": 1}}}})
    bench.ready("post-sleep")
    assert bench.reasons("post-sleep")[-1] == "Started"


def test_a_pre_stop_hook_runs_before_the_signal(bench: Bench, host: Path) -> None:
    hook = shell(f"sleep 0.5; {STAMP} > /v/hook")
    bench.put("pre-stop", TRAP, container={"lifecycle": {"preStop": hook}, **MOUNT}, spec=at(host))
    bench.listening("pre-stop")
    bench.remove("pre-stop")
    assert float((host / "hook").read_text()) <= float((host / "term").read_text())


def test_a_failing_pre_stop_hook_does_not_stop_the_stop(bench: Bench, host: Path) -> None:
    hook = shell("exit 9")
    bench.put("pre-fail", TRAP, container={"lifecycle": {"preStop": hook}, **MOUNT}, spec=at(host))
    bench.listening("pre-fail")
    bench.remove("pre-fail")
    assert bench.event("pre-fail", "FailedPreStopHook")["type"] == "Warning"
    assert (host / "term").exists()


def test_the_hooks_time_is_taken_from_the_grace_and_two_seconds_are_left(bench: Bench, host: Path) -> None:
    hook = shell("sleep 1000")
    spec = {"terminationGracePeriodSeconds": 2, **at(host)}
    script = on_term("sleep 1; touch /v/term; exit 0")
    bench.put("pre-slow", script, container={"lifecycle": {"preStop": hook}, **MOUNT}, spec=spec)
    bench.listening("pre-slow")
    began = time.monotonic()
    bench.remove("pre-slow")
    assert time.monotonic() - began > 2
    assert (host / "term").exists(), "the container got its minimum after the hook"


class Recorder:
    """An HTTP server that answers every path with one status and remembers the paths."""

    def __init__(self, code: int) -> None:
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.paths.append(self.path)
                self.send_response(code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    one = Recorder(500)
    thread = threading.Thread(target=one.server.serve_forever, name="recorder")
    thread.start()
    yield one
    one.server.shutdown()
    thread.join()
    one.server.server_close()


def test_http_hooks_take_any_status(bench: Bench, recorder: Recorder) -> None:
    def ask(path: str) -> dict[str, Any]:
        return {"httpGet": {"host": "127.0.0.1", "port": recorder.port, "path": path}}

    bench.put("http-hooks", container={"lifecycle": {"postStart": ask("/start"), "preStop": ask("/stop")}})
    bench.ready("http-hooks")
    assert recorder.paths == ["/start"]
    bench.remove("http-hooks")
    assert recorder.paths == ["/start", "/stop"]
    reasons = {one["reason"] for one in bench.events("http-hooks")}
    assert not reasons & {"FailedPostStartHook", "FailedPreStopHook"}


def test_an_https_hook_falls_back_to_http_and_says_so(bench: Bench, recorder: Recorder) -> None:
    hook = {"httpGet": {"host": "127.0.0.1", "port": recorder.port, "path": "/plain", "scheme": "HTTPS"}}
    bench.put("https-hook", container={"lifecycle": {"preStop": hook}})
    bench.ready("https-hook")
    bench.remove("https-hook")
    assert "/plain" in recorder.paths
    assert bench.event("https-hook", "LifecycleHTTPFallback")


def test_an_http_hook_that_no_one_answers_fails(bench: Bench, recorder: Recorder) -> None:
    recorder.server.server_close()
    hook = {"httpGet": {"host": "127.0.0.1", "port": recorder.port, "path": "/"}}
    bench.put("http-dead", container={"lifecycle": {"postStart": hook}})
    assert bench.event("http-dead", "FailedPostStartHook")


def test_all_containers_of_a_pod_stop_at_once(bench: Bench, host: Path) -> None:
    """Each ends only after all were asked to end."""
    wait = "touch /v/asked-{0}; while [ $(ls /v | grep -c asked) -lt 3 ]; do sleep 0.05; done"
    names = [f"c{number}" for number in range(3)]
    spec = with_containers(
        *(
            one_container(one, on_term(wait.format(one) + f"; touch /v/met-{one}; exit 0"), **MOUNT)
            for one in names
        ),
        terminationGracePeriodSeconds=20,
        **at(host),
    )
    bench.put("parallel", spec=spec)
    bench.listening("parallel", *names)
    bench.remove("parallel")
    assert {path.name for path in host.glob("met-*")} == {f"met-{one}" for one in names}


def test_a_stopping_pod_reports_its_exit_codes_until_it_is_gone(bench: Bench, host: Path) -> None:
    quick = one_container("quick", on_term("exit 7"))
    slow = one_container("slow", on_term("while [ ! -e /v/go ]; do sleep 0.05; done; exit 8"), **MOUNT)
    spec = with_containers(quick, slow, terminationGracePeriodSeconds=50, **at(host))
    path = bench.put("exit-code", spec=spec)
    bench.listening("exit-code", "quick", "slow")
    path.unlink()
    pod = bench.until(
        "exit-code", lambda pod: (one := find_status(pod, "quick")) is not None and one.state.terminated
    )
    ended = status(pod, "quick").state.terminated
    assert ended is not None
    assert ended.exit_code == 7
    assert status(pod, "slow").state.running is not None
    assert pod.metadata.deletion_timestamp is not None
    assert pod.metadata.deletion_grace_period_seconds == 50
    (host / "go").touch()
    bench.agent.wait_gone("exit-code")


def test_volumes_and_cgroups_are_gone_when_the_pod_is(bench: Bench) -> None:
    bench.put(
        "clean",
        container={"volumeMounts": [{"name": "m", "mountPath": "/m"}]},
        spec={"volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}]},
    )
    uid = str(bench.ready("clean").metadata.uid)
    assert uid in Path("/proc/self/mountinfo").read_text()
    assert any(path.name == f"pod{uid}" for path in cgroups_below(bench.agent.cgroup_root))
    bench.remove("clean")
    assert uid not in Path("/proc/self/mountinfo").read_text()
    assert not any(path.name == f"pod{uid}" for path in cgroups_below(bench.agent.cgroup_root))
