"""The demo's pod on standby: hibernated, woken by a connection of a port-forward, and hibernated again.

Its runtime is the plugin kubeletx-quark on the first containerd. The memory is read from the kernel's cgroup, not from the
agent. The demo makes no swap on the user's machine, so that only pages of files are dropped.
"""

from __future__ import annotations

import os
import re
import time
import urllib.request

import msgspec

from kubeletx.api.names import STANDBY_CONDITION
from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import HANDLERS, Daemon, LabError, PrivateAgent, PrivateContainerd
from kubeletx_testing.lab.cgroups import list_container_cgroups

RUNTIME = "quark"
POD = "catalog-demo"
PAGE = "catalog of the demo"
PORT = 8080
_USAGE = ("memory.usage_in_bytes", "memory.current")
"""Files with the memory of a cgroup in bytes: of cgroup v1 and v2."""
_LISTENS = re.compile(r"^Forwarding from (\S+) ->", re.MULTILINE)


class Woken(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the hibernated pod to a request. `seconds`: from the request until the whole answer had arrived."""

    page: str
    seconds: float


def endpoint(containerd: PrivateContainerd) -> str:
    """Value of the agent's flag for the endpoint whose containers can be frozen.

    It has the second handler, since the containerd's own endpoint uses the first one.
    """
    return f"container:{RUNTIME}:{containerd.endpoint}?handler={HANDLERS[1]}"


def port_forward(agent: PrivateAgent) -> Daemon:
    """Make the process of ``kubeletx port-forward`` to the pod, on a free local port; it is not started."""
    return Daemon(
        name="port-forward",
        argv=[agent.argv()[0], f"--root-dir={agent.root_dir}", "port-forward", POD, f":{PORT}"],
        directory=agent.lab.base_dir,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def wait_listening(forward: Daemon) -> str:
    """Wait until a started port-forward listens; returns the URL that leads into the pod."""
    found: list[str] = []

    def listens() -> bool:
        found[:] = _LISTENS.findall(forward.log_path.read_text())
        return bool(found)

    forward.wait_until(listens, what="listen on its local port")
    return f"http://{found[-1]}/"


def hibernate(agent: PrivateAgent) -> None:
    """Hibernate the pod by command. Raises LabError if that fails."""
    done = agent.cli("pod", "standby", POD, "--hibernate")
    if done.returncode != 0:
        raise LabError(f"cannot hibernate {POD}: {done.stderr.strip()}")


def is_hibernated(pod: Pod) -> bool:
    """True if the agent reports the pod as hibernated."""
    return any(
        (condition.type, condition.status, condition.reason) == (STANDBY_CONDITION, "True", "Hibernated")
        for condition in pod.status.conditions
    )


def wait_hibernated(agent: PrivateAgent) -> None:
    """Wait until the pod is hibernated. Raises LabError after a time limit."""
    agent.wait_for(POD, is_hibernated)


def wake(url: str) -> Woken:
    """Fetch the pod's page, which wakes it. Raises LabError if there is no answer."""
    began = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            page: str = answer.read().decode()
    except OSError as err:
        raise LabError(f"{POD} does not serve {url}: {err}") from err
    return Woken(page=page.strip(), seconds=time.monotonic() - began)


def memory_bytes(agent: PrivateAgent) -> int:
    """Read the memory of the pod's container from its cgroup. Raises LabError if there is none."""
    pod = agent.wait_for(POD, lambda _pod: True)
    ids = {(status.container_id or "").rpartition("/")[2] for status in pod.status.container_statuses}
    for directory in list_container_cgroups(ids):
        for file in (directory / name for name in _USAGE):
            if file.exists():
                return int(file.read_text())
    raise LabError(f"no cgroup shows the memory of {POD}")


def described(agent: PrivateAgent) -> str:
    """Return the line Standby of ``kubeletx describe pod``, without its title."""
    lines = agent.cli("describe", "pod", POD).stdout.splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Standby:")), "")
