"""The agent's output and calls for pods on standby, with containerd, runc and plugins/quark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, image_ref, pod_manifest, put_manifest
from kubeletx_testing.waiting import block_until

BUSY = ["sh", "-c", "while :; do sleep 0.01; done"]
SLEEP = ["sleep", "100000"]


@pytest.fixture
def agent(make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd) -> PrivateAgent:
    """An agent with runtimes ``freezer`` and ``pause``, one for each strategy, on containerd-a."""
    one = make_agent(
        endpoints=f"container:freezer:{containerd_a.endpoint}?handler=runc&plugin=quark;"
        f"container:pause:{containerd_a.endpoint}?handler=runc-two&plugin=quark&strategy=pause"
    )
    one.start()
    return one


def container(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": image_ref("busybox"), "command": SLEEP, **fields}


def done(agent: PrivateAgent, *arguments: str) -> str:
    answer = agent.cli(*arguments)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def actions(agent: PrivateAgent, name: str) -> list[str]:
    """The agent's actions on the pod, oldest first; an action that ran twice in a row is there twice."""
    lines = done(agent, "describe", "pod", name, "--history").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("History:"))
    found: list[str] = []
    for line in lines[begin + 3 :]:
        row = re.match(r"  \S+ +(?:x(\d+) +)?\d+\.\d+s  (.+?)  ", line)
        assert row is not None, line
        found += [row[2]] * int(row[1] or 1)
    return found


def operations(agent: PrivateAgent, runtime: str) -> dict[str, float]:
    """The number of the agent's calls to the runtime by operation."""
    found = re.findall(
        rf'kubelet_runtime_operations_total{{operation_type="(\w+)",runtime="{runtime}"}} (\S+)',
        agent.get("/metrics").decode(),
    )
    return {name: float(value) for name, value in found}


def probed(agent: PrivateAgent, name: str) -> int:
    """The number of attempts of the pod's probe, which writes each into the log of the container."""
    return done(agent, "logs", name).count("probed")


@pytest.mark.parametrize("runtime", ["freezer", "pause"])
def test_containers_rest_in_order_and_no_look_follows_the_agents_own_freezes(
    agent: PrivateAgent, manifests: Path, runtime: str
) -> None:
    spec = {
        "containers": [container("a"), container("b")],
        "initContainers": [container(name, restartPolicy="Always") for name in ("s0", "s1")],
    }
    put_manifest(manifests, pod_manifest("web", runtime=runtime, spec=spec))
    agent.wait_for("web")
    put_manifest(manifests, pod_manifest("earlier", runtime=runtime))
    agent.wait_for("earlier")  # the looks that the events of the first pod's start cause are over
    before = operations(agent, runtime)
    for _ in range(3):
        frozen = json.loads(done(agent, "pod", "standby", "web-lab", "-o", "json"))
        awake = json.loads(done(agent, "pod", "activate", "web-lab", "-o", "json"))
    after = operations(agent, runtime)
    assert frozen["containers"] == dict.fromkeys(("a", "b", "s0", "s1"), "paused")
    assert awake["containers"] == dict.fromkeys(("a", "b", "s0", "s1"), "running")
    for view, state in ((frozen, "frozen"), (awake, "thawed")):
        assert view["tookSeconds"] > 0, state
        assert view["since"], state
    calls = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    looks = {name: calls.pop(name, 0) for name in ("list_units", "list_sandboxes", "sandbox_status")}
    calls = {name: number for name, number in calls.items() if name in ("freeze", "thaw", "unit_status")}
    assert calls == {"freeze": 12, "thaw": 12, "unit_status": 24}, looks
    put_manifest(manifests, pod_manifest("later", runtime=runtime))
    agent.wait_for("later")  # the runtime's events of all freezes have arrived before those of this pod
    found = actions(agent, "web-lab")
    changes = found[min(found.index("set standby a"), found.index("set standby b")) :]
    assert "look" not in changes, found
    assert len(changes) == 24, found
    for number in range(0, 24, 8):
        names = [one.removeprefix("set standby ") for one in changes[number : number + 8]]
        assert set(names[:2]) == {"a", "b"}
        assert names[2:6] == ["s1", "s0", "s0", "s1"]
        assert set(names[6:]) == {"a", "b"}
    (condition,) = [
        one
        for one in json.loads(done(agent, "get", "pod", "web-lab", "-o", "json"))["status"]["conditions"]
        if one["type"] == "kubeletx.io/Standby"
    ]
    assert (condition["status"], condition["reason"]) == ("False", "NotFrozen")
    assert re.fullmatch(r"thawed in \d+\.\d{3}s", condition["message"])


def test_no_probe_runs_in_a_frozen_pod_and_its_usage_is_its_memory(
    agent: PrivateAgent, manifests: Path
) -> None:
    """A probe in a frozen container would not end, and its failure would restart the container."""
    command = ["sh", "-c", "echo probed > /proc/1/fd/1"]
    probe = {"exec": {"command": command}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 1}
    for name in ("web", "witness"):
        body = {"containers": [container("main", command=BUSY, livenessProbe=probe)]}
        put_manifest(manifests, pod_manifest(name, runtime="freezer", spec=body))
    for name in ("web", "witness"):
        agent.wait_for(name)
    block_until(lambda: probed(agent, "web-lab") > 0)
    done(agent, "pod", "standby", "web-lab")
    resting, others = probed(agent, "web-lab"), probed(agent, "witness-lab")
    block_until(lambda: probed(agent, "witness-lab") > others + 3)
    assert probed(agent, "web-lab") == resting

    def is_measured() -> bool:
        rows = [line.split() for line in done(agent, "top", "pods").splitlines()[1:]]
        used = {row[0]: (row[1], row[2]) for row in rows}
        assert set(used) == {"web-lab", "witness-lab"}
        return used["web-lab"] == ("0m", used["web-lab"][1]) and used["witness-lab"][0] != "0m"

    block_until(is_measured)
    done(agent, "pod", "activate", "web-lab")
    block_until(lambda: probed(agent, "web-lab") > resting)
    pod = agent.wait_for("web")
    assert pod.status.container_statuses[0].restart_count == 0


def test_a_pod_that_is_not_ready_is_named_and_frozen_once_it_is(agent: PrivateAgent, manifests: Path) -> None:
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    body = {"containers": [container("main", readinessProbe=probe)]}
    put_manifest(manifests, pod_manifest("web", runtime="freezer", spec=body))
    agent.wait_for("web", lambda pod: pod.status.phase == "Running")
    answer = agent.cli("pod", "standby", "web-lab", "--timeout", "500ms")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == (
        "Error: pod default/web-lab is not standby after 0.5s: main is running; the request stays in "
        "force. Containers are frozen once all of them are started and ready\n"
    )
    assert "NotFrozenYet since " in done(agent, "describe", "pod", "web-lab")
    done(agent, "exec", "web-lab", "--", "touch", "/tmp/ready")
    block_until(lambda: "Standby since " in done(agent, "describe", "pod", "web-lab"))
    answer = agent.cli("pod", "standby", "other-lab")
    assert (answer.returncode, answer.stderr) == (
        1,
        'Error: pods "other-lab" not found in namespace "default"\n',
    )
