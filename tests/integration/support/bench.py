"""`Bench`: one running agent for all tests of a file, and short ways to put pods and to look at them.

Looks come from the agent's admin socket (pods, logs, events) and, for what the agent really asked of the
runtime, from containerd itself. Every wait looks until its condition holds or its deadline passes. What needs
a pod, its binding or a container waits for it: a manifest that was just put is none of these yet.

Deadlines are for a machine that is busy with something else; nothing is asserted by how short they are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.status import (
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    PodCondition,
)
from kubeletx_testing.lab import CriCalls, PrivateAgent, bound_runtime, pod_manifest, put_manifest
from kubeletx_testing.lab.pods import SLEEP

DEADLINE = 120.0
"""Seconds that anything may take which usually takes less than one."""
TRAPPED = "trapped"


class Bench:
    """One agent and its manifest directory."""

    def __init__(self, agent: PrivateAgent, manifests: Path) -> None:
        self.agent = agent
        self.manifests = manifests

    # --- pods ---------------------------------------------------------------------------------------

    def put(self, name: str, script: str | None = None, **parts: Any) -> Path:
        """A pod whose container ``main`` runs a shell script; None: it sleeps until it is asked to end."""
        if script is not None:
            parts["command"] = ["sh", "-c", script]
        return put_manifest(self.manifests, pod_manifest(name, **parts))

    def run(self, name: str, script: str, **parts: Any) -> str:
        """What a script printed that must succeed."""
        self.put(name, script, **{**parts, "spec": {"restartPolicy": "Never", **parts.get("spec", {})}})
        pod = self.ended(name)
        text = self.logs(name)
        assert pod.status.phase == "Succeeded", f"{text}\n{pod.status}"
        return text

    def ready(self, name: str, *, seconds: float = DEADLINE) -> Pod:
        """The pod, once it is Running and Ready."""
        return self.agent.wait_for(name, timeout_seconds=seconds)

    def listening(self, name: str, *containers: str) -> Pod:
        """The pod, once it is Ready and its containers, made by `on_term`, have their traps set.

        A signal that comes before its trap is lost: the first process of a container has no default.
        """
        pod = self.ready(name)
        for container in containers or ("main",):
            self._wait_trap(name, container)
        return pod

    def _wait_trap(self, name: str, container: str) -> None:
        until(lambda: TRAPPED in self.logs(name, container), f"trap of {container} in {name}")

    def ended(self, name: str, *, seconds: float = DEADLINE) -> Pod:
        """The pod, once its phase is Succeeded or Failed."""
        return self.until(name, lambda pod: pod.status.phase in {"Succeeded", "Failed"}, seconds=seconds)

    def until(self, name: str, is_wanted: Callable[[Pod], Any], *, seconds: float = DEADLINE) -> Pod:
        """The pod, once `is_wanted`."""
        return self.agent.wait_for(name, lambda pod: bool(is_wanted(pod)), timeout_seconds=seconds)

    def waiting(
        self, name: str, reason: str, *, of: str = "main", seconds: float = DEADLINE
    ) -> ContainerStateWaiting:
        """The state of a container that waits for this reason."""

        def waits(pod: Pod) -> bool:
            one = find_status(pod, of)
            return one is not None and one.state.waiting is not None and one.state.waiting.reason == reason

        found = status(self.until(name, waits, seconds=seconds), of).state.waiting
        assert found is not None
        return found

    def remove(self, *names: str, seconds: float = DEADLINE) -> None:
        """Remove manifests and wait until the pods are gone."""
        for name in names:
            (self.manifests / f"{name}.json").unlink()
        for name in names:
            self.agent.wait_gone(name, timeout_seconds=seconds)

    # --- what is told about them --------------------------------------------------------------------

    def logs(self, name: str, container: str = "main", **options: Any) -> str:
        """A container's log, with the options of the Kubernetes log endpoint."""
        query = urlencode({"container": container, **options})
        path = f"/v1/pods/default/{name}-{self.agent.node_name}/log?{query}"
        return self.agent.get(path, timeout_seconds=10).decode()

    def reasons(self, name: str) -> list[str]:
        """Reasons of the pod's events, oldest first."""
        return [one["reason"] for one in self.events(name)]

    def events(self, name: str) -> list[dict[str, Any]]:
        """The pod's events, oldest first."""
        found: list[dict[str, Any]] = json.loads(self.agent.get("/v1/events"))["items"]
        full = f"{name}-{self.agent.node_name}"
        return [one for one in found if one["involvedObject"].get("name") in {name, full}]

    def event(self, name: str, reason: str, text: str = "", *, seconds: float = DEADLINE) -> dict[str, Any]:
        """The newest event of the pod with this reason and this text in its message, once there is one."""

        def find() -> dict[str, Any] | None:
            found = [one for one in self.events(name) if one["reason"] == reason and text in one["message"]]
            return found[-1] if found else None

        reported: dict[str, Any] = until(find, f"event {reason} of {name} {text}", seconds=seconds)
        return reported

    # --- behind the agent's back --------------------------------------------------------------------

    def exec(self, name: str, script: str, container: str = "main") -> str:
        """What a script prints inside a running container, asked from containerd itself."""
        pod = self.created(name, container)
        with self._calls(pod) as calls:
            answer = calls.call(
                "ExecSync", container_id=container_id(pod, container), cmd=["sh", "-c", script], timeout=20
            )
        text: str = (answer.stdout + answer.stderr).decode()
        return text

    def request(self, name: str, container: str = "main") -> dict[str, Any]:
        """The CRI ContainerConfig with which a container was created."""
        config: dict[str, Any] = self._info(name, container)["config"]
        return config

    def oci(self, name: str, container: str = "main") -> dict[str, Any]:
        """The OCI runtime specification that containerd made of it."""
        spec: dict[str, Any] = self._info(name, container)["runtimeSpec"]
        return spec

    def host_pid(self, name: str, container: str = "main") -> int:
        """The process id of a container's first process on this machine."""
        return int(self._info(name, container)["pid"])

    def sandbox_request(self, name: str) -> dict[str, Any]:
        """The CRI PodSandboxConfig of the newest sandbox."""
        one = until(lambda: self.sandboxes(name), f"a sandbox of {name}")[-1]
        with self._calls(self.bound(name)) as calls:
            answer = calls.call("PodSandboxStatus", pod_sandbox_id=one.id, verbose=True)
        config: dict[str, Any] = json.loads(answer.info["info"])["config"]
        return config

    def units(self, name: str) -> list[Any]:
        """The pod's CRI containers, oldest first; none of a pod whose first is not made yet."""
        pod = self.bound(name)
        with self._calls(pod) as calls:
            return calls.containers(pod_uid=str(pod.metadata.uid))

    def sandboxes(self, name: str) -> list[Any]:
        """The pod's CRI sandboxes, oldest first; none of a pod whose first is not made yet."""
        pod = self.bound(name)
        with self._calls(pod) as calls:
            return [box for box in calls.sandboxes() if box.metadata.uid == pod.metadata.uid]

    def unit_status(self, name: str, container: str = "main") -> Any:
        """The CRI ContainerStatus of a container's present run."""
        pod = self.created(name, container)
        with self._calls(pod) as calls:
            return calls.call("ContainerStatus", container_id=container_id(pod, container)).status

    def pod(self, name: str) -> Pod:
        """The pod as it is now, once the agent knows it."""
        return self.until(name, lambda _pod: True)

    def bound(self, name: str) -> Pod:
        """The pod, once it is bound to a runtime."""
        return self.until(name, bound_runtime)

    def created(self, name: str, container: str = "main") -> Pod:
        """The pod, once a container of it was made and has its id in the status."""
        return self.until(name, lambda pod: find_status(pod, container) and container_id(pod, container))

    def _calls(self, pod: Pod) -> CriCalls:
        return self.agent.lab[bound_runtime(pod)].cri()

    def _info(self, name: str, container: str) -> dict[str, Any]:
        pod = self.created(name, container)
        with self._calls(pod) as calls:
            answer = calls.call("ContainerStatus", container_id=container_id(pod, container), verbose=True)
        info: dict[str, Any] = json.loads(answer.info["info"])
        return info


