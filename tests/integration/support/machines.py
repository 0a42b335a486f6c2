"""What the tests of virtual machines share: agents with libvirt, manifests, and looks at QEMU itself."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, LabError, PrivateAgent
from kubeletx_testing.lab.libvirt import embedded_endpoint
from kubeletx_testing.lab.machines import load_machine_image
from kubeletx_testing.lab.process import list_pids

_NUMBERS = itertools.count(1)


def machine_agent(
    lab: Lab,
    make_agent: Callable[..., PrivateAgent],
    *,
    endpoints: str | None = None,
    kubelet: Mapping[str, Any] | None = None,
    **settings: Any,
) -> PrivateAgent:
    """An agent, not started, with a container runtime and libvirt's embedded driver.

    `settings`: of the plugin. `kubelet`: more fields of the configuration.
    """
    number = next(_NUMBERS)
    config = lab.base_dir / f"vm-{number}.yaml"
    plugin = {"accelerator": "qemu", "imageDirectories": [str(load_machine_image().parent)], **settings}
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "kubeletx": {"plugins": {"libvirt": plugin}},
                **(kubelet or {}),
            }
        )
    )
    endpoint = endpoints or embedded_endpoint(lab.base_dir / f"v{number}")
    return make_agent(
        name=f"vm-{number}",
        endpoints=f"container:containerd-a:{lab['containerd-a'].endpoint};{endpoint}",
        flags=[f"--config={config}"],
    )


def machine_manifest(
    name: str,
    *,
    image: str | None = None,
    machine: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A pod with one small machine; `machine` is merged over spec.virtualMachine."""
    body = {
        "name": name,
        "image": image or str(load_machine_image()),
        "resources": {"limits": {"cpu": "1", "memory": "192Mi"}},
        **(machine or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"terminationGracePeriodSeconds": 2, "virtualMachine": body, **(spec or {})},
    }


def emulators(agent: PrivateAgent) -> dict[int, str]:
    """Process ids and command lines of the QEMU processes whose disks belong to this agent."""
    found = {}
    for pid in list_pids():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "qemu-system" in line and f"{agent.root_dir}/" in line:
            found[pid] = line
    return found


def type_until(process: subprocess.Popen[str], text: str, answer: str) -> None:
    """Type on the console and read until the answer; a guest that says nothing is ended by the test's time-out."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text)
    process.stdin.flush()
    seen = ""
    while answer not in seen:
        character = process.stdout.read(1)
        assert character, f"the session ended before {answer!r}:\n{seen}"
        seen += character


class Keyboards:
    """Typing at the serial consoles of machines, also while the agent is away.

    Each console stays open: QEMU hears of someone at it a second after he came, and drops what one typed who
    has left.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def sit_down(self, agent: PrivateAgent, pod: str) -> None:
        """At the console of the pod's machine that runs now."""
        text = agent.get(f"/v1/pods/default/{pod}/vm/definition").decode()
        source = ElementTree.fromstring(text).find("devices/serial/source")
        assert source is not None
        if (before := self._open.pop(pod, None)) is not None:
            os.close(before)  # of a machine that ended, or the same once more
        self._open[pod] = os.open(source.get("path", ""), os.O_WRONLY | os.O_NOCTTY)

    def type(self, pod: str, text: str) -> None:
        """Where one sat down last."""
        os.write(self._open[pod], text.encode())

    def close(self) -> None:
        """Leave all."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


def is_running(pod: Pod) -> bool:
    """The pod's machine is on."""
    return pod.status.phase == "Running"


def wait_console(agent: PrivateAgent, pod: str, text: str, *, timeout_seconds: float = 120) -> str:
    """The pod's log once it holds `text`.

    Asked of the agent itself: one command after the other would take a processor away from the guest.
    """
    deadline = time.monotonic() + timeout_seconds
    log = ""
    while True:
        with contextlib.suppress(LabError):  # no such pod yet, or no log
            log = agent.get(f"/v1/pods/default/{pod}/log").decode(errors="replace")
        if text in log:
            return log
        if time.monotonic() > deadline:
            pytest.fail(
                f"{text!r} did not appear in the console log of {pod} in {timeout_seconds} s:\n{log[-2000:]}"
            )
        time.sleep(0.2)


def files_below(directory: Path) -> list[str]:
    """Every file below a directory, relative."""
    return sorted(
        os.path.relpath(Path(parent, name), directory)
        for parent, _, names in os.walk(directory)
        for name in names
    )
