"""The agent is killed at any moment: every pod exists exactly once afterwards, none restarted, none leaked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, PrivateAgent, bound_runtime, pod_manifest, put_manifest
from tests.integration.support.survival import (
    agent_id,
    containers_of,
    ids,
    life,
    network_namespaces,
    ready_sandboxes,
    traces,
    until,
)

MakeAgent = Callable[..., PrivateAgent]
KILLS = 12


def ended(pod: Pod) -> list[object]:
    """How the runs before the present ones ended, to explain a restart."""
    return [
        one.last_state.terminated
        for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ]


def running(pod: Pod) -> bool:
    return pod.status.phase == "Running"


def mixed(number: int, runtime: str | None) -> dict[str, object]:
    """Pods of several kinds, so that a kill hits volumes, init containers and hooks too."""
    spec: dict[str, object] = {
        "volumes": [
            {"name": "fast", "emptyDir": {"medium": "Memory"}},
            {
                "name": "facts",
                "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]},
            },
        ]
    }
    container: dict[str, object] = {"volumeMounts": [{"name": "fast", "mountPath": "/fast"}]}
    if number % 3 == 0:
        spec["initContainers"] = [{"name": "init", "image": "registry.local/busybox:1", "command": ["true"]}]
    if number % 3 == 1:
        container["lifecycle"] = {"postStart": {"exec": {"command": ["true"]}}}
    return pod_manifest(f"pod-{number}", runtime=runtime, container=container, spec=spec)


def test_kills_at_random_moments_cost_no_pod_and_restart_none(
    make_agent: MakeAgent, manifests: Path, lab: Lab
) -> None:
    chance = random.Random(1)
    namespaces, addresses = network_namespaces(lab), lab.network.list_addresses()
    agent = make_agent()
    agent.start()
    steady = {f"steady-{name}": name for name in lab.containerds}
    for name, runtime in steady.items():
        put_manifest(manifests, pod_manifest(name, runtime=runtime))
    before = {name: agent.wait_for(name) for name in steady}
    wanted = {}
    for number in range(10):
        asked = chance.choice([None, *lab.containerds])
        wanted[f"pod-{number}"] = asked or "containerd-a"
        put_manifest(manifests, mixed(number, asked))
    seen: dict[str, str] = {}
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.0, 0.6))  # a random moment, not a state
        agent.kill()
        agent.start()
        for pod in agent.pods():
            if running(pod):
                seen.setdefault(pod.name.removesuffix("-lab"), ids(pod)["main"])
    after = {name: agent.wait_for(name, timeout_seconds=60) for name in (*wanted, *steady)}
    for name, pod in after.items():
        assert bound_runtime(pod) == {**wanted, **steady}[name]
        assert all(restarts == 0 for _, restarts in life(pod).values()), ended(pod)
        if name in before:
            assert life(pod) == life(before[name])
        if name in seen:
            assert ids(pod)["main"] == seen[name]
    assert ready_sandboxes(lab, agent) == {f"{name}-lab": [bound_runtime(pod)] for name, pod in after.items()}
    until(lambda: traces(agent, pods=agent.pods()) == [], "nothing leaked")
    mains = [one for _, one in containers_of(lab, agent_id(agent)) if one.metadata.name == "main"]
    assert len(mains) == len(after)
    assert len(network_namespaces(lab)) == len(namespaces) + len(after)
    assert len(lab.network.list_addresses()) == len(addresses) + len(after)
    for path in list(manifests.iterdir()):
        path.unlink()
    for name in after:
        agent.wait_gone(name)
    assert traces(agent) == []
    assert network_namespaces(lab) == namespaces
    assert lab.network.list_addresses() == addresses


def test_kills_while_pods_end_leave_nothing(make_agent: MakeAgent, manifests: Path, lab: Lab) -> None:
    chance = random.Random(7)
    agent = make_agent()
    agent.start()
    runtimes = list(lab.containerds)
    for number in range(8):
        put_manifest(manifests, mixed(number, runtimes[number % 2]))
    for number in range(8):
        agent.wait_for(f"pod-{number}")
    for path in list(manifests.iterdir()):
        path.unlink()
    for _ in range(4):
        time.sleep(chance.uniform(0.0, 0.4))  # a random moment, not a state
        agent.kill()
        agent.start()
    until(lambda: agent.pods() == (), "no pod")
    until(lambda: traces(agent) == [], "nothing left")


def test_a_pod_that_is_wanted_no_more_when_the_agent_returns_is_ended_with_its_own_grace(
    make_agent: MakeAgent, manifests: Path, tmp_path: Path
) -> None:
    agent = make_agent()
    agent.start()
    path = put_manifest(
        manifests,
        pod_manifest(
            "polite",
            command=[
                "sh",
                "-c",
                "trap 'sleep 1; touch /out/said-goodbye; exit 0' TERM; while :; do sleep 0.1; done",
            ],
            container={"volumeMounts": [{"name": "out", "mountPath": "/out"}]},
            spec={
                "volumes": [{"name": "out", "hostPath": {"path": str(tmp_path)}}],
                "terminationGracePeriodSeconds": 20,
            },
        ),
    )
    kept = put_manifest(manifests, pod_manifest("kept"))
    agent.wait_for("polite")
    before = agent.wait_for("kept")
    agent.kill()
    path.unlink()
    agent.start()
    agent.wait_gone("polite")
    assert (tmp_path / "said-goodbye").exists()
    assert ids(agent.wait_for("kept")) == ids(before)
    assert kept.exists()
    until(lambda: traces(agent, pods=agent.pods()) == [], "nothing left")


def test_an_agent_that_stops_in_order_leaves_its_pods_running(
    make_agent: MakeAgent, manifests: Path, lab: Lab
) -> None:
    agent = make_agent()
    agent.start()
    for name in lab.containerds:
        put_manifest(manifests, pod_manifest(f"on-{name}", runtime=name))
    before = {name: agent.wait_for(f"on-{name}") for name in lab.containerds}
    agent.stop()
    assert len(ready_sandboxes(lab, agent)) == len(before)
    agent.start()
    for name, old in before.items():
        assert life(agent.wait_for(f"on-{name}")) == life(old)
