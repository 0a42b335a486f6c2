"""Removal of the volumes of a storage cluster: real agents, loop devices and FUSE, and the double of an API server.

The volumes are in use while their cluster is deleted: a process of a pod has files open, another one waits for a
storage daemon that hangs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubeletx_flexvolume.attachments.definitions import FINALIZER, LEASE, NAMESPACE

from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.apiserver.resources import Resource, resource
from kubeletx_testing.waiting import block_until
from plugins.flexvolume.tests.attachments.cluster_model import (
    RECORDS,
    STORAGE_CLUSTERS,
    add_cluster,
    add_node,
    add_pod,
    add_volume,
    set_up,
)
from tests.integration.storage.storage_agent import AgentNode

pytestmark = pytest.mark.integration

FUSE = {"backend": "fuse"}
STEPS = ["DeletedClaim", "UnmappedVolume", "DeletedPersistentVolume", "UnmountedVolume", "RemovedAttachment"]
WRITE_UNTIL_ERROR = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("writing", flush=True)
try:
    while True:
        os.pwrite(descriptor, b"x" * 4096, 0)
        os.fsync(descriptor)
except OSError as error:
    print(error.strerror, flush=True)
"""
HOLD_OPEN = """
import sys
file = open(sys.argv[1], "w")
print("writing", flush=True)
sys.stdin.read()
"""


class Cluster:
    """An API server and two nodes. `n2` has no volumes: its agent is the one that scans and keeps finalizers."""

    def __init__(self, directory: Path) -> None:
        self.api = ApiServerDouble(directory / "api")
        self.admin = self.api.admin
        self.api.start()
        kubeconfig = set_up(self.api)
        self._processes: list[subprocess.Popen[str]] = []
        self.n2, self.n1 = (self._node(directory, name, kubeconfig) for name in ("n2", "n1"))

    def _node(self, directory: Path, name: str, kubeconfig: Path) -> AgentNode:
        add_node(self.admin, name, f"{name}-boot")
        return AgentNode(directory / name, name, kubeconfig=kubeconfig, boot_id=f"{name}-boot")

    def start(self) -> None:
        self.n2.start()
        block_until(lambda: self.exists("leases", LEASE, NAMESPACE))
        self.n1.start()

    def end(self) -> None:
        for one in self._processes:
            one.kill()
        self.n1.end()
        self.n2.end()
        for one in self._processes:
            one.communicate()
        self.api.close()

    def exists(self, of: str | Resource, name: str, namespace: str = "") -> bool:
        found = resource(of) if isinstance(of, str) else of
        return self.admin.send("GET", found.path(name, namespace)).code == 200

    def mount(self, name: str, **options: str) -> None:
        """Mount a volume that has a PersistentVolume, a claim, and a pod that uses it."""
        add_volume(self.admin, name, claim=f"claim-{name}")
        add_pod(self.admin, f"pod-{name}", f"claim-{name}")
        assert self.n1.mount("web", name, **options).is_success

    def run(self, name: str, program: str) -> subprocess.Popen[str]:
        """Run a Python program of the pod with a file of the volume; returns after its first line."""
        path = str(self.n1.target("web", name) / "file")
        command = self.n1.namespace.command(sys.executable, "-I", "-c", program, path)
        made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._processes.append(made)
        assert made.stdout is not None
        assert made.stdout.readline() == "writing\n"
        return made

    def stop_daemon(self, name: str) -> None:
        """Stop the storage daemon of a volume: it answers nothing any more."""
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.n1.daemons()}
        (pid,) = [pid for pid, line in lines.items() if f"/{name}/".encode() in line]
        os.kill(pid, signal.SIGSTOP)

    def is_released(self, name: str) -> bool:
        """Return True if the volume has no record, and no journal on the node."""
        return not self.exists(RECORDS, name) and name not in self.n1.journals()

    def is_deleted(self, plural: str, name: str, namespace: str = "") -> bool:
        """Return True if an object is being deleted, and exists because its pod has not ended."""
        return "deletionTimestamp" in self.admin.get(plural, name, namespace)["metadata"]

    def end_pod(self, name: str) -> None:
        """Remove the pod of a volume, after which its deleted claim and PersistentVolume go."""
        self.admin.delete("pods", f"pod-{name}", "default", gracePeriodSeconds=0)
        assert not self.exists("persistentvolumeclaims", f"claim-{name}", "default")
        assert not self.exists("persistentvolumes", name)


