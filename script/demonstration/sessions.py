"""The demo's pod of a FornaxCore: frozen without sessions, woken by a session, and frozen again after it.

The core is simulated, and a process of its own. The application is that of examples/sessions/. The lab has no image with
Python, so its container has the virtual environment of the demo and what that needs, read-only.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.api.names import RUNTIME_SERVICE_NAME, SESSIONS, STANDBY
from kubeletx_testing.lab import Lab, LabError, PrivateAgent, image_ref
from kubeletx_testing.lab.cgroups import list_container_cgroups
from kubeletx_testing.lab.fornaxcore import PrivateCores

from . import standby

ROOT = Path(__file__).resolve().parents[2]
POD = "counters"
SESSION = "default/ann"
APPLICATION = "default/counters"
PORT = 8080
BEGIN = 41
"""Data of the session: the number at which the application begins to count."""
_HOST_DIRECTORIES = (
    *(Path(name) for name in ("/usr", "/lib", "/lib64")),
    *(Path(prefix) for prefix in (sys.base_prefix, sys.prefix)),
    *(ROOT / name for name in ("sdk", "examples/sessions")),
)
"""What a Python program of the virtual environment reads: system libraries, interpreter, packages, SDK, application."""
_WAIT_SECONDS = 60
_FROZEN = {"freezer.state": "FROZEN", "cgroup.events": "frozen 1"}
"""File of a frozen cgroup → text in it: of cgroup v1 and v2."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the pod from its begin to its end.

    `create_seconds`: from the core's command until the pod was frozen. `open_seconds`: from the core's command until
    it had the session as Available. `answer`: of the application at `url`. `freeze_seconds`: from the core's command to close the
    session until the pod was frozen again.
    """

    create_seconds: float
    open_seconds: float
    url: str
    answer: str
    freeze_seconds: float


def make_cores(lab: Lab) -> PrivateCores:
    """Make the program of the simulated core; it is not started."""
    patient = (f"--create-seconds={_WAIT_SECONDS}", f"--open-seconds={_WAIT_SECONDS}")
    return PrivateCores(lab.base_dir, flags=patient)


def serve(agent: PrivateAgent, cores: PrivateCores) -> Served:
    """Let the core create the pod, and open and close a session. Raises LabError if a step fails."""
    cores.daemon.wait_until(lambda: _is_ready(agent, cores), what="ready node", timeout_seconds=_WAIT_SECONDS)
    began = time.monotonic()
    cores.call("POST", "/pods", **_request())
    wait_frozen(agent, cores)
    created = time.monotonic() - began
    opened = cores.call(
        "POST", f"/sessions?wait=Available&seconds={_WAIT_SECONDS}",
        id=SESSION, application=APPLICATION, data=str(BEGIN),
    )  # fmt: skip
    if opened["status"] != "Available":
        raise LabError(f"session {SESSION} is {opened['status']}: {opened['message']}")
    url = page(agent, SESSION.rpartition("/")[2])
    answer = _ask(url)
    began = time.monotonic()
    cores.call("DELETE", f"/sessions/{SESSION}?wait=Closed&seconds={_WAIT_SECONDS}")
    wait_frozen(agent, cores)
    return Served(
        create_seconds=created,
        open_seconds=opened["available_at"] - opened["requested_at"],
        url=url,
        answer=answer,
        freeze_seconds=time.monotonic() - began,
    )


def wait_frozen(agent: PrivateAgent, cores: PrivateCores) -> None:
    """Wait until the core has the pod as Standby, and the kernel its container as frozen."""
    cores.daemon.wait_until(
        lambda: _is_standby(cores) and _is_frozen(agent), what="frozen pod", timeout_seconds=_WAIT_SECONDS
    )


def delete_pod(agent: PrivateAgent, cores: PrivateCores) -> None:
    """Let the core delete the pod, and wait for its end."""
    cores.call("DELETE", f"/pods/default/{POD}")
    agent.wait_gone(POD)


def remains(agent: PrivateAgent) -> list[str]:
    """Certificates and metadata of instances whose pods are gone."""
    return [str(directory) for directory in (agent.root_dir / "sessions" / "instances").glob("*")]


def page(agent: PrivateAgent, name: str) -> str:
    """URL of the session with this name."""
    pod = agent.wait_for(POD, lambda pod: bool(pod.status.pod_ip))
    return f"http://{pod.status.pod_ip}:{PORT}/{name}"


def _is_ready(agent: PrivateAgent, cores: PrivateCores) -> bool:
    node = cores.find("nodes", f"fornax.centaurusinfra.io/{agent.node_name}")
    return node is not None and bool(node["ready"])


def _is_standby(cores: PrivateCores) -> bool:
    pod = cores.find("pods", f"default/{POD}")
    if pod is None:
        raise LabError(f"the core has no pod {POD}: the node has refused or ended it")
    return bool(pod["state"] == "Standby")


def _is_frozen(agent: PrivateAgent) -> bool:
    pod = agent.wait_for(POD, lambda _pod: True)
    ids = {(status.container_id or "").rpartition("/")[2] for status in pod.status.container_statuses}
    files = [
        (directory / name, text)
        for directory in list_container_cgroups(ids)
        for name, text in _FROZEN.items()
    ]
    return any(text in _read(path) for path, text in files)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # of the other cgroup version, or removed just now
        return ""


def _ask(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: str = answer.read().decode()
    except OSError as err:
        raise LabError(f"{POD} does not serve {url}: {err}") from err
    return text.strip()


def _request() -> dict[str, Any]:
    """Body of the core's POST /pods."""
    directories = [
        directory
        for directory in dict.fromkeys(_HOST_DIRECTORIES)
        if directory.is_dir() and not any(parent in _HOST_DIRECTORIES for parent in directory.parents)
    ]
    container = {
        "name": POD,
        "image": image_ref("busybox"),
        "command": [sys.executable, str(ROOT / "examples" / "sessions" / "counters.py")],
        "env": [{"name": "PORT", "value": str(PORT)}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": f"host-{number}", "mountPath": str(directory), "readOnly": True}
            for number, directory in enumerate(directories)
        ],
    }
    volumes = [
        {"name": f"host-{number}", "hostPath": {"path": str(directory)}}
        for number, directory in enumerate(directories)
    ]
    return {
        "name": POD,
        "application": APPLICATION,
        "annotations": {RUNTIME_SERVICE_NAME: standby.RUNTIME, SESSIONS: "true", STANDBY: "standby"},
        "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 5},
    }
