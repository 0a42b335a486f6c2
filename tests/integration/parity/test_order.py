"""Sync loop, sandboxes and the order of containers (W2, W3, W5, L1 to L7)."""

from __future__ import annotations

import re
from typing import Any

from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import bound_runtime, image_ref, pod_manifest, put_manifest
from kubeletx_testing.lab.pods import SLEEP
from tests.integration.support.bench import (
    Bench,
    condition,
    container_id,
    is_running,
    on_term,
    one_container,
    restarts,
    status,
    terminated,
    until,
    with_containers,
)


def times(bench: Bench, name: str) -> dict[str, tuple[int, int, int]]:
    """Container to (created, started, finished) in nanoseconds, of its newest run."""
    found = {}
    pod = bench.pod(name)
    with bench.agent.lab[bound_runtime(pod)].cri() as calls:
        for unit in calls.containers(pod_uid=str(pod.metadata.uid)):
            one = calls.call("ContainerStatus", container_id=unit.id).status
            found[one.metadata.name] = (one.created_at, one.started_at, one.finished_at)
    return found


def test_init_containers_run_one_after_the_other_before_the_rest(bench: Bench) -> None:
    spec = with_containers(
        one_container("a"),
        one_container("b"),
        initContainers=[one_container(f"init-{n}", f"sleep 0.2; echo {n}") for n in range(3)],
    )
    bench.put("ordered", spec=spec)
    pod = bench.ready("ordered")
    assert [status(pod, f"init-{n}").ready for n in range(3)] == [True] * 3
    assert terminated(pod, "init-0").reason == "Completed"
    seen = times(bench, "ordered")
    assert seen["init-0"][2] <= seen["init-1"][0]
    assert seen["init-1"][2] <= seen["init-2"][0]
    assert seen["init-2"][2] <= min(seen["a"][0], seen["b"][0])


def test_regular_containers_start_in_one_pass_without_waiting_for_readiness(bench: Bench) -> None:
    never = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    bench.put("eager", spec=with_containers(one_container("a", readinessProbe=never), one_container("b")))
    pod = bench.until("eager", lambda pod: is_running(pod, "a") and is_running(pod, "b"))
    assert not status(pod, "a").ready


def test_a_post_start_hook_holds_back_the_containers_after_it(bench: Bench) -> None:
    hook = {"exec": {"command": ["sh", "-c", "sleep 1.5"]}}
    spec = with_containers(
        one_container("before"), one_container("proxy", lifecycle={"postStart": hook}), one_container("after")
    )
    bench.put("held", spec=spec)
    bench.ready("held")
    seen = times(bench, "held")
    assert seen["after"][0] - seen["proxy"][1] > 1_500_000_000
    assert seen["before"][0] < seen["after"][0] - 1_500_000_000


def test_a_container_that_is_gone_without_a_trace_keeps_counting(bench: Bench) -> None:
    bench.put("counting", "echo run; sleep 1000")
    before = bench.ready("counting")
    until(lambda: bench.logs("counting") == "run\n", "a line")
    bench.agent.kill()
    for path in bench.agent.root_dir.glob("kubeletx.db*"):
        path.unlink()
    with bench.agent.lab[bound_runtime(before)].cri() as calls:
        calls.call("RemoveContainer", container_id=container_id(before))
    bench.agent.start()
    after = bench.until("counting", is_running)
    assert restarts(after) == 1
    assert bench.units("counting")[-1].metadata.attempt == 1


def test_a_failing_init_container_with_never_fails_the_pod(bench: Bench) -> None:
    spec = {"restartPolicy": "Never", "initContainers": [one_container("first", "exit 4")]}
    bench.put("init-never", "true", spec=spec)
    pod = bench.ended("init-never")
    assert pod.status.phase == "Failed"
    assert terminated(pod, "first").exit_code == 4
    assert condition(pod, "Initialized").status == "False"
    assert [unit.metadata.name for unit in bench.units("init-never")] == ["first"]


def test_a_failing_init_container_is_tried_again_with_back_off(bench: Bench) -> None:
    bench.put("init-retry", "true", spec={"initContainers": [one_container("first", "exit 4")]})
    waiting = bench.waiting("init-retry", "CrashLoopBackOff", of="first")
    assert "back-off 10s restarting failed container=first" in (waiting.message or "")
    pod = bench.pod("init-retry")
    assert pod.status.phase == "Pending"
    assert status(pod).state.waiting is not None
    assert status(pod).state.waiting.reason == "PodInitializing"  # type: ignore[union-attr]
    assert condition(pod, "Initialized").status == "False"