class Storage:
    """A storage cluster, such as default/main."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.admin, self.name = cluster, cluster.admin, name
        self.option = {"cluster": f"default/{name}"}
        add_cluster(self.admin, name)

    def delete(self) -> None:
        """Delete the storage cluster once it has the finalizer, which holds it while a record names it."""
        block_until(lambda: self.finalizers() == [FINALIZER])
        self.admin.delete(STORAGE_CLUSTERS, self.name, "default")

    def finalizers(self) -> list[str]:
        found = self.admin.get(STORAGE_CLUSTERS, self.name, "default")["metadata"]
        return list(found.get("finalizers") or [])

    def is_gone(self) -> bool:
        return not self.cluster.exists(STORAGE_CLUSTERS, self.name, "default")

    def steps(self, volume: str) -> list[str]:
        """Return the reasons of the cluster's events about a volume, in their order."""
        events = self.admin.list("events", "default")["items"]
        events.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [
            one["reason"]
            for one in events
            if one["involvedObject"]["name"] == self.name and volume in one["message"].split()
        ]

    def gets_event(self, reason: str, volume: str) -> None:
        """Wait until the cluster has an event about a volume."""
        block_until(lambda: reason in self.steps(volume))

    def becomes_clean_of(self, volume: str) -> None:
        """Wait until a volume has gone through all steps."""
        block_until(lambda: self.steps(volume)[-1:] == STEPS[-1:])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.end()


def test_volumes_in_use_go_step_by_step_and_one_that_hangs_stops_none(cluster: Cluster) -> None:
    n1, main = cluster.n1, Storage(cluster, "main")
    kinds = {"pv-loop": {}, "pv-fuse": FUSE, "pv-hangs": FUSE}
    for name, options in kinds.items():
        cluster.mount(name, **options, **main.option)
    cluster.mount("pv-other")
    writers = [cluster.run(name, WRITE_UNTIL_ERROR) for name in ("pv-fuse", "pv-hangs")]
    cluster.stop_daemon("pv-hangs")
    main.delete()

    block_until(lambda: "is being deleted" in n1.mount("late", "pv-late", **main.option).message)
    for writer in writers:
        output, _ = writer.communicate(timeout=60)
        assert output, "a pod that writes gets an error instead of an endless wait"
    for name in kinds:
        main.becomes_clean_of(name)
        assert sorted(one for one in main.steps(name) if one in STEPS) == sorted(STEPS)
        assert cluster.is_released(name)
        assert cluster.is_deleted("persistentvolumeclaims", f"claim-{name}", "default")
        assert cluster.is_deleted("persistentvolumes", name)
        cluster.end_pod(name)
    block_until(main.is_gone)

    assert not cluster.is_deleted("persistentvolumes", "pv-other")
    assert {Path(one).name for one in n1.mounts()} == {"pv-other"}
    (n1.inside("web", "pv-other") / "file").write_text("it works")
    assert n1.unmount("web", "pv-other").is_success
    n1.becomes_clean()


def test_an_agent_that_is_killed_continues_without_any_object(cluster: Cluster) -> None:
    n1, second = cluster.n1, Storage(cluster, "second")
    kinds = {"pv-open-loop": {}, "pv-open-fuse": FUSE}
    for name, options in kinds.items():
        cluster.mount(name, **options, **second.option)
    holders = {name: cluster.run(name, HOLD_OPEN) for name in kinds}
    second.delete()
    for name in kinds:
        second.gets_event("DeletedPersistentVolume", name)
    n1.kill()
    for name in kinds:
        cluster.end_pod(name)
    n1.start()
    refusal = n1.mount("late", "pv-late", **second.option).message
    assert "is being deleted" in refusal
    assert second.finalizers() == [FINALIZER], "open files keep the device, and so the record"
    for name, holder in holders.items():
        holder.kill()
        second.becomes_clean_of(name)
        assert {*STEPS} <= {*second.steps(name)}
        assert cluster.is_released(name)
    block_until(second.is_gone)
    n1.becomes_clean()
