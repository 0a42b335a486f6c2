"""Pods whose containers other programs freeze, thaw and kill, and their strategies, through a whole agent with plugins/quark."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, pod_manifest, put_manifest
from kubeletx_testing.lab.cgroups import list_container_cgroups, list_container_processes

RUN = ("sh", "-c", "while :; do sleep 0.05; done")


@pytest.fixture
def agent(make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd) -> PrivateAgent:
    """An agent that lists everything each second or less often: another program's change of a freezer makes no event."""
    one = make_agent(
        endpoints=f"container:quark:{containerd_a.endpoint};"
        f"container:plain:{containerd_a.endpoint}?handler=runc-two&plugin=containerd",
        flags=("--sync-frequency", "1s"),
    )
    one.start()
    return one


def started(agent: PrivateAgent, manifests: Path, name: str) -> Pod:
    put_manifest(manifests, pod_manifest(name, runtime="quark", command=RUN))
    return agent.wait_for(name)


def container_id(pod: Pod) -> str:
    return (pod.status.container_statuses[0].container_id or "").rpartition("/")[2]


def freezer_file(pod: Pod) -> Path | None:
    """The file that freezes the pod's container, of the hierarchy whose freezer is used; None while it has no cgroup."""
    directories = list_container_cgroups({container_id(pod)})
    names = ("freezer.state", "cgroup.freeze")
    return next((one / name for name in names for one in directories if (one / name).exists()), None)


def write(file: Path | None, *, frozen: bool) -> None:
    assert file is not None
    words = ("THAWED", "FROZEN") if file.name == "freezer.state" else ("0", "1")
    file.write_text(words[frozen])


def frozen_word(pod: Pod) -> str:
    """What the file that freezes the pod's container says; empty while it has no cgroup."""
    file = freezer_file(pod)
    try:
        return file.read_text().strip() if file is not None else ""
    except OSError:
        return ""  # removed meanwhile


def is_frozen(pod: Pod) -> bool:
    return frozen_word(pod) in ("FROZEN", "1")


def is_thawed(pod: Pod) -> bool:
    """True if nothing needs it frozen: with cgroup v1, the file says FREEZING at first."""
    return frozen_word(pod) in ("THAWED", "0")


def standby(agent: PrivateAgent, name: str) -> None:
    answer = agent.cli("pod", "standby", f"{name}-lab")
    assert answer.returncode == 0, answer.stderr


def test_another_program_changes_nothing_for_long(agent: PrivateAgent, manifests: Path) -> None:
    before = started(agent, manifests, "web")
    write(freezer_file(before), frozen=True)
    agent.wait_for("web", is_thawed)
    standby(agent, "web")
    assert is_frozen(before)
    write(freezer_file(before), frozen=False)
    after = agent.wait_for("web", is_frozen)
    assert container_id(after) == container_id(before)
    assert after.status.container_statuses[0].restart_count == 0


def test_a_killed_process_of_a_frozen_pod_is_replaced_and_the_pod_frozen_again(
    agent: PrivateAgent, manifests: Path
) -> None:
    before = started(agent, manifests, "web")
    standby(agent, "web")
    for pid in list_container_processes({container_id(before)}):
        os.kill(pid, signal.SIGKILL)
    after = agent.wait_for(
        "web", lambda pod: container_id(pod) not in ("", container_id(before)) and is_frozen(pod)
    )
    assert after.status.container_statuses[0].restart_count == 1
    ended = after.status.container_statuses[0].last_state.terminated
    assert ended is not None
    assert ended.exit_code == 128 + signal.SIGKILL
    assert not list_container_processes({container_id(before)})


def test_a_strategy_that_the_runtime_does_not_have_is_refused_by_name(
    agent: PrivateAgent, manifests: Path
) -> None:
    field = "kubeletx.io/standby-strategy"
    for runtime, strategy, problem in (
        ("quark", "ice", "'ice' is not known to the pod's runtime; use one of: freezer, pause, signal"),
        ("plain", "pause", "is set, but the pod's runtime has no strategies to choose from"),
    ):
        metadata = {"annotations": {field: strategy}}
        put_manifest(manifests, pod_manifest(runtime, runtime=runtime, command=RUN, metadata=metadata))
        pod = agent.wait_for(runtime, lambda one: one.status.reason == "RuntimeUnsupported")
        assert pod.status.phase == "Pending"
        assert f"runtime {runtime}: metadata.annotations[{field}]: {problem}" in (pod.status.message or "")
