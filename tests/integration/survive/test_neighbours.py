"""Others on the same containerd: their pods are never ours, never stopped, their images never collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx_testing.lab import (
    CriCalls,
    Lab,
    PrivateAgent,
    PrivateContainerd,
    image_ref,
    pod_manifest,
    put_manifest,
)
from kubeletx_testing.lab.pods import SLEEP
from tests.integration.support.survival import agent_id, events, life, until

MakeAgent = Callable[..., PrivateAgent]


def stock_pod(calls: CriCalls, name: str, image: str) -> tuple[str, str]:
    """A pod as a stock kubelet makes it: its labels, without any of ours; sandbox and container id."""
    labels = {
        "io.kubernetes.pod.name": name,
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": f"uid-{name}",
    }
    sandbox = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name=name, uid=f"uid-{name}", namespace="default"),
        labels=labels,
        linux=cri.LinuxPodSandboxConfig(),
    )
    calls.call("PullImage", image=cri.ImageSpec(image=image))
    sandbox_id = calls.call("RunPodSandbox", config=sandbox).pod_sandbox_id
    container = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="main"),
        image=cri.ImageSpec(image=image),
        command=list(SLEEP),
        labels={**labels, "io.kubernetes.container.name": "main"},
        linux=cri.LinuxContainerConfig(),
    )
    container_id = calls.call(
        "CreateContainer", pod_sandbox_id=sandbox_id, config=container, sandbox_config=sandbox
    ).container_id
    calls.call("StartContainer", container_id=container_id)
    return sandbox_id, container_id


@contextmanager
def untouched(containerd: PrivateContainerd, name: str, image: str) -> Iterator[CriCalls]:
    """A stock kubelet's pod and image that are there before, and the very same afterwards."""
    with containerd.cri() as calls:
        sandbox_id, container_id = stock_pod(calls, name, image)
        before = calls.call("ContainerStatus", container_id=container_id).status
        yield calls
        status = calls.call("PodSandboxStatus", pod_sandbox_id=sandbox_id).status
        assert status.state == cri.SANDBOX_READY
        after = calls.call("ContainerStatus", container_id=container_id).status
        assert (after.state, after.started_at) == (cri.CONTAINER_RUNNING, before.started_at)
        assert calls.call("ImageStatus", image=cri.ImageSpec(image=image)).image.id


def test_a_stock_kubelets_pods_and_images_are_left_alone_through_everything(
    make_agent: MakeAgent, manifests: Path, containerd_a: PrivateContainerd
) -> None:
    with untouched(containerd_a, "foreign", image_ref("web")) as calls:
        unused = image_ref("named-user")
        calls.call("PullImage", image=cri.ImageSpec(image=unused))  # theirs too, and nobody uses it now
        agent = make_agent()
        agent.start()
        path = put_manifest(manifests, pod_manifest("ours", runtime="containerd-a", image="crash"))
        agent.wait_for("ours")
        assert [pod.name for pod in agent.pods()] == ["ours-lab"]
        for stop in (agent.stop, agent.kill):
            stop()
            for database in agent.root_dir.glob("kubeletx.db*"):
                database.unlink()
            agent.start()
            agent.wait_for("ours")
            assert [pod.name for pod in agent.pods()] == ["ours-lab"]
        containerd_a.restart()
        agent.wait_for("ours", timeout_seconds=60)
        path.unlink()
        agent.wait_gone("ours", timeout_seconds=60)
        pruned = agent.cli("image", "prune")
        assert pruned.returncode == 0, pruned.stderr
        assert calls.call("ImageStatus", image=cri.ImageSpec(image=unused)).image.id
        everything = agent.cli("image", "prune", "--all")  # also what others pulled, but nothing in use
        assert everything.returncode == 0, everything.stderr
        refused = agent.cli("delete", "pod", "foreign")
        assert refused.returncode != 0
        drained = agent.cli("runtime", "remove", "containerd-a", "--drain", timeout_seconds=90)
        assert drained.returncode == 0, drained.stderr


def test_two_agents_on_the_same_runtimes_do_not_see_each_other(
    make_agent: MakeAgent, lab: Lab, tmp_path: Path
) -> None:
    agents: list[PrivateAgent] = []
    for number in range(2):
        directory = tmp_path / f"manifests-{number}"
        directory.mkdir()
        one = make_agent(name=f"twin-{number}", node_name=f"node-{number}", manifest_dir=directory)
        one.start()
        agents.append(one)
        for name in lab.containerds:
            put_manifest(directory, pod_manifest(f"on-{name}", runtime=name))
    first, second = agents
    assert agent_id(first) != agent_id(second)
    before = {name: second.wait_for(f"on-{name}") for name in lab.containerds}
    for one, other in ((first, second), (second, first)):
        for name in lab.containerds:
            one.wait_for(f"on-{name}")
        names = {pod.name for pod in one.pods()}
        assert names == {f"on-{name}-{one.node_name}" for name in lab.containerds}
        assert not names & {pod.name for pod in other.pods()}
    first.kill()
    for database in first.root_dir.glob("kubeletx.db*"):
        database.unlink()
    first.start()
    assert first.manifest_dir is not None
    for path in list(first.manifest_dir.iterdir()):
        path.unlink()
    until(lambda: first.pods() == (), "the first agent is empty")
    assert first.cli("image", "prune").returncode == 0
    for name, old in before.items():
        assert life(second.wait_for(f"on-{name}")) == life(old)


def test_of_two_agents_with_the_very_same_pod_the_second_gets_an_error_and_the_first_goes_on(
    make_agent: MakeAgent, manifests: Path
) -> None:
    """The pod's UID is the same for both, and containerd takes a name once: the second one must say so."""
    first, second = make_agent(name="same-0"), make_agent(name="same-1")
    first.start()
    put_manifest(manifests, pod_manifest("shared", runtime="containerd-a"))
    before = first.wait_for("shared")
    second.start()
    refused = second.wait_for("shared", lambda pod: pod.status.phase == "Pending")
    until(
        lambda: any("another agent" in one for one in _messages(second, refused.name)),
        "an event that names the other agent",
    )
    assert life(first.wait_for("shared")) == life(before)
    second.stop()
    assert life(first.wait_for("shared")) == life(before)


def _messages(agent: PrivateAgent, name: str) -> list[str]:
    found: list[Any] = [one["message"] for one in events(agent) if one["involvedObject"].get("name") == name]
    return found
