"""No pod stays in a partial state if agent, shim or containerd are killed while pods freeze, hibernate and wake."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, pod_manifest, put_manifest
from kubeletx_testing.lab.cgroups import list_container_cgroups, list_container_processes
from kubeletx_testing.lab.images import image_ref
from kubeletx_testing.lab.pods import SLEEP
from kubeletx_testing.waiting import block_until
from tests.integration.support.kill_points import FREEZER, RECLAIM, RECORD, KillPoint, KillPoints
from tests.integration.support.silent_files import SilentFileSystem

STATES = {"standby": "Standby", "hibernate": "Hibernated", "activate": "Running"}
# In each step the agent kills itself while it carries out the verb; the next one completes it. The pod has three
# containers: two regular ones, which are frozen together, and a sidecar, which is frozen last and thawed first.
STEPS = (
    ("standby", KillPoint(FREEZER, 1)),
    ("activate", KillPoint(FREEZER, 1)),
    ("standby", KillPoint(FREEZER, 1, is_after=True)),
    ("activate", KillPoint(FREEZER, 1, is_after=True)),
    ("standby", KillPoint(FREEZER, 3)),
    ("activate", KillPoint(FREEZER, 3)),
    ("hibernate", KillPoint(RECLAIM, 1)),
    ("activate", KillPoint(FREEZER, 2)),
    ("hibernate", KillPoint(RECORD, 1)),
    ("standby", KillPoint(FREEZER, 2, is_after=True)),
    ("hibernate", KillPoint(RECORD, 3)),
)


def ids(pod: Pod) -> dict[str, str]:
    """Ids of the pod's containers by name."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {one.name: (one.container_id or "").rpartition("/")[2] for one in statuses}


def restarts(pod: Pod) -> int:
    return sum(
        one.restart_count for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )


def freezer_file(container_id: str) -> Path:
    directories = list_container_cgroups({container_id})
    version_1 = [one / "freezer.state" for one in directories if (one / "freezer.state").exists()]
    return (version_1 or [one / "cgroup.events" for one in directories if (one / "cgroup.freeze").exists()])[
        0
    ]


def state(container_id: str) -> str:
    """The state of the container's freezer: FROZEN, FREEZING or THAWED."""
    file = freezer_file(container_id)
    if file.name == "freezer.state":
        return file.read_text().strip()
    if "frozen 1" in file.read_text():
        return "FROZEN"
    return "FREEZING" if (file.parent / "cgroup.freeze").read_text().strip() == "1" else "THAWED"


def states(pod: Pod) -> set[str]:
    return {state(one) for one in ids(pod).values()}


def shown(agent: PrivateAgent, name: str) -> str:
    """The column STATUS of ``kubeletx get pods``."""
    lines = agent.cli("get", "pods").stdout.splitlines()
    return next((line.split()[2] for line in lines if line.startswith(f"{name}-lab")), "")


def reaches(agent: PrivateAgent, verb: str, before: Pod) -> None:
    """Wait until the pod is in the verb's state, all its containers are, and they are the same as before."""
    frozen = {"THAWED"} if verb == "activate" else {"FROZEN"}
    block_until(lambda: states(before) == frozen)
    after = agent.wait_for("web", lambda _pod: shown(agent, "web") == STATES[verb])
    assert states(before) == frozen
    assert ids(after) == ids(before)
    assert restarts(after) == 0


@pytest.fixture
def points(tmp_path: Path) -> KillPoints:
    return KillPoints(tmp_path / "points")


@pytest.fixture
def agent(
    make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd, points: KillPoints
) -> PrivateAgent:
    """An agent on containerd-a with plugins/quark, which can be armed."""
    one = make_agent(
        endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc",
        env=points.env,
        flags=("--max-pods=500",),
    )
    one.start()
    return one


@pytest.fixture
def web(agent: PrivateAgent, manifests: Path) -> Pod:
    """A pod of two containers and a sidecar, ready."""
    image = image_ref("busybox")
    extra = {"name": "second", "image": image, "command": list(SLEEP)}
    manifest = pod_manifest("web", runtime="quark")
    manifest["spec"]["containers"].append(extra)
    manifest["spec"]["initContainers"] = [{**extra, "name": "side", "restartPolicy": "Always"}]
    put_manifest(manifests, manifest)
    return agent.wait_for("web")


def words(verb: str) -> tuple[str, ...]:
    """The words of the command line that requests it."""
    return ("pod", "standby", "web-lab", "--hibernate") if verb == "hibernate" else ("pod", verb, "web-lab")


def command(agent: PrivateAgent, verb: str) -> None:
    answer = agent.cli(*words(verb))
    assert answer.returncode == 0, answer.stderr


def test_an_agent_killed_at_any_step_of_a_freeze_a_hibernation_or_a_wake_ends_it_after_its_restart(
    agent: PrivateAgent, web: Pod, points: KillPoints
) -> None:
    assert agent.node().status.capacity["pods"] == "500"
    for verb, point in STEPS:
        points.arm(point)
        assert agent.cli(*words(verb)).returncode != 0
        assert agent.daemon is not None
        assert agent.daemon.wait(30) == -signal.SIGKILL, f"{verb} did not reach {point}"
        assert not points.is_armed
        agent.start()
        reaches(agent, verb, web)


def test_an_agent_killed_while_a_container_does_not_freeze_leaves_none_half_frozen(
    agent: PrivateAgent, web: Pod, tmp_path: Path
) -> None:
    second = ids(web)["second"]
    with SilentFileSystem(tmp_path / "silent") as files:
        file = freezer_file(second)
        (file.parent / "cgroup.procs").write_text(str(files.reader.pid))
        agent.cli("pod", "standby", "web-lab", "--timeout", "1s")
        block_until(lambda: state(second) == "FREEZING")
        agent.kill()
        agent.start()
        block_until(lambda: states(web) == {"THAWED"})
        files.end()
        reaches(agent, "standby", web)
        command(agent, "activate")
    reaches(agent, "activate", web)