def test_a_finished_init_set_is_not_run_again_when_the_main_container_restarts(bench: Bench) -> None:
    marks = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    spec = {
        "initContainers": [one_container("first", "echo x >> /v/inits", **marks)],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    script = "echo x >> /v/runs; [ $(wc -l < /v/runs) -gt 1 ] && sleep 1000; exit 1"
    bench.put("once", script, container=marks, spec=spec)
    bench.until("once", lambda pod: restarts(pod) == 1 and is_running(pod))
    until(
        lambda: bench.exec("once", "cat /v/inits; echo; cat /v/runs").split() == ["x"] * 3,
        "one run of init and two of main",
    )
    assert len(bench.sandboxes("once")) == 1


def sidecar(name: str, script: str | None = None, **more: Any) -> dict[str, Any]:
    return one_container(name, script, restartPolicy="Always", **more)


def test_a_sidecar_starts_in_order_and_the_next_waits_for_its_startup_probe(bench: Bench) -> None:
    probe = {"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1, "failureThreshold": 30}
    spec = with_containers(
        one_container("main"),
        initContainers=[
            sidecar("slow", "sleep 2; touch /tmp/up; sleep 1000", startupProbe=probe),
            one_container("second", "true"),
        ],
    )
    bench.put("sidecars", spec=spec)
    pod = bench.ready("sidecars")
    assert status(pod, "slow").started
    assert status(pod, "slow").ready
    seen = times(bench, "sidecars")
    assert seen["second"][0] - seen["slow"][0] > 2_000_000_000
    assert seen["main"][0] >= seen["second"][2]


def test_a_sidecar_restarts_always_and_does_not_keep_the_pod_from_ending(bench: Bench) -> None:
    script = "[ -e /v/once ] && touch /v/again && exec sleep 1000; touch /v/once; exit 0"
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    spec = with_containers(
        one_container("main", "until [ -e /v/again ]; do sleep 0.1; done", **mount),
        initContainers=[sidecar("helper", script, **mount)],
        volumes=[{"name": "v", "emptyDir": {}}],
        restartPolicy="Never",
    )
    bench.put("helped", spec=spec)
    pod = bench.ended("helped")
    assert pod.status.phase == "Succeeded"
    assert status(pod, "helper").restart_count == 1
    assert status(pod, "helper").state.terminated is not None


def test_sidecars_stop_after_the_rest_in_reverse_order(bench: Bench) -> None:
    def trap(name: str) -> str:
        return on_term(f"cut -d' ' -f1 /proc/uptime > /v/{name}; exit 0")

    def slow(name: str) -> str:
        return on_term(f"sleep 0.4; cut -d' ' -f1 /proc/uptime > /v/{name}; exit 0")

    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    host = bench.manifests.parent / "order"
    host.mkdir()
    spec = with_containers(
        one_container("main", slow("main"), **mount),
        initContainers=[sidecar("one", trap("one"), **mount), sidecar("two", slow("two"), **mount)],
        volumes=[{"name": "v", "hostPath": {"path": str(host)}}],
        terminationGracePeriodSeconds=10,
    )
    bench.put("reverse", spec=spec)
    bench.listening("reverse", "main", "one", "two")
    bench.remove("reverse")
    ended = sorted(path.name for path in host.iterdir())
    assert ended == ["main", "one", "two"]
    assert sorted(ended, key=lambda name: float((host / name).read_text())) == ["main", "two", "one"]


def test_a_new_sandbox_is_made_when_the_old_one_stops_and_init_runs_again(bench: Bench) -> None:
    spec = {
        "initContainers": [
            one_container(
                "first",
                'cut -d" " -f1 /proc/uptime > /v/init',
                volumeMounts=[{"name": "v", "mountPath": "/v"}],
            )
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    }
    bench.put("resandboxed", container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, spec=spec)
    before = bench.ready("resandboxed")
    mark = bench.exec("resandboxed", "cat /v/init")
    old = bench.sandboxes("resandboxed")[-1].id
    with bench.agent.lab[bound_runtime(before)].cri() as calls:
        calls.call("StopPodSandbox", pod_sandbox_id=old)
    after = bench.until(
        "resandboxed",
        lambda pod: (
            is_running(pod)
            and container_id(pod) != container_id(before)
            and condition(pod, "Ready").status == "True"
        ),
    )
    newest = bench.sandboxes("resandboxed")[-1]
    assert newest.id != old
    assert newest.metadata.attempt == 1
    assert bench.exec("resandboxed", "cat /v/init") != mark
    assert after.status.pod_ip
    assert bench.event("resandboxed", "SandboxChanged")["message"]


def test_a_changed_image_of_an_applied_pod_restarts_that_container_alone(bench: Bench, tmp_path: Any) -> None:
    manifest = pod_manifest("reimaged", spec=with_containers(one_container("a"), one_container("b")))
    path = put_manifest(tmp_path, manifest)
    assert bench.agent.cli("apply", "-f", str(path)).returncode == 0
    before = bench.agent.wait_for("reimaged")
    manifest["spec"]["containers"][0]["image"] = image_ref("web")
    manifest["spec"]["containers"][0]["command"] = list(SLEEP)
    put_manifest(tmp_path, manifest)
    done = bench.agent.cli("apply", "-f", str(path))
    assert done.returncode == 0, done.stderr
    after = bench.until(
        "reimaged",
        lambda pod: is_running(pod, "a") and container_id(pod, "a") != container_id(before, "a"),
    )
    assert status(after, "a").restart_count == 1
    assert container_id(after, "b") == container_id(before, "b")
    assert after.metadata.uid == before.metadata.uid
    bench.agent.cli("delete", "pod", "reimaged", "--grace-period=1")


def test_container_restart_rules_decide_by_exit_code(bench: Bench) -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    script = "echo x >> /v/$0; [ $(wc -l < /v/$0) -gt 1 ] && exit 7; exit 42"
    command = {"command": ["sh", "-c", script, "runs"]}
    bench.put(
        "ruled",
        container={"restartPolicy": "Never", "restartPolicyRules": rules, **command, **mount},
        spec={"restartPolicy": "Never", "volumes": [{"name": "v", "emptyDir": {}}]},
    )
    pod = bench.ended("ruled")
    assert (pod.status.phase, terminated(pod).exit_code, status(pod).restart_count) == ("Failed", 7, 1)


def test_a_rule_may_restart_all_containers_of_the_pod(bench: Bench) -> None:
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    first = one_container("first", "echo x >> /v/runs", **mount)
    script = "[ $(wc -l < /v/runs) -gt 1 ] && exec sleep 1000; exit 88"
    main = one_container("main", script, restartPolicy="Never", restartPolicyRules=rules, **mount)
    bench.put(
        "anew",
        spec={
            **with_containers(main, one_container("beside", "exec sleep 1000")),
            "initContainers": [first],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    )
    pod = bench.until(
        "anew", lambda pod: all(is_running(pod, c) and restarts(pod, c) == 1 for c in ("main", "beside"))
    )
    assert pod.status.init_container_statuses[0].restart_count == 1
    assert len(bench.sandboxes("anew")) == 1
    conditions = {one.type: one.status for one in pod.status.conditions}
    assert conditions["AllContainersRestarting"] == "False"
    ended = status(pod, "beside").last_state.terminated
    assert (ended.exit_code, ended.reason) == (137, "RestartingAllContainers")


def test_a_pod_of_the_same_name_waits_until_the_old_one_has_ended(bench: Bench) -> None:
    port = {"ports": [{"containerPort": 8080, "hostPort": 28081}]}
    stubborn = on_term("sleep 1; exit 0")
    path = bench.put("same", stubborn, container=port, spec={"terminationGracePeriodSeconds": 10})
    first = bench.listening("same")
    bench.put("same", container=port)
    second = bench.until("same", lambda pod: pod.metadata.uid != first.metadata.uid and is_running(pod))
    with bench.agent.lab[bound_runtime(second)].cri() as calls:
        boxes = [box for box in calls.sandboxes() if box.metadata.name == "same-lab"]
        assert [box.metadata.uid for box in boxes] == [second.metadata.uid]
    assert path.exists()


def test_a_pod_in_the_runtime_that_no_source_has_is_stopped(bench: Bench) -> None:
    path = bench.put("orphan")
    pod = bench.ready("orphan")
    bench.agent.kill()
    path.unlink()
    bench.agent.start()
    bench.agent.wait_gone("orphan")
    with bench.agent.lab[bound_runtime(pod)].cri() as calls:
        assert [box for box in calls.sandboxes() if box.metadata.uid == pod.metadata.uid] == []
    assert not (bench.agent.root_dir / "pods" / str(pod.metadata.uid)).exists()


def test_logs_lie_where_the_kubelet_puts_them_with_their_link(bench: Bench) -> None:
    bench.put("linked", "echo hello; sleep 1000")
    pod = bench.ready("linked")
    directory = bench.agent.logs_dir / f"default_linked-lab_{pod.metadata.uid}" / "main"
    until(lambda: (directory / "0.log").stat().st_size, "a first line")
    line = (directory / "0.log").read_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d) stdout F hello\n", line)


def test_labels_and_annotations_let_a_new_agent_find_everything(bench: Bench) -> None:
    bench.put("labelled", spec={"terminationGracePeriodSeconds": 7})
    pod = bench.ready("labelled")
    unit = bench.units("labelled")[-1]
    assert unit.labels["io.kubernetes.pod.name"] == "labelled-lab"
    assert unit.labels["io.kubernetes.pod.namespace"] == "default"
    assert unit.labels["io.kubernetes.pod.uid"] == pod.metadata.uid
    assert unit.labels["io.kubernetes.container.name"] == "main"
    notes = unit.annotations
    assert notes["io.kubernetes.container.hash"]
    assert notes["io.kubernetes.container.restartCount"] == "0"
    assert notes["io.kubernetes.container.terminationMessagePath"] == "/dev/termination-log"
    assert notes["io.kubernetes.container.terminationMessagePolicy"] == "File"
    assert notes["io.kubernetes.pod.terminationGracePeriod"] == "7"
    assert bench.sandboxes("labelled")[-1].state == cri.SANDBOX_READY


def test_host_network_pods_get_the_nodes_address(bench: Bench) -> None:
    bench.put("host-net", spec={"hostNetwork": True})
    pod: Pod = bench.ready("host-net")
    assert pod.status.pod_ip == pod.status.host_ip
    inside = bench.exec("host-net", "ls /sys/class/net").split()
    assert bench.agent.lab.network.bridge in inside
