"""The demo's volume: a pod on one containerd writes to it and is deleted, and a pod on the other one reads the data.

The storage agent is a process of its own. The volume is an image file below .demo/ on a loop device.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import msgspec

from kubeletx_testing.lab import Lab, LabError, PrivateAgent, PrivateStorageAgent, bound_runtime

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "storage"
WRITER = "writer"
READER = "reader"
VOLUME = "notes"
_RELEASE_SECONDS = 60


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """Record of the time that the volume was in one pod. `volumes`: lines of ``kubeletx get volumes`` about it, with the heading."""

    pod: str
    runtime: str
    text: str
    volumes: tuple[str, ...]


def make_agent(lab: Lab, agent: PrivateAgent) -> PrivateStorageAgent:
    """Make the storage agent of the demo; it is not started."""
    return PrivateStorageAgent(agent, pool=lab.base_dir / "volumes", records=lab.base_dir / "records.db")


def run_pod(agent: PrivateAgent, manifests: Path, name: str) -> Stay:
    """Run the pod, and return what it has in the volume. Raises LabError if it does not get ready."""
    shutil.copy(EXAMPLES / f"{name}.yaml", manifests / f"{name}.yaml")
    pod = agent.wait_for(name)
    full = pod.metadata.name
    done = agent.cli("exec", full, "--", "cat", f"/{VOLUME}/text")
    if done.returncode != 0:
        raise LabError(f"{full} cannot read its volume: {done.stderr.strip()}")
    return Stay(
        pod=full, runtime=bound_runtime(pod), text=done.stdout.strip(), volumes=_shown(agent, pod=full)
    )


def delete_pod(agent: PrivateAgent, manifests: Path, name: str) -> None:
    """Delete the pod and wait for its end, and that of its volume on this node."""
    (manifests / f"{name}.yaml").unlink()
    agent.wait_gone(name)


def remains(volumes: PrivateStorageAgent) -> list[str]:
    """Return what is left of the volume but its image, some seconds after its last pod has ended.

    The storage agent detaches a device that the kernel still has in use after the answer to ``unmount``. Raises LabError
    if the attachments cannot be listed.
    """
    deadline = time.monotonic() + _RELEASE_SECONDS
    while True:
        left = volumes.leftovers() or _attachments(volumes)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def _attachments(volumes: PrivateStorageAgent) -> list[str]:
    done = volumes.cli("attachments", "-o", "json")
    if done.returncode != 0:
        raise LabError(f"cannot list the attachments: {done.stderr.strip()}")
    return [
        f"attachment of {attachment['volume']} to {attachment['pod']}"
        for attachment in json.loads(done.stdout)
    ]


def _shown(agent: PrivateAgent, *, pod: str) -> tuple[str, ...]:
    heading, *lines = agent.cli("get", "volumes").stdout.splitlines()
    return (heading, *(line for line in lines if line.startswith(f"{pod}/")))