def test_containerd_killed_in_the_middle_of_a_freeze_and_while_a_pod_is_frozen_changes_nothing(
    agent: PrivateAgent, web: Pod, containerd_a: PrivateContainerd, tmp_path: Path
) -> None:
    second = ids(web)["second"]
    with SilentFileSystem(tmp_path / "silent") as files:
        (freezer_file(second).parent / "cgroup.procs").write_text(str(files.reader.pid))
        agent.cli("pod", "standby", "web-lab", "--timeout", "1s")
        block_until(lambda: state(second) == "FREEZING")
        containerd_a.kill()
        files.end()
        containerd_a.start_daemon()
        reaches(agent, "standby", web)
        containerd_a.kill()
        containerd_a.start_daemon()
        # It may fail once, while the agent's connection waits for its next attempt; the request stays in force.
        agent.cli(*words("activate"))
    reaches(agent, "activate", web)


def test_a_shim_killed_while_its_pod_is_frozen_costs_one_restart_and_leaves_nothing(
    agent: PrivateAgent, web: Pod
) -> None:
    command(agent, "standby")
    (child, *_) = list_container_processes({ids(web)["main"]})
    os.kill(parent(child), signal.SIGKILL)
    after = agent.wait_for("web", lambda pod: not set(ids(pod).values()) & {"", *ids(web).values()})
    block_until(lambda: states(after) == {"FROZEN"})
    agent.wait_for("web", lambda _pod: shown(agent, "web") == "Standby")
    block_until(lambda: not list_container_processes(set(ids(web).values())))
    assert not list_container_cgroups(set(ids(web).values()))


def parent(pid: int) -> int:
    """The parent of a container's first process: its shim."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def applied(agent: PrivateAgent, directory: Path) -> Pod:
    """Apply pod ``other``, and wait until it is ready."""
    file = directory / "other.json"
    file.write_text(json.dumps(pod_manifest("other", runtime="quark")))
    assert agent.cli("apply", "-f", str(file)).returncode == 0
    return agent.wait_for("other")


def frozen_by_others(pod: Pod, *, is_frozen: bool) -> None:
    """Another program freezes or thaws the pod's cgroup, which is above those of its containers."""
    directory = freezer_file(ids(pod)["main"]).parent.parent
    if (directory / "freezer.state").exists():
        (directory / "freezer.state").write_text("FROZEN" if is_frozen else "THAWED")
    else:
        (directory / "cgroup.freeze").write_text("1" if is_frozen else "0")


def test_a_forced_deletion_says_that_a_cgroup_above_is_frozen_and_ends_when_it_is_thawed(
    agent: PrivateAgent, tmp_path: Path
) -> None:
    pod = applied(agent, tmp_path)
    assert agent.cli("pod", "standby", "other").returncode == 0
    frozen_by_others(pod, is_frozen=True)
    try:
        answer = agent.cli("delete", "pod", "other", "--force", "--grace-period=0", "--no-wait")
        assert answer.returncode == 0, answer.stderr
        # With cgroup v2, SIGKILL ends frozen processes.
        if freezer_file(ids(pod)["main"]).name == "freezer.state":
            block_until(lambda: "a cgroup above it is frozen" in agent.cli("get", "events").stdout)
            assert agent.pod("other") is not None
    finally:
        frozen_by_others(pod, is_frozen=False)
    agent.wait_gone("other", timeout_seconds=150)
    assert not list_container_processes(set(ids(pod).values()))
    assert not list_container_cgroups(set(ids(pod).values()))


def test_a_frozen_pod_ended_by_force_while_containerd_does_not_answer_leaves_nothing(
    make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd, tmp_path: Path
) -> None:
    agent = make_agent(
        endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc",
        flags=("--runtime-health-grace-period=1s",),
    )
    agent.start()
    pod = applied(agent, tmp_path)
    assert agent.cli("pod", "standby", "other").returncode == 0
    containerd_a.pause()
    try:
        agent.wait_for("other", lambda pod: "RuntimeReachable" in str(pod.status.conditions))
        answer = agent.cli("delete", "pod", "other", "--force", "--grace-period=0", "--no-wait")
        assert answer.returncode == 0, answer.stderr
        agent.wait_gone("other")
        agent.kill()
    finally:
        containerd_a.resume()
    agent.start()
    block_until(lambda: not list_container_processes(set(ids(pod).values())))
    block_until(lambda: not list_container_cgroups(set(ids(pod).values())))


def test_a_restart_of_containerd_restarts_the_containers_that_it_paused(
    make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd, manifests: Path
) -> None:
    """To containerd's CRI a paused container has an unknown state after its restart; see the README of plugins/quark."""
    agent = make_agent(endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc&strategy=pause")
    agent.start()
    put_manifest(manifests, pod_manifest("web", runtime="quark"))
    before = agent.wait_for("web")
    command(agent, "standby")
    containerd_a.restart()
    agent.wait_for("web", lambda pod: not set(ids(pod).values()) & {"", *ids(before).values()})
    after = agent.wait_for("web", lambda _pod: shown(agent, "web") == "Standby")
    assert states(after) == {"FROZEN"}
    block_until(lambda: not list_container_processes(set(ids(before).values())))
    command(agent, "activate")
    assert restarts(agent.wait_for("web")) == 1
