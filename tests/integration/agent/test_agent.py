"""One agent on two real containerds: pods start where they asked to, stop, and survive the agent's end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import (
    Lab,
    PrivateAgent,
    PrivateContainerd,
    bound_runtime,
    image_ref,
    is_ready,
    pod_manifest,
    put_manifest,
)


def _container_ids(pod: Pod) -> list[str]:
    return [one.container_id or "" for one in pod.status.container_statuses]


def _restarts(pod: Pod) -> int:
    return sum(one.restart_count for one in pod.status.container_statuses)


def test_pods_run_on_the_runtimes_that_they_name(agent: PrivateAgent, manifests: Path, lab: Lab) -> None:
    for runtime in lab.containerds:
        put_manifest(manifests, pod_manifest(f"on-{runtime}", runtime=runtime))
    for name, containerd in lab.containerds.items():
        pod = agent.wait_for(f"on-{name}")
        assert bound_runtime(pod) == name
        assert _container_ids(pod)[0].startswith("containerd://")
        with containerd.cri() as cri_calls:
            assert cri_calls.pods() == [f"on-{name}-lab"]


def test_a_pod_that_names_no_runtime_gets_the_first_listed(agent: PrivateAgent, manifests: Path) -> None:
    put_manifest(manifests, pod_manifest("plain"))
    assert bound_runtime(agent.wait_for("plain")) == "containerd-a"


def test_a_pod_that_names_an_unknown_runtime_waits(agent: PrivateAgent, manifests: Path) -> None:
    put_manifest(manifests, pod_manifest("lost", runtime="nowhere"))
    put_manifest(manifests, pod_manifest("found", runtime="containerd-b"))
    agent.wait_for("found")
    lost = agent.wait_for("lost", lambda pod: pod.status.phase == "Pending")
    assert bound_runtime(lost) == ""


def test_a_removed_manifest_removes_the_pod_and_all_that_it_used(
    agent: PrivateAgent, manifests: Path, lab: Lab, containerd_a: PrivateContainerd
) -> None:
    addresses = lab.network.list_addresses()
    path = put_manifest(
        manifests,
        pod_manifest(
            "brief",
            runtime="containerd-a",
            container={"volumeMounts": [{"name": "fast", "mountPath": "/fast"}]},
            spec={"volumes": [{"name": "fast", "emptyDir": {"medium": "Memory"}}]},
        ),
    )
    uid = agent.wait_for("brief").metadata.uid
    path.unlink()
    agent.wait_gone("brief")
    with containerd_a.cri() as cri_calls:
        assert cri_calls.sandboxes() == []
    assert lab.network.list_addresses() == addresses
    assert str(uid) not in Path("/proc/self/mountinfo").read_text()
    assert not (agent.root_dir / "pods" / str(uid)).exists()


def test_a_changed_manifest_replaces_the_pod(agent: PrivateAgent, manifests: Path) -> None:
    put_manifest(manifests, pod_manifest("changing", container={"env": [{"name": "V", "value": "1"}]}))
    first = agent.wait_for("changing")
    put_manifest(manifests, pod_manifest("changing", container={"env": [{"name": "V", "value": "2"}]}))
    second = agent.wait_for("changing", lambda pod: is_ready(pod) and pod.metadata.uid != first.metadata.uid)
    assert _container_ids(second) != _container_ids(first)


def test_a_restarted_agent_finds_its_pods_running(agent: PrivateAgent, manifests: Path, lab: Lab) -> None:
    for runtime in lab.containerds:
        put_manifest(manifests, pod_manifest(f"stays-{runtime}", runtime=runtime))
    before = {runtime: agent.wait_for(f"stays-{runtime}") for runtime in lab.containerds}
    agent.kill()
    agent.start()
    for runtime, old in before.items():
        new = agent.wait_for(f"stays-{runtime}")
        assert _container_ids(new) == _container_ids(old)
        assert _restarts(new) == 0
        assert bound_runtime(new) == runtime


def test_pods_that_another_made_are_never_listed_stopped_or_removed(
    make_agent: Callable[..., PrivateAgent], manifests: Path, containerd_a: PrivateContainerd
) -> None:
    with containerd_a.cri() as cri_calls:
        cri_calls.call("PullImage", image=cri.ImageSpec(image=image_ref("crash")))
        foreign = cri_calls.call(
            "RunPodSandbox",
            config=cri.PodSandboxConfig(
                metadata=cri.PodSandboxMetadata(name="foreign", uid="foreign-uid", namespace="default"),
                labels={
                    "io.kubernetes.pod.name": "foreign",
                    "io.kubernetes.pod.namespace": "default",
                    "io.kubernetes.pod.uid": "foreign-uid",
                },
                linux=cri.LinuxPodSandboxConfig(),
            ),
        )
        agent = make_agent()
        agent.start()
        put_manifest(manifests, pod_manifest("ours", runtime="containerd-a"))
        agent.wait_for("ours")
        assert [pod.metadata.name for pod in agent.pods()] == ["ours-lab"]
        status = cri_calls.call("PodSandboxStatus", pod_sandbox_id=foreign.pod_sandbox_id).status
        assert status.state == cri.SANDBOX_READY
        agent.restart()
        agent.wait_for("ours")
        status = cri_calls.call("PodSandboxStatus", pod_sandbox_id=foreign.pod_sandbox_id).status
        assert status.state == cri.SANDBOX_READY


def test_fifty_pods_over_both_runtimes_have_fifty_addresses_and_reach_each_other(
    agent: PrivateAgent, manifests: Path, lab: Lab
) -> None:
    names = [f"many-{number}" for number in range(50)]
    runtimes = list(lab.containerds)
    for number, name in enumerate(names):
        put_manifest(manifests, pod_manifest(name, runtime=runtimes[number % 2], image="web", command=None))
    pods = [agent.wait_for(name, timeout_seconds=90) for name in names]
    addresses = [pod.status.pod_ip for pod in pods]
    assert len(set(addresses)) == len(names)
    script = "; ".join(
        f"until wget -qO- http://{address}:8080/healthz; do usleep 50000; done" for address in addresses
    )
    for pod in pods[:2]:
        with lab[bound_runtime(pod)].cri() as cri_calls:
            container = cri_calls.containers(pod_uid=str(pod.metadata.uid))[0]
            answer = cri_calls.call(
                "ExecSync", container_id=container.id, cmd=["sh", "-c", script], timeout=60
            )
        assert answer.stdout.count(b"ok\n") == len(names)
