"""The agent is killed while it makes and removes machines: one domain per pod, and nothing left at the end."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from kubeletx_libvirt.network.names import guest_device, outer_device
from kubeletx_libvirt.records import Run

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, PrivateAgent, put_manifest
from kubeletx_testing.lab.tiny_machine import make_tiny_machine_image
from tests.integration.support.machines import emulators, files_below, machine_agent, machine_manifest
from tests.integration.support.survival import until

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
        self.uids: set[str] = set()
        self.others = set(lab.network.list_addresses())
        """Of earlier tests in the same lab, whose pods were never deleted."""

    def apply(self) -> list[Path]:
        """One pod after another."""
        machine = {"resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "32Mi"}}}
        return [
            put_manifest(self.manifests, machine_manifest(name, image=str(self.image), machine=machine))
            for name in PODS
        ]

    def kill_when(self, is_so: Callable[[], bool], *, latest_seconds: float = 60) -> None:
        """Kill the agent at this moment, or when it is too late for it; then start it again."""
        deadline = time.monotonic() + latest_seconds
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.001)
        self.agent.kill()
        self.agent.start()

    def wait_running(self) -> None:
        """Every pod has one machine, and one only."""
        pods = [self.agent.wait_for(name, _runs, timeout_seconds=90) for name in PODS]
        self.uids |= {str(pod.metadata.uid) for pod in pods}
        until(
            lambda: self.domains() == {f"kx-{unit[:8]}" for unit in self.shown_units()}, "one domain per pod"
        )
        until(lambda: len(emulators(self.agent)) == len(PODS), "one emulator per pod")
        until(lambda: set(self.units()) == self.shown_units(), "the files of these units only")

    def wait_nothing(self) -> None:
        """No trace of any pod."""
        for name in PODS:
            self.agent.wait_gone(name, timeout_seconds=90)
        until(lambda: not self.leftovers(), "nothing that is left")

    def leftovers(self) -> list[str]:
        """Whatever of machines is there."""
        devices = {name(uid) for uid in self.uids for name in (guest_device, outer_device)}
        kept = ("units", "disks", "sandboxes", "links")
        return [
            *map(str, emulators(self.agent)),
            *self.domains(),
            *(name for name in files_below(self.state) if name.startswith(kept)),
            *(devices & set(os.listdir("/sys/class/net"))),
            *(set(self.lab.network.list_addresses()) - self.others),
        ]

    def shown_units(self) -> set[str]:
        """IDs in the present statuses. A status from before a kill may name a machine that is made again."""
        statuses = [status for pod in self.agent.pods() for status in pod.status.container_statuses]
        return {(status.container_id or "").rpartition("/")[2] for status in statuses}

    def domains(self) -> set[str]:
        """Names of all that are defined."""
        return {path.stem for path in (self.libvirt_root / "etc" / "qemu").glob("kx-*.xml")}

    def begun(self) -> list[Path]:
        """What libvirt wrote about machines that it started or is about to start."""
        return list((self.libvirt_root / "run" / "qemu").glob("kx-*.xml"))

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


def test_a_kill_at_any_moment_leaves_one_domain_per_pod_and_nothing_after_deletion(node: Node) -> None:
    seed = random.randrange(1 << 16)
    print(f"random seed {seed}")
    chance = random.Random(seed)
    manifests = node.apply()
    node.kill_when(lambda: bool(node.units()))  # before a domain is defined
    node.kill_when(lambda: bool(node.domains()))  # before it is started
    node.kill_when(lambda: bool(node.begun()))  # before libvirt has made the emulator
    node.kill_when(lambda: bool(emulators(node.agent)))  # before the start is confirmed
    node.wait_running()
    running = emulators(node.agent).keys()
    _kill_after(node, chance.uniform(0, 2))
    node.wait_running()
    assert emulators(node.agent).keys() == running
    for path in manifests:
        path.unlink()
    node.kill_when(lambda: len(emulators(node.agent)) < len(PODS))  # before the domain is undefined
    node.kill_when(lambda: len(node.domains()) < len(PODS), latest_seconds=5)  # before its files are gone
    _kill_after(node, chance.uniform(0, 2))
    node.wait_nothing()


def test_files_of_machines_whose_domain_was_taken_away_are_swept(node: Node) -> None:
    node.apply()
    node.wait_running()
    # The new machines get the ids of the old ones, often before a test sees that there are none: so a file marks the old.
    marks = [node.state / "units" / name / "mark" for name in node.units()]
    node.agent.kill()
    for mark in marks:
        mark.touch()
    for pid in emulators(node.agent):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not emulators(node.agent), "the end of the emulators")
    for name in node.domains():
        (node.libvirt_root / "etc" / "qemu" / f"{name}.xml").unlink()
    shutil.rmtree(node.libvirt_root / "run" / "qemu", ignore_errors=True)
    node.agent.start()
    until(lambda: not any(mark.exists() for mark in marks), "the end of the old files")
    node.wait_running()


def test_machines_of_which_libvirt_was_killed_before_it_made_the_emulators_run(node: Node) -> None:
    """That moment is too short to be hit each time, so what it leaves is written here."""
    node.apply()
    node.wait_running()
    node.agent.kill()
    for pid in emulators(node.agent):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not emulators(node.agent), "the end of the emulators")
    unborn = "<domstatus state='paused' reason='starting up' pid='0'>"
    job = "<job type='none' async='start' flags='0x0' asyncStarted='1'/>"
    for path in node.begun():
        text, count = re.subn(r"<domstatus [^>]*>", unborn, path.read_text())
        text, jobs = re.subn(r"(?=<domain )", job, text)
        assert (count, jobs) == (1, 1)
        path.write_text(text)
    for name in node.units():
        (node.state / "units" / name / "run.json").write_bytes(msgspec.json.encode(Run(is_starting=True)))
    node.agent.start()
    node.wait_running()


def _kill_after(node: Node, seconds: float) -> None:
    until_time = time.monotonic() + seconds
    node.kill_when(lambda: time.monotonic() > until_time)


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and any(
        one.state.running is not None for one in pod.status.container_statuses
    )
