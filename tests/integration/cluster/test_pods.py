"""Pods that the API server binds to this node: they run, their status is told, and they leave nothing behind.

Each test runs against the double and, where its binaries are, against a real kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kubeletx.kube.text.quantity import to_millicores
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx_testing.lab import Lab, PrivateAgent
from tests.integration.support.clusters import (
    KUBECTL,
    ClusterNode,
    condition,
    main_status,
)
from tests.integration.support.survival import holds, until

MakeAgent = Callable[..., PrivateAgent]


def test_the_node_says_what_it_is(node: ClusterNode, lab: Lab) -> None:
    found = node.wait_ready()
    assert found["metadata"]["labels"]["kubernetes.io/hostname"] == node.name
    for name in lab.containerds:
        assert found["metadata"]["labels"][f"runtime.kubeletx.io/{name}"] == "ready"
        assert found["metadata"]["annotations"][f"version.kubeletx.io/{name}"].startswith("containerd 1.")
        assert found["metadata"]["annotations"][f"workload-type.kubeletx.io/{name}"] == "container"
        assert condition(found, f"kubeletx.io/RuntimeReady-{name}")["status"] == "True"
    assert condition(found, "RuntimesReady")["status"] == "True"
    assert found["status"]["conditions"][-1]["type"] == "Ready"
    assert {"cpu", "memory", "pods", "ephemeral-storage"} <= found["status"]["capacity"].keys()
    assert {one["type"] for one in found["status"]["addresses"]} >= {"Hostname", "InternalIP"}
    until(lambda: {"Starting", "NodeReady"} <= set(node.events(node.name)), "events of the agent's own start")
    lease = node.admin.get("leases", node.name, namespace="kube-node-lease")
    assert lease["spec"]["holderIdentity"] == node.name
    assert [one["name"] for one in lease["metadata"]["ownerReferences"]] == [node.name]


def test_events_say_that_the_node_is_limited_cordoned_and_uncordoned(node: ClusterNode) -> None:
    node.wait_ready()
    for value, reason in ((True, "NodeNotSchedulable"), (None, "NodeSchedulable")):
        node.admin.patch("nodes", node.name, {"spec": {"unschedulable": value}})
        until(lambda: reason in node.events(node.name), reason)  # noqa: B023 - called in this round only
    assert "NodeAllocatableEnforced" in node.events(node.name)


def test_a_bound_pod_runs_is_reported_and_leaves_nothing(node: ClusterNode, lab: Lab) -> None:
    taken = lab.network.list_addresses()
    node.apply("web")
    pod = node.wait_running("web")
    assert main_status(pod)["containerID"].startswith("containerd://")
    assert pod["status"]["podIP"] in lab.network.list_addresses()
    assert pod["metadata"]["annotations"]["kubeletx.io/bound-runtime"] == "containerd-a"
    until(lambda: {"RuntimeBound", "Created", "Started"} <= set(node.events("web")), "events of the start")
    node.admin.delete("pods", "web", namespace="default")
    node.wait_gone("web")
    assert lab.network.list_addresses() == taken


def test_pods_are_placed_by_labels_that_only_the_cluster_knows(node: ClusterNode) -> None:
    node.apply("by-runtime", nodeSelector={"runtime.kubeletx.io/containerd-b": "ready"})
    node.admin.patch("nodes", node.name, {"metadata": {"labels": {"disk": "fast"}}}, kind=KUBECTL)
    node.apply("by-user", nodeSelector={"disk": "fast"})
    node.wait_running("by-runtime")
    node.wait_running("by-user")
    node.apply("elsewhere", nodeSelector={"disk": "slow"})
    pod = node.wait("elsewhere", lambda one: one["status"].get("phase") == "Failed", "rejected")
    assert pod["status"]["reason"] == "NodeAffinity"


def test_a_pod_runs_to_its_end_and_stays_until_someone_deletes_it(node: ClusterNode) -> None:
    node.apply("job", container={"command": ["sh", "-c", "exit 3"]}, restartPolicy="Never")
    pod = node.wait("job", lambda one: one["status"].get("phase") == "Failed", "Failed")
    assert main_status(pod)["state"]["terminated"]["exitCode"] == 3
    node.agent.restart()
    node.wait_ready()
    assert node.find("job") == pod or main_status(node.find("job") or {}) == main_status(pod)
    node.admin.delete("pods", "job", namespace="default")
    node.wait_gone("job")


def test_what_happens_while_the_agent_is_dead_is_made_up_for(node: ClusterNode) -> None:
    for name in ("stays", "deleted", "forced", "other"):
        node.apply(name)
    before = {name: node.wait_running(name) for name in ("stays", "deleted", "forced", "other")}
    node.agent.kill()
    node.admin.delete("pods", "deleted", namespace="default")
    node.admin.delete("pods", "forced", namespace="default", gracePeriodSeconds=0)
    node.apply("new")
    node.agent.start()
    node.wait_running("new")
    node.wait_gone("deleted")
    node.wait_gone("forced")
    for name in ("stays", "other"):
        assert main_status(node.wait_running(name)) == main_status(before[name])


def test_what_others_say_of_a_pod_is_kept_and_heard(node: ClusterNode) -> None:
    node.apply("gated", readinessGates=[{"conditionType": "example.com/gate"}])
    pod = node.wait(
        "gated", lambda one: condition(one, "ContainersReady").get("status") == "True", "containers"
    )
    assert condition(pod, "Ready")["reason"] == "ReadinessGatesNotReady"
    for status in ("True", "False", "True"):
        reported = {"status": {"conditions": [{"type": "example.com/gate", "status": status}]}}
        node.admin.patch(
            "pods", "gated", reported, namespace="default", subresource="status",
            kind="application/strategic-merge-patch+json",
        )  # fmt: skip
        node.wait(
            "gated",
            lambda one, status=status: condition(one, "Ready").get("status") == status,
            f"Ready {status} with its gate",
        )
        assert condition(node.find("gated") or {}, "example.com/gate")["status"] == status


def test_a_container_is_resized_where_it_runs(node: ClusterNode) -> None:
    small = {"limits": {"cpu": "200m", "memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}}
    large = {"limits": {"cpu": "400m", "memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}}
    node.apply("sized", container={"resources": small})
    before = main_status(node.wait_running("sized"))
    assert before["resources"] == small
    node.admin.patch(
        "pods", "sized", {"spec": {"containers": [{"name": "main", "resources": large}]}},
        namespace="default", subresource="resize", kind="application/strategic-merge-patch+json",
    )  # fmt: skip
    pod = node.wait("sized", lambda one: main_status(one)["resources"] == large, "the new size")
    assert main_status(pod)["containerID"] == before["containerID"]
    assert pod["status"]["allocatedResources"] == large["requests"]
    until(lambda: "ResizeCompleted" in node.events("sized"), "the event of the resize")


def test_a_pod_is_resized_as_a_whole_where_it_runs(node: ClusterNode) -> None:
    small = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
    large = {"requests": {"cpu": "150m", "memory": "32Mi"}, "limits": {"cpu": "400m", "memory": "128Mi"}}
    node.apply("whole", resources=small)
    before = node.wait_running("whole")
    assert (before["status"]["resources"], before["status"]["qosClass"]) == (small, "Burstable")
    uid = before["metadata"]["uid"]
    assert kernel_memory(node, uid) == {64 << 20}
    node.admin.patch(
        "pods", "whole", {"spec": {"resources": large}},
        namespace="default", subresource="resize", kind=KUBECTL,
    )  # fmt: skip
    pod = node.wait("whole", lambda one: one["status"].get("resources") == large, "the new size")
    assert pod["status"]["allocatedResources"] == large["requests"]
    assert kernel_memory(node, uid) == {128 << 20}
    assert main_status(pod)["containerID"] == main_status(before)["containerID"]
    until(lambda: "ResizeCompleted" in node.events("whole"), "the event of the resize")


def kernel_memory(node: ClusterNode, uid: str) -> set[int]:
    """The limits that the kernel has for the pod and its container."""
    container = main_status(node.find("whole") or {})["containerID"].rpartition("/")[2]
    is_v2 = CgroupTrees().version == 2
    top = Path("/sys/fs/cgroup") if is_v2 else Path("/sys/fs/cgroup/memory")
    pod = top / node.agent.cgroup_root / f"kubepods/burstable/pod{uid}"
    name = "memory.max" if is_v2 else "memory.limit_in_bytes"
    return {int((directory / name).read_text()) for directory in (pod, pod / container)}


def test_a_critical_pod_ends_a_lower_one_and_takes_its_room(node: ClusterNode) -> None:
    cpu = (node.node() or {})["status"]["allocatable"]["cpu"]
    most = {"resources": {"requests": {"cpu": f"{to_millicores(cpu) * 6 // 10}m"}}}
    node.apply("lower", container=most)
    node.apply("small")
    node.wait_running("lower")
    small = node.wait_running("small")
    node.apply("critical", container=most, priorityClassName="system-node-critical")
    node.wait_running("critical")
    ended = node.wait("lower", lambda one: one["status"]["phase"] == "Failed", "Failed")
    assert ended["status"]["reason"] == "Preempting"
    assert ended["status"]["message"] == "Preempted in order to admit critical pod"
    target = condition(ended, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "TerminationByKubelet")
    until(lambda: "Preempting" in node.events("lower"), "the event of the pod that made way")
    assert main_status(node.wait_running("small")) == main_status(small)


def test_a_debug_container_joins_a_running_pod(node: ClusterNode) -> None:
    node.apply("debugged")
    node.wait_running("debugged")
    image = (node.find("debugged") or {})["spec"]["containers"][0]["image"]
    debugger = {
        "name": "debugger",
        "image": image,
        "command": ["sleep", "1000"],
        "targetContainerName": "main",
    }
    node.admin.patch(
        "pods", "debugged", {"spec": {"ephemeralContainers": [debugger]}},
        namespace="default", subresource="ephemeralcontainers", kind="application/strategic-merge-patch+json",
    )  # fmt: skip
    node.wait(
        "debugged",
        lambda one: any("running" in c["state"] for c in one["status"].get("ephemeralContainerStatuses", [])),
        "a running debug container",
    )


def test_a_node_that_was_deleted_registers_again_at_the_next_start(node: ClusterNode) -> None:
    before = node.wait_ready()["metadata"]["uid"]
    node.admin.delete("nodes", node.name)
    until(lambda: "Node was deleted" in node.agent.log_tail(), "the line of the log")
    assert node.node() is None
    node.agent.restart()
    until(lambda: (node.node() or {"metadata": {"uid": before}})["metadata"]["uid"] != before, "a new Node")
    node.wait_ready()


def test_an_api_server_that_is_away_disturbs_nothing_and_gets_all_later(node: ClusterNode) -> None:
    node.apply("lasting")
    node.apply(
        "restarts", container={"command": ["sh", "-c", "test -e /x && exec sleep 10000; sleep 6; exit 1"]}
    )
    before = node.wait_running("lasting")
    node.wait_running("restarts")
    node.api.stop()
    node.agent.wait_for("restarts", lambda pod: pod.status.container_statuses[0].restart_count >= 1)
    holds(lambda: node.agent.pod("lasting") is not None, "the pod runs without its API server", seconds=1)
    node.api.start()
    node.wait("restarts", lambda one: main_status(one)["restartCount"] >= 1, "the restart is told")
    assert main_status(node.wait_running("lasting")) == main_status(before)
    node.apply("after")
    node.wait_running("after")
