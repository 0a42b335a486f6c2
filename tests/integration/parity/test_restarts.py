"""Restarts, back-off and the grace of ends (B1 to B4, T4, T8, ST6, ST7, ST9)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import pod_manifest, put_manifest
from tests.integration.support.bench import (
    Bench,
    condition,
    find_status,
    is_running,
    one_container,
    restarts,
    status,
    terminated,
    with_containers,
)


def counting(then: str) -> dict[str, Any]:
    """A container that knows in $n how often it was started."""
    script = f"echo x >> /v/runs; n=$(wc -l < /v/runs); {then}"
    return one_container("main", script, volumeMounts=[{"name": "v", "mountPath": "/v"}])


VOLUME = [{"name": "v", "emptyDir": {}}]


def test_a_crashing_container_waits_in_a_crash_loop_with_the_kubelets_words(bench: Bench) -> None:
    bench.put("crashing", image="crash", command=None)
    waiting = bench.waiting("crashing", "CrashLoopBackOff")
    uid = bench.pod("crashing").metadata.uid
    assert waiting.message == (
        f"back-off 10s restarting failed container=main pod=crashing-lab_default({uid})"
    )
    pod = bench.pod("crashing")
    assert pod.status.phase == "Running"
    assert condition(pod, "Ready").reason == "ContainersNotReady"
    assert (terminated(pod).exit_code, terminated(pod).reason) == (1, "Error")
    assert restarts(pod) == 1
    reported = bench.event("crashing", "BackOff")
    assert reported["type"] == "Warning"
    assert "Back-off restarting failed container" in reported["message"]
    assert "this container fails" in bench.logs("crashing", previous="true")


def test_the_back_off_counts_from_the_exit_and_doubles(bench: Bench) -> None:
    bench.put("doubling", image="crash", command=None)

    def waits(pod: Pod, seconds: int) -> bool:
        one = find_status(pod)
        waiting = one.state.waiting if one is not None else None
        return waiting is not None and (waiting.message or "").startswith(f"back-off {seconds}s restarting")

    first = terminated(bench.until("doubling", lambda pod: waits(pod, 10))).finished_at
    second = terminated(bench.until("doubling", lambda pod: waits(pod, 20))).started_at
    assert first is not None
    assert second is not None
    assert 9 <= (second - first).total_seconds() < 19


def test_never_with_an_error_fails_the_pod(bench: Bench) -> None:
    bench.put("never", "exit 3", spec={"restartPolicy": "Never"})
    pod = bench.ended("never")
    assert (pod.status.phase, restarts(pod)) == ("Failed", 0)
    ended = terminated(pod)
    assert (ended.exit_code, ended.reason) == (3, "Error")
    assert ended.started_at is not None
    assert ended.finished_at is not None
    assert (ended.container_id or "").startswith("containerd://")


def test_on_failure_restarts_only_what_failed(bench: Bench) -> None:
    bench.put(
        "on-failure",
        spec=with_containers(
            counting("[ $n -gt 1 ] || exit 5; exit 0"),
            one_container("good", "true"),
            volumes=VOLUME,
            restartPolicy="OnFailure",
        ),
    )
    pod = bench.ended("on-failure")
    assert (pod.status.phase, restarts(pod), restarts(pod, "good")) == ("Succeeded", 1, 0)
    assert condition(pod, "Ready").reason == "PodCompleted"
    before = status(pod).last_state.terminated
    assert before is not None
    assert before.exit_code == 5


def test_always_restarts_even_what_succeeded(bench: Bench) -> None:
    spec = with_containers(counting("[ $n -gt 1 ] && sleep 1000; exit 0"), volumes=VOLUME)
    bench.put("always", spec=spec)
    pod = bench.until("always", lambda pod: restarts(pod) == 1 and is_running(pod))
    before = status(pod).last_state.terminated
    assert before is not None
    assert (before.exit_code, before.reason) == (0, "Completed")


def test_the_cap_of_the_back_off_can_be_set(make_bench: Callable[..., Bench], tmp_path_factory: Any) -> None:
    config = tmp_path_factory.mktemp("config") / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\n"
        "kind: KubeletConfiguration\n"
        "crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n"
    )
    quick = make_bench(flags=(f"--config={config}",))
    quick.put("quick", "exit 1")
    quick.until("quick", lambda pod: restarts(pod) >= 4)
    assert (quick.waiting("quick", "CrashLoopBackOff").message or "").startswith("back-off 1s ")


def test_a_container_that_uses_too_much_memory_is_killed_and_says_so(bench: Bench) -> None:
    bench.put(
        "greedy",
        "tail /dev/zero",
        container={"resources": {"limits": {"memory": "16Mi"}}},
        spec={"restartPolicy": "Never"},
    )
    ended = terminated(bench.ended("greedy"))
    assert (ended.reason, ended.exit_code) == ("OOMKilled", 137)


def test_an_active_deadline_ends_the_pod_as_failed(bench: Bench) -> None:
    bench.put("deadline", spec={"activeDeadlineSeconds": 3, "terminationGracePeriodSeconds": 1})
    pod = bench.ended("deadline")
    assert (pod.status.phase, pod.status.reason) == ("Failed", "DeadlineExceeded")
    assert "active on the node longer" in (pod.status.message or "")
    assert not is_running(pod)


def test_a_container_that_ignores_the_signal_is_killed_after_the_grace(bench: Bench) -> None:
    script = "trap '' TERM; while :; do sleep 0.1; done"
    bench.put("deaf", script, spec={"terminationGracePeriodSeconds": 2})
    bench.ready("deaf")
    began = time.monotonic()
    bench.remove("deaf")
    assert time.monotonic() - began > 1.8, "the grace has not passed"
    assert bench.event("deaf", "Killing")["message"] == "Stopping container main"


def test_a_deletion_may_only_shorten_the_grace(bench: Bench, tmp_path: Any) -> None:
    manifest = pod_manifest(
        "applied-deaf",
        command=["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"],
        spec={"terminationGracePeriodSeconds": 600},
    )
    path = put_manifest(tmp_path, manifest)
    assert bench.agent.cli("apply", "-f", str(path)).returncode == 0
    bench.agent.wait_for("applied-deaf")
    assert bench.agent.cli("delete", "pod", "applied-deaf", "--no-wait").returncode == 0
    bench.until("applied-deaf", lambda pod: pod.metadata.deletion_timestamp is not None)
    assert bench.agent.cli("delete", "pod", "applied-deaf", "--grace-period=1").returncode == 0
    bench.agent.wait_gone("applied-deaf")


def test_termination_messages_are_cut_to_what_the_kubelet_keeps(bench: Bench) -> None:
    long = "head -c 10000 /dev/zero | tr '\\0' a"
    lines = "for i in $(seq 200); do echo line $i; done; exit 1"
    containers = [
        one_container("file", f"{long} > /dev/termination-log"),
        one_container("logs", lines, terminationMessagePolicy="FallbackToLogsOnError"),
        one_container("well", "echo fine", terminationMessagePolicy="FallbackToLogsOnError"),
        one_container("path", "echo here > /tmp/last", terminationMessagePath="/tmp/last"),
    ]
    bench.put("messages", spec=with_containers(*containers, restartPolicy="Never"))
    pod = bench.until(
        "messages",
        lambda pod: (
            pod.status.phase in {"Succeeded", "Failed"}
            and terminated(pod, "file").message
            and terminated(pod, "logs").message
        ),
    )
    assert terminated(pod, "file").message == "a" * 3072
    logs = terminated(pod, "logs").message or ""
    assert logs.startswith("line 121\n")
    assert logs.endswith("line 200\n")
    assert terminated(pod, "well").message is None
    assert terminated(pod, "path").message == "here\n"


def test_a_pod_keeps_its_final_phase_when_its_containers_go(bench: Bench) -> None:
    bench.put("for-good", "exit 3", spec={"restartPolicy": "Never"})
    pod = bench.ended("for-good")
    bench.agent.restart()
    again = bench.ended("for-good")
    assert again.status.phase == "Failed"
    assert terminated(again).exit_code == 3
    assert terminated(again).finished_at == terminated(pod).finished_at
