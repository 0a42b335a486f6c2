"""What the test_survive_* files share: waiting for conditions, reading the agent's log, counting what is left.

Nothing here sleeps for a state: every wait looks until its condition holds or its deadline passes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kubeletx.api.names import AGENT_ID
from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.status import ContainerStatus
from kubeletx_testing.lab import Lab, PrivateAgent
from kubeletx_testing.lab.cgroups import cgroups_below
from kubeletx_testing.lab.mounts import list_mounts

JSON = "--logging-format=json"
QUICK = "--runtime-health-grace-period=3s"
"""The agent reports an outage sooner."""


def until(is_so: Callable[[], Any], what: str, *, seconds: float = 120) -> Any:
    """The first true value of `is_so()`; fails with `what` when it takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = is_so()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.05)


def holds(is_so: Callable[[], Any], what: str, *, seconds: float) -> None:
    """`is_so()` stays true for `seconds`: for what must not happen."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert is_so(), f"no longer: {what}"
        time.sleep(0.05)


def container(pod: Pod, name: str = "main") -> ContainerStatus:
    """Status of one container of any kind; an empty one in the first moment of a pod, which has none yet."""
    everything = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    empty = ContainerStatus(name=name, ready=False, restart_count=0, image="", image_id="")
    return next((one for one in everything if one.name == name), empty)


def ids(pod: Pod) -> dict[str, str]:
    """Container name to id."""
    everything = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {one.name: one.container_id or "" for one in everything}


def life(pod: Pod) -> dict[str, tuple[str, int]]:
    """What must not change while nothing is restarted: id and restart count of each container.

    No runtime starts an ended container again under the same id, so an equal id is an equal life.
    """
    everything = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {one.name: (one.container_id or "", one.restart_count) for one in everything}


def condition(pod: Pod, name: str) -> str | None:
    """True, False, Unknown, or None when the pod does not have it."""
    return next((one.status for one in pod.status.conditions if one.type == name), None)


def node_condition(agent: PrivateAgent, name: str) -> tuple[str, str, str]:
    """(status, reason, message) of one condition of the node."""
    for one in agent.node().status.conditions:
        if one.type == name:
            return one.status, one.reason or "", one.message or ""
    return "", "", ""


def reasons(agent: PrivateAgent, name: str) -> list[str]:
    """Reasons of all events of one object, oldest first."""
    return [one["reason"] for one in events(agent) if one["involvedObject"].get("name") == name]


def events(agent: PrivateAgent) -> list[dict[str, Any]]:
    """All events that the agent keeps."""
    found: list[dict[str, Any]] = json.loads(agent.get("/v1/events"))["items"]
    return found


def log_lines(agent: PrivateAgent) -> list[dict[str, Any]]:
    """The agent's log as objects; fails on a line that is none. For agents with the flag JSON.

    What stands after the last line's end is being written at this moment.
    """
    whole, _, _ = agent.log_path.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def complaints(agent: PrivateAgent, *, since: int = 0) -> list[dict[str, Any]]:
    """Warnings and errors in the log from line `since` on.

    Without those on stalls of the event loop: they tell how busy this machine is.
    """
    return [
        line
        for line in log_lines(agent)[since:]
        if line["level"] not in ("info", "debug") and line["event"] != "Event loop stalled"
    ]


def logged(agent: PrivateAgent, text: str, **fields: Any) -> list[dict[str, Any]]:
    """Log lines with this text and these fields."""
    return [
        one
        for one in log_lines(agent)
        if one.get("event") == text and all(one.get(key) == value for key, value in fields.items())
    ]


def sandboxes_of(lab: Lab, agent_id: str) -> Iterator[tuple[str, Any]]:
    """(containerd, sandbox) of one agent."""
    for name, containerd in lab.containerds.items():
        with containerd.cri() as calls:
            for one in calls.sandboxes():
                if one.labels.get(AGENT_ID) == agent_id:
                    yield name, one


def containers_of(lab: Lab, agent_id: str) -> Iterator[tuple[str, Any]]:
    """(containerd, container) of one agent."""
    for name, containerd in lab.containerds.items():
        with containerd.cri() as calls:
            for one in calls.containers():
                if one.labels.get(AGENT_ID) == agent_id:
                    yield name, one


def agent_id(agent: PrivateAgent) -> str:
    """The label that marks what this agent made."""
    return (agent.root_dir / "agent-id").read_text().strip()


def traces(agent: PrivateAgent, *, pods: Iterable[Pod] = ()) -> list[str]:
    """One line for each thing that belongs to no pod of `pods` and is still there."""
    lab, known = agent.lab, {str(pod.metadata.uid) for pod in pods}
    mine = agent_id(agent)
    found = []
    living = set()
    for name, sandbox in sandboxes_of(lab, mine):
        living.add(sandbox.id)
        if sandbox.metadata.uid not in known:
            found.append(f"sandbox {sandbox.metadata.name} on {name}")
    for name, one in containers_of(lab, mine):
        if one.labels["io.kubernetes.pod.uid"] not in known or one.pod_sandbox_id not in living:
            found.append(f"container {one.metadata.name} on {name}")
    found += [
        f"mount {path}"
        for path in list_mounts(agent.root_dir / "pods")
        if not any(uid in path for uid in known)
    ]
    found += [f"directory {path}" for path in _entries(agent.root_dir / "pods") if path.name not in known]
    found += [
        f"log directory {path}"
        for path in _entries(agent.logs_dir)
        if path.name.rpartition("_")[2] not in known
    ]
    found += [
        f"cgroup {path}"
        for path in cgroups_below(agent.cgroup_root)
        if path.name.startswith("pod") and path.name[3:] not in known
    ]
    return found


def network_namespaces(lab: Lab) -> list[str]:
    """Mounted network namespaces of both containerds."""
    return [path for path in list_mounts(lab.base_dir) if "/netns/" in path]


def ready_sandboxes(lab: Lab, agent: PrivateAgent) -> dict[str, list[str]]:
    """Pod name to the containerds that have a ready sandbox of it, one entry for each sandbox."""
    found: dict[str, list[str]] = {}
    for name, one in sandboxes_of(lab, agent_id(agent)):
        if one.state == cri.SANDBOX_READY:
            found.setdefault(one.metadata.name, []).append(name)
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
