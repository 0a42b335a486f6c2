"""Nodes for whole pods with FlexVolumes: an agent of kubeletx with its storage agent, and drivers that wait at gates."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from kubeletx_flexvolume.attachments.stores import open_stores
from kubeletx_flexvolume.attachments.views import entry_rows

from kubeletx.api import SystemClock
from kubeletx_testing.lab import PrivateAgent, PrivateStorageAgent
from kubeletx_testing.lab.disk import detach_loop_devices, loop_devices
from kubeletx_testing.lab.mounts import list_mounts, unmount_below
from tests.integration.storage.flex_drivers import SCRIPTS
from tests.integration.support.bench import Bench, until

STORAGE = "kubeletx.io/storage"

_GATES = """
wait_at() {
    [ -e "$gates/$1" ] || return 0
    : > "$gates/$1.reached"
    while [ -e "$gates/$1" ]; do sleep 0.02; done
}
"""
_GATED = """#!/bin/sh
gates={gates}
{functions}
wait_at "before-$1"
output=$({program} "$@")
code=$?
wait_at "after-$1"
printf '%s\\n' "$output"
exit $code
"""


def storage(name: str, **options: str) -> dict[str, Any]:
    """A volume of the storage agent on a loop device, written in a pod."""
    given = {"backend": "loop", "size": "16Mi", "name": name, **options}
    return {"name": name, "flexVolume": {"driver": STORAGE, "fsType": "ext4", "options": given}}


def third_party(name: str, driver: str, **options: str) -> dict[str, Any]:
    """A volume of another driver, written in a pod."""
    return {"name": name, "flexVolume": {"driver": driver, "options": options}}


def parts(*volumes: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Parts of a manifest: each volume is mounted at a directory of its name."""
    mounts = [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes]
    return {"container": {"volumeMounts": mounts}, "spec": {"volumes": list(volumes), **spec}}


class StorageOfNode:
    """Storage of a node. `shared`: directory of the pool and the records, which nodes may share.

    Its driver for kubeletx calls the driver that the storage agent installs, and waits before and after the call as
    long as a test keeps a gate closed.
    """

    def __init__(self, agent: PrivateAgent, shared: Path) -> None:
        self.agent = agent
        self.pool = shared / "pool"
        self.own = agent.lab.base_dir / f"{agent.root_dir.name}-drivers"
        self.gates = self.own / "gates"
        self.state = self.own / "state"
        for one in (self.gates, self.state / "data"):
            one.mkdir(parents=True, exist_ok=True)
        self.process = PrivateStorageAgent(
            agent, pool=self.pool, records=shared / "records.db", plugins=self.own / "plugins"
        )

    def start(self) -> None:
        """Start the storage agent, install the driver with gates, and wait until kubeletx can use it."""
        self.process.start()
        real = shlex.quote(str(self.own / "plugins/kubeletx.io~storage/storage"))
        text = _GATED.format(gates=shlex.quote(str(self.gates)), functions=_GATES, program=real)
        self._install(STORAGE, text)

    def install(self, driver: str, script: str = "") -> None:
        """Install a driver of a third party. `script`: after its head; empty: that of `flex_drivers`."""
        gates, state = shlex.quote(str(self.gates)), shlex.quote(str(self.state))
        self._install(driver, f"#!/bin/sh\ngates={gates}\nstate={state}\n{_GATES}{script or SCRIPTS[driver]}")

    def _install(self, driver: str, text: str) -> None:
        path = self.agent.volume_plugin_dir / driver.replace("/", "~") / driver.rpartition("/")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(".new")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(path)

    # --- gates ---

    def close_gate(self, gate: str) -> None:
        """Let the driver wait at a gate, such as ``before-mount``."""
        (self.gates / f"{gate}.reached").unlink(missing_ok=True)
        (self.gates / gate).touch()

    def wait_at(self, gate: str) -> None:
        """Wait until a call has reached the gate."""
        until((self.gates / f"{gate}.reached").exists, f"a call at the gate {gate}")

    def open_gate(self, gate: str) -> None:
        """Let the call continue."""
        (self.gates / gate).unlink()

    # --- what is there ---

    def entries(self) -> list[str]:
        """Return the entries of all attachment records, as NODE POD."""
        return asyncio.run(_entries(self.process.records))

    def mounts(self) -> list[str]:
        """Return the mount points of FlexVolumes."""
        paths = list_mounts(self.agent.root_dir)
        return [one for one in paths if "~" in one or "/plugins/" in one]

    def volumes(self, pod: str) -> dict[str, str]:
        """Return the states of a pod's volumes by name, as the agent shows them."""
        items = msgspec.json.decode(self.agent.get("/v1/volumes"))["items"]
        return {one["name"]: one["state"] for one in items if one["pod"].startswith(pod)}

    def left(self) -> list[str]:
        """Return all that a node without pods must not have."""
        own = [one for one in self.entries() if one.startswith(f"{self.agent.node_name} ")]
        state = self.process.state_dir / "volumes"
        host = self.agent.root_dir / "plugins/flexvolume"
        hosts = [*(host / "volumes").iterdir(), *(host / "running").iterdir()]
        files = [*state.glob("*.json"), *hosts, *(self.agent.root_dir / "pods").iterdir()]
        return [*self.mounts(), *self.devices(), *own, *map(str, files)]

    def devices(self) -> list[str]:
        """Return the loop devices of the pool, and of the third-party drivers."""
        return [*loop_devices(self.pool), *loop_devices(self.state)]

    def end(self) -> None:
        """End the storage agent and remove what a failed test has left."""
        for gate in self.gates.iterdir():
            gate.unlink()
        self.agent.stop()
        self.process.stop()
        unmount_below(self.agent.root_dir)
        detach_loop_devices(self.pool)
        detach_loop_devices(self.state)


async def _entries(records: Path) -> list[str]:
    stores = open_stores(kubeconfig=None, records=records, node="test", clock=SystemClock())
    try:
        rows = await entry_rows(stores.attachments, ())
    finally:
        await stores.close()
    return [f"{one['node']} {one['pod']}" for one in rows]


class StorageNode(Bench):
    """`Bench` of a node with storage."""

    def __init__(self, bench: Bench, shared: Path) -> None:
        super().__init__(bench.agent, bench.manifests)
        self.storage = StorageOfNode(bench.agent, shared)

    def becomes_clean(self) -> None:
        """Wait until nothing of a pod or a volume is left; entries of records go after the answer to ``unmount``."""
        until(lambda: not self.storage.left(), f"nothing of volumes is left: {self.storage.left()}")

    def withdraw(self, name: str) -> None:
        """Remove the manifest of a pod, and do not wait for the pod."""
        (self.manifests / f"{name}.json").unlink()
