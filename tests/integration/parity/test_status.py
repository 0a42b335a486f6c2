"""Status of pods and containers (ST1 to ST10): phases, conditions, reasons, ids, addresses."""

from __future__ import annotations

import re

from kubeletx_testing.lab import bound_runtime
from tests.integration.support.bench import (
    Bench,
    condition,
    container_id,
    find_status,
    is_running,
    one_container,
    restarts,
    status,
    terminated,
    with_containers,
)


def test_a_running_pod_has_all_conditions_ids_and_addresses(bench: Bench) -> None:
    bench.put("whole", container={"resources": {"requests": {"cpu": "10m"}}})
    pod = bench.ready("whole")
    found = {one.type: one.status for one in pod.status.conditions}
    assert found == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    assert all(one.last_transition_time is not None for one in pod.status.conditions)
    one = status(pod)
    assert re.fullmatch(r"containerd://[0-9a-f]{64}", one.container_id or "")
    assert one.image == "registry.local/busybox:1"
    assert re.fullmatch(r"(registry\.local/busybox@)?sha256:[0-9a-f]{64}", one.image_id)
    assert (one.ready, one.started, one.restart_count) == (True, True, 0)
    assert one.allocated_resources == {"cpu": "10m"}
    assert pod.status.qos_class == "Burstable"
    assert pod.status.start_time is not None
    address = pod.status.pod_ip or ""
    assert [ip.ip for ip in pod.status.pod_ips] == [address]
    assert address in bench.exec("whole", "ip addr show eth0")
    assert pod.status.host_ip
    assert pod.status.host_ips[0].ip == pod.status.host_ip


def test_the_first_status_waits_with_the_kubelets_words(bench: Bench) -> None:
    slow = one_container("first", "while [ ! -e /v/go ]; do sleep 0.1; done")
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    bench.put(
        "initial",
        container=mount,
        spec={"initContainers": [{**slow, **mount}], "volumes": [{"name": "v", "emptyDir": {}}]},
    )
    pod = bench.until("initial", lambda pod: is_running(pod, "first"))
    assert pod.status.phase == "Pending"
    waiting = status(pod).state.waiting
    assert waiting is not None
    assert waiting.reason == "PodInitializing"
    assert (condition(pod, "Initialized").status, condition(pod, "Initialized").reason) == (
        "False",
        "ContainersNotInitialized",
    )
    assert condition(pod, "ContainersReady").reason == "ContainersNotReady"
    assert condition(pod, "ContainersReady").message == "containers with unready status: [main]"
    bench.exec("initial", "touch /v/go", "first")
    pod = bench.ready("initial")
    assert condition(pod, "Initialized").status == "True"


def test_all_with_exit_code_zero_is_succeeded_and_one_error_is_failed(bench: Bench) -> None:
    for name, code in (("all-good", 0), ("one-bad", 1)):
        spec = with_containers(
            one_container("a", "true"), one_container("b", f"sleep 0.3; exit {code}"), restartPolicy="Never"
        )
        bench.put(name, spec=spec)
    good, bad = bench.ended("all-good"), bench.ended("one-bad")
    assert good.status.phase == "Succeeded"
    assert {condition(good, kind).reason for kind in ("Ready", "ContainersReady")} == {"PodCompleted"}
    assert condition(good, "Initialized").reason == "PodCompleted"
    assert bad.status.phase == "Failed"
    assert condition(bad, "Ready").reason == "PodFailed"


def test_a_readiness_gate_without_a_condition_keeps_the_pod_unready(bench: Bench) -> None:
    bench.put("gated", spec={"readinessGates": [{"conditionType": "example.com/ok"}]})
    pod = bench.until(
        "gated", lambda pod: is_running(pod) and condition(pod, "ContainersReady").status == "True"
    )
    ready = condition(pod, "Ready")
    assert (ready.status, ready.reason) == ("False", "ReadinessGatesNotReady")
    assert "example.com/ok" in (ready.message or "")


