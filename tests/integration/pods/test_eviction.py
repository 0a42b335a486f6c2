"""Pods that are ended because the node is short of something, or because they take more than they may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, PrivateAgent, SmallDisk, pod_manifest, put_manifest
from tests.integration.support.survival import JSON, condition, events, node_condition, until

MakeAgent = Callable[..., PrivateAgent]
MiB = 1 << 20
SOME_MEMORY = {"resources": {"requests": {"memory": "1Mi"}}}
HUNGRY = (
    "x=$(head -c 60000000 /dev/zero | tr '\\0' x); echo full; trap 'exit 0' TERM; while :; do sleep 0.1; done"
)


@pytest.fixture
def disk(lab: Lab) -> Iterator[SmallDisk]:
    """A file system of 64 MiB where the agent's root directory will be."""
    with SmallDisk(lab.base_dir / "short-disk", size_bytes=64 * MiB) as one:
        yield one


def apply(agent: PrivateAgent, directory: Path, name: str, script: str | None = None, **parts: Any) -> None:
    """A pod of the operator's, which is not static one."""
    if script is not None:
        parts["command"] = ["sh", "-c", script]
    path = put_manifest(directory, pod_manifest(name, **parts))
    done = agent.cli("apply", "-f", str(path))
    assert done.returncode == 0, done.stderr


def pod_of(agent: PrivateAgent, name: str) -> Pod:
    return next(pod for pod in agent.pods() if pod.name == name)


def evicted(agent: PrivateAgent, name: str, *, is_disruption: bool = True) -> Pod:
    """The pod, once it was evicted. `is_disruption`: the node was short of something."""
    pod = until(lambda: (p := pod_of(agent, name)).status.phase == "Failed" and p, f"the end of {name}")
    assert pod.status.reason == "Evicted"
    if is_disruption:
        assert condition(pod, "DisruptionTarget") == "True"
    else:
        assert "DisruptionTarget" not in [one.type for one in pod.status.conditions]
    reported = [
        e["message"]
        for e in events(agent)
        if e["reason"] == "Evicted" and e["involvedObject"]["name"] == name
    ]
    assert reported == [pod.status.message]
    return pod


def test_memory_pressure_ends_the_pod_that_uses_most(
    make_agent: MakeAgent, manifests: Path, tmp_path: Path
) -> None:
    agent = make_agent(flags=(JSON,))
    agent.start()
    put_manifest(manifests, pod_manifest("static", command=["sh", "-c", HUNGRY]))
    apply(agent, tmp_path, "modest", container=SOME_MEMORY)
    apply(agent, tmp_path, "hungry", HUNGRY, container=SOME_MEMORY)
    for name in ("static-lab", "modest", "hungry"):
        agent.wait_for(name)
    until(lambda: "full" in agent.cli("logs", "hungry").stdout, "memory of the hungry pod")
    agent.stop()
    # A soft threshold, since a hard one is taken from what pods may use.
    soft = ("--eviction-soft=memory.available<1Ei", "--eviction-soft-grace-period=memory.available=1s")
    agent.flags = (*agent.flags, *soft)
    agent.start()
    hungry = evicted(agent, "hungry")
    assert (hungry.status.message or "").startswith(
        "The node was low on resource: memory. Threshold quantity: 1Ei, available: "
    )
    assert "Container main was using " in (hungry.status.message or "")
    assert ", request is 1Mi, has larger consumption of memory. " in (hungry.status.message or "")
    assert hungry.status.container_statuses[0].state.terminated is not None
    evicted(agent, "modest")
    ended = [e["involvedObject"]["name"] for e in events(agent) if e["reason"] == "Evicted"]
    assert ended == ["hungry", "modest"]
    assert pod_of(agent, "static-lab").status.phase == "Running"
    assert node_condition(agent, "MemoryPressure")[:2] == ("True", "KubeletHasInsufficientMemory")
    apply(agent, tmp_path, "late")
    late = until(lambda: (p := pod_of(agent, "late")).status.phase == "Failed" and p, "the refusal")
    assert late.status.reason == "Evicted"
    assert late.status.message == "Pod was rejected: The node had condition: [MemoryPressure]. "


def test_a_full_disk_costs_the_pod_that_filled_it(
    make_agent: MakeAgent, disk: SmallDisk, tmp_path: Path
) -> None:
    agent = make_agent(name="short-disk", flags=(JSON, "--eviction-hard=nodefs.available<50%"))
    agent.start()
    volume = {
        "container": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        "spec": {"volumes": [{"name": "v", "emptyDir": {}}]},
    }
    apply(agent, tmp_path, "modest", **volume)
    agent.wait_for("modest")
    fill = "head -c 40000000 /dev/zero > /v/file; trap 'exit 0' TERM; while :; do sleep 0.1; done"
    apply(agent, tmp_path, "filler", fill, **volume)
    filler = evicted(agent, "filler")
    assert (filler.status.message or "").startswith(
        "The node was low on resource: ephemeral-storage. Threshold quantity: 32Mi, available: "
    )
    assert node_condition(agent, "DiskPressure")[:2] == ("True", "KubeletHasDiskPressure")
    place = agent.root_dir / "pods" / str(filler.uid) / "volumes"
    until(lambda: not list(place.rglob("file")), "the disk is given back")
    with agent.lab["containerd-a"].cri() as cri:
        until(lambda: not cri.containers(pod_uid=str(filler.uid)), "its layers are given back")
    assert pod_of(agent, "modest").status.phase == "Running"


def test_a_pod_that_outgrows_its_own_limit_is_evicted_without_pressure(
    make_agent: MakeAgent, tmp_path: Path
) -> None:
    agent = make_agent(flags=(JSON,))
    agent.start()
    write = "head -c 5000000 /dev/zero > {}; trap 'exit 0' TERM; while :; do sleep 0.1; done"
    apply(
        agent,
        tmp_path,
        "volume",
        write.format("/v/file"),
        container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
        spec={"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "2Mi"}}]},
    )
    limited = {"resources": {"limits": {"ephemeral-storage": "2Mi"}}}
    apply(agent, tmp_path, "layer", write.format("/file"), container=limited)
    apply(agent, tmp_path, "within", write.format("/dev/null"), container=limited)
    volume, layer = (evicted(agent, name, is_disruption=False) for name in ("volume", "layer"))
    assert volume.status.message == 'Usage of EmptyDir volume "v" exceeds the limit "2Mi". '
    assert layer.status.message == (
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "
    )
    assert pod_of(agent, "within").status.phase == "Running"
    assert node_condition(agent, "DiskPressure")[0] == "False"
