"""What the tests of machines on the pod network share: an agent with containers and machines, and asking a guest."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, LabError
from kubeletx_testing.lab.libvirt import embedded_endpoint
from kubeletx_testing.lab.machines import load_machine_image
from tests.integration.support.bench import Bench

BOOT_SECONDS = 150


def make_machines(
    make_bench: Callable[..., Bench],
    lab: Lab,
    directory: Path,
    *,
    endpoint: str = "",
    agent: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Bench:
    """An agent with the lab's containerds and emulated machines of `endpoint`, or of an embedded libvirt.

    `agent`: more fields of the agent's configuration; `settings`: of the plugin.
    """
    images = str(load_machine_image().parent)
    plugin = {"accelerator": "qemu", "imageDirectories": [images], **settings}
    more = dict(agent or {})
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **more,
        "kubeletx": {**more.get("kubeletx", {}), "plugins": {"libvirt": plugin}},
    }
    path = directory / "config.yaml"
    path.write_text(json.dumps(config))
    key = hashlib.sha256(str(directory).encode()).hexdigest()[:6]
    endpoints = f"{lab.endpoints};{endpoint or embedded_endpoint(lab.base_dir / f'v{key}')}"
    return make_bench(endpoints=endpoints, flags=(f"--config={path}",))


def address_of(bench: Bench, name: str) -> str:
    """The pod's address, once its machine was started."""
    pod = bench.until(name, lambda pod: pod.status.phase == "Running" and _ip(pod), seconds=60)
    return _ip(pod)


def ask(address: str, path: str = "/", *, port: int = 80, seconds: float = BOOT_SECONDS) -> str:
    """What the guest answers, once it does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=3) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            if error.code == 404 and time.monotonic() < deadline:  # its own script has not come that far
                time.sleep(0.3)
                continue
            raise LabError(f"the guest at {address} answers {path} with {error.code}") from error
        except OSError as error:
            if time.monotonic() > deadline:
                raise LabError(f"the guest at {address} does not answer: {error}") from error
            time.sleep(0.3)


def _ip(pod: Pod) -> str:
    return pod.status.pod_ip or ""