def test_images_that_cannot_be_had_say_why(bench: Bench) -> None:
    bench.put("no-image", container={"image": "registry.local/none:1"})
    bench.put("bad-name", container={"image": "registry.local/UPPER:bad"})
    bench.put("never-there", container={"image": "registry.local/not-here:1", "imagePullPolicy": "Never"})
    bench.put("no-registry", container={"image": "127.0.0.1:1/none:1"})
    first = bench.until(
        "no-image",
        lambda pod: (
            (one := find_status(pod))
            and one.state.waiting
            and one.state.waiting.reason in {"ErrImagePull", "ImagePullBackOff"}
        ),
    )
    assert first.status.phase == "Pending"
    back_off = bench.waiting("no-image", "ImagePullBackOff")
    assert 'Back-off pulling image "registry.local/none:1"' in (back_off.message or "")
    failed = bench.event("no-image", "Failed", "Failed to pull image")
    assert 'Failed to pull image "registry.local/none:1"' in failed["message"]
    assert bench.event("no-image", "Failed", "Error: ErrImagePull")
    assert bench.event("no-image", "BackOff")["type"] == "Normal"
    assert bench.event("no-image", "Failed", "Error: ImagePullBackOff")
    bad = bench.waiting("bad-name", "InvalidImageName")
    assert "registry.local/UPPER:bad" in (bad.message or "")
    never = bench.waiting("never-there", "ErrImageNeverPull")
    assert 'Container image "registry.local/not-here:1" is not present' in (never.message or "")
    assert bench.event("never-there", "ErrImageNeverPull")["type"] == "Warning"
    bench.waiting("no-registry", "ImagePullBackOff")


def test_a_container_that_cannot_be_configured_or_started_says_why(bench: Bench) -> None:
    bench.put("bad-command", container={"command": ["/no/such/program"]})
    bench.put("bad-user", container={"securityContext": {"runAsUser": 0, "runAsNonRoot": True}})
    bench.put(
        "named-user", image="named-user", command=None, container={"securityContext": {"runAsNonRoot": True}}
    )
    one = bench.waiting("bad-user", "CreateContainerConfigError")
    assert "container's runAsUser breaks non-root policy" in (one.message or "")
    named = bench.waiting("named-user", "CreateContainerConfigError")
    assert "non-numeric user (web)" in (named.message or "")
    pod = bench.until(
        "bad-command",
        lambda pod: (
            (one := find_status(pod))
            and one.state.waiting
            and one.state.waiting.reason in {"RunContainerError", "CrashLoopBackOff"}
        ),
    )
    waiting = bench.waiting("bad-command", "CrashLoopBackOff")
    assert waiting.message
    pod = bench.pod("bad-command")
    assert pod.status.phase in {"Running", "Pending"}
    ended = terminated(pod)
    assert (ended.reason, ended.exit_code) == ("StartError", 128)
    assert "/no/such/program" in (ended.message or "")
    assert bench.event("bad-command", "Failed", "/no/such/program")["type"] == "Warning"


def test_a_fixed_manifest_is_enough_to_leave_an_error(bench: Bench) -> None:
    bench.put("fixed", container={"image": "registry.local/none:1"})
    bench.waiting("fixed", "ImagePullBackOff")
    bench.put("fixed")
    bench.ready("fixed")


def test_a_container_that_the_runtime_forgot_counts_as_ended_with_137(bench: Bench) -> None:
    bench.put("forgotten", spec={"restartPolicy": "Never"})
    pod = bench.ready("forgotten")
    bench.agent.stop()  # in order: what it saw of the container is on disk then
    with bench.agent.lab[bound_runtime(pod)].cri() as calls:
        calls.call("RemoveContainer", container_id=container_id(pod))
    bench.agent.start()
    after = bench.ended("forgotten")
    ended = terminated(after)
    assert after.status.phase == "Failed"
    assert (ended.reason, ended.exit_code) == ("ContainerStatusUnknown", 137)


def test_a_killed_container_restarts_and_keeps_its_history(bench: Bench) -> None:
    bench.put("killed")
    before = bench.ready("killed")
    with bench.agent.lab[bound_runtime(before)].cri() as calls:
        calls.call("StopContainer", container_id=container_id(before), timeout=0)
    pod = bench.until("killed", lambda pod: restarts(pod) == 1 and is_running(pod))
    ended = status(pod).last_state.terminated
    assert ended is not None
    assert ended.exit_code == 137
    assert ended.container_id == status(before).container_id
    assert status(pod).container_id != status(before).container_id


def test_the_runtimes_own_name_stands_before_the_id_on_every_runtime(bench: Bench) -> None:
    for runtime in bench.agent.lab.containerds:
        bench.put(f"id-{runtime}", runtime=runtime)
    for runtime in bench.agent.lab.containerds:
        pod = bench.ready(f"id-{runtime}")
        assert (status(pod).container_id or "").startswith("containerd://")
        assert pod.metadata.annotations["kubeletx.io/bound-runtime"] == runtime