def until(is_so: Callable[[], Any], what: str, *, seconds: float = DEADLINE) -> Any:
    """The first true value of `is_so()`; fails with `what` when it takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = is_so()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.05)


def on_term(script: str) -> str:
    """A script that runs until it is asked to end and then runs `script`; see `Bench.listening`."""
    quoted = script.replace("'", "'\\''")
    return f"trap '{quoted}' TERM; echo {TRAPPED}; while :; do sleep 0.05; done"


def one_container(name: str, script: str | None = None, **more: Any) -> dict[str, Any]:
    """A busybox container; `script` None: it sleeps until it is asked to end."""
    command = list(SLEEP) if script is None else ["sh", "-c", script]
    return {"name": name, "image": "registry.local/busybox:1", "command": command, **more}


def with_containers(*more: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Fields of a spec whose containers are all named here."""
    return {"containers": list(more), **spec}


def find_status(pod: Pod, name: str = "main") -> ContainerStatus | None:
    """Status of one container of any kind; None in the first moment of a pod."""
    everything = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((one for one in everything if one.name == name), None)


def status(pod: Pod, name: str = "main") -> ContainerStatus:
    """The same for a pod that was looked after already."""
    found = find_status(pod, name)
    assert found is not None, pod.status
    return found


def terminated(pod: Pod, name: str = "main") -> ContainerStateTerminated:
    """How a container ended: now, or before its present run or wait."""
    one = status(pod, name)
    found = one.state.terminated or one.last_state.terminated
    assert found is not None, one
    return found


def container_id(pod: Pod, name: str = "main") -> str:
    """The id as the runtime knows it."""
    return (status(pod, name).container_id or "").partition("://")[2]


def condition(pod: Pod, kind: str) -> PodCondition:
    """One condition; of status Unknown when the pod does not have it."""
    missing = PodCondition(type=kind, status="Unknown")
    return next((one for one in pod.status.conditions if one.type == kind), missing)


def is_running(pod: Pod, name: str = "main") -> bool:
    """True when the container runs now."""
    found = find_status(pod, name)
    return found is not None and found.state.running is not None


def restarts(pod: Pod, name: str = "main") -> int:
    """How often the container was restarted."""
    found = find_status(pod, name)
    return found.restart_count if found is not None else 0


def exited(state: Any) -> bool:
    """True for the CRI state of an ended container."""
    return bool(state == cri.CONTAINER_EXITED)
