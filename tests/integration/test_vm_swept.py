"""Machines whose domain was taken away while the agent was dead: one domain per pod, and no old files."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import emulators, machine_agent, machine_manifest
from survival import until

from kubeletx.kube.core import Pod
from kubeletx.testing.lab import Lab, PrivateAgent, put_manifest
from kubeletx.testing.lab.tiny_machine import make_tiny_machine_image

MakeAgent = Callable[..., PrivateAgent]
PODS = ("one", "two")


class Node:
    """An agent that is killed and started again, and what it has on the machine."""

    def __init__(self, agent: PrivateAgent, lab: Lab, manifests: Path, image: Path) -> None:
        self.agent = agent
        self.lab = lab
        self.manifests = manifests
        self.image = image
        (root,) = [part.partition("root=")[2] for part in agent.argv() if "root=" in part and "embed" in part]
        self.libvirt_root = Path(root)
        self.state = agent.root_dir / "runtimes" / "libvirt-qemu"

    def apply(self) -> list[Path]:
        """One pod after another."""
        machine = {"resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "32Mi"}}}
        return [
            put_manifest(self.manifests, machine_manifest(name, image=str(self.image), machine=machine))
            for name in PODS
        ]

    def wait_running(self) -> None:
        """Every pod has one machine, and one only."""
        pods = [self.agent.wait_for(name, _runs, timeout_seconds=90) for name in PODS]
        ids = {(pod.status.container_statuses[0].container_id or "").rpartition("/")[2] for pod in pods}
        until(lambda: self.domains() == {f"kx-{one[:8]}" for one in ids}, "one domain per pod")
        until(lambda: len(emulators(self.agent)) == len(PODS), "one emulator per pod")
        until(lambda: set(self.units()) == ids, "the files of these units only")

    def domains(self) -> set[str]:
        """Names of all that are defined."""
        return {path.stem for path in (self.libvirt_root / "etc" / "qemu").glob("kx-*.xml")}

    def units(self) -> list[str]:
        """Of which there are files."""
        directory = self.state / "units"
        return os.listdir(directory) if directory.is_dir() else []


@pytest.fixture
def node(lab: Lab, make_agent: MakeAgent, manifests: Path, tmp_path: Path) -> Node:
    image = make_tiny_machine_image(tmp_path)
    agent = machine_agent(lab, make_agent, imageDirectories=[str(tmp_path)])
    agent.start()
    return Node(agent, lab, manifests, image)


def test_files_of_machines_whose_domain_was_taken_away_are_swept(node: Node) -> None:
    node.apply()
    node.wait_running()
    before = set(node.units())
    node.agent.kill()
    for pid in emulators(node.agent):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not emulators(node.agent), "the end of the emulators")
    for name in node.domains():
        (node.libvirt_root / "etc" / "qemu" / f"{name}.xml").unlink()
    shutil.rmtree(node.libvirt_root / "run" / "qemu", ignore_errors=True)
    node.agent.start()
    until(lambda: not before & set(node.units()), "the end of the old files")
    node.wait_running()


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and any(
        one.state.running is not None for one in pod.status.container_statuses
    )
