"""A node with the storage agent, for benchmarks: volumes of backend loop, mounted by the agent and by hand.

All of it is in one mount namespace, which must be private to the calling process: see `storage_child`. Floor and agent mount the
same images. Directories of the floor exist before the clock runs; the agent makes its own.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from kubeletx_flexvolume.agent.config import AgentConfig
from kubeletx_flexvolume.agent.lifecycle import StorageAgent
from kubeletx_flexvolume.agent.operations import Operations
from kubeletx_flexvolume.agent.paths import TargetPath
from kubeletx_flexvolume.agent.wire import ask_agent
from kubeletx_flexvolume.backends.pools import Pool
from kubeletx_flexvolume.values import MountRequest, PodRef, StorageVolume

from kubeletx.api import BoundedThreadPool, SystemClock, Unavailable, WhenFull
from kubeletx_testing.lab.process import Daemon

NODE: Final = "bench"
PROGRAM: Final = ("/usr/bin/python3", "-I", "-S")
"""How a kubelet's shebang starts the driver."""
_SIZE: Final = 64 << 20
_THREADS: Final = 8


class ByHand:
    """The floor: what an administrator types to mount one image once for the node and once for a pod.

    `checks`: also look at its content, as the agent does before each mount.
    """

    def __init__(self, image: Path, directory: Path, *, checks: bool = False) -> None:
        self._image = image
        self._checks = checks
        self._device = ""
        self._global, self._target = directory / "global", directory / "target"
        for one in (self._global, self._target):
            one.mkdir(parents=True, exist_ok=True)

    def mount(self) -> None:
        """Attach and mount."""
        self._device = run("losetup", "--find", "--show", str(self._image)).strip()
        if self._checks:
            run("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", self._device)
            run("fsck.ext4", "-p", self._device)
        run("mount", "-t", "ext4", self._device, str(self._global))
        run("mount", "--bind", str(self._global), str(self._target))

    def unmount(self) -> None:
        """Unmount and detach."""
        run("umount", str(self._target))
        run("umount", str(self._global))
        run("losetup", "--detach", self._device)


class StorageNode:
    """Directories and images of the node. `directory`: on a disk, as the records and journals are written through."""

    def __init__(self, directory: Path, *, volumes: int) -> None:
        self.directory = directory.resolve()
        self.pool, self.root = self.directory / "pool", self.directory / "kubelet"
        self.state, self.plugins = self.directory / "state", self.directory / "plugins"
        self.records = self.directory / "records" / "records.db"
        for one in (self.pool, self.root, self.plugins):
            one.mkdir(parents=True)
        self.names = [f"pv-{number}" for number in range(volumes)]
        for name in self.names:
            self._make_image(name)
            Path(self.target(name).path).mkdir(parents=True)

    def target(self, name: str) -> TargetPath:
        """Return the path at which the pod of a volume gets it."""
        return TargetPath(kubelet_root=str(self.root), pod_uid=f"{name}-uid", name=name)

    def request(self, name: str) -> MountRequest:
        """Return the request of a mount, as the agent reads it from the options."""
        return MountRequest(
            volume=StorageVolume(name=name, backend="loop", image=name),
            pod=PodRef(namespace="default", name=f"{name}-pod", uid=f"{name}-uid"),
            target=self.target(name).path,
        )

    def by_hand(self, name: str, *, checks: bool = False) -> ByHand:
        """Return the floor of the volume."""
        return ByHand(self.pool / name, self.directory / "floor" / name, checks=checks)

    def call(self, *arguments: str) -> None:
        """Run the installed driver once. Raises if it fails."""
        run(*PROGRAM, str(self.plugins / "kubeletx.io~storage" / "storage"), *arguments)

    def options(self, name: str) -> str:
        """Return the options with which a kubelet calls ``mount``."""
        return json.dumps(
            {
                "backend": "loop",
                "kubernetes.io/fsType": "ext4",
                "kubernetes.io/readwrite": "rw",
                "kubernetes.io/pvOrVolumeName": name,
                "kubernetes.io/pod.name": f"{name}-pod",
                "kubernetes.io/pod.namespace": "default",
                "kubernetes.io/pod.uid": f"{name}-uid",
                "kubernetes.io/serviceAccount.name": "default",
            }
        )

    @contextlib.asynccontextmanager
    async def operations(self) -> AsyncIterator[Operations]:
        """Yield the agent's operations, in this process, with records of their own."""
        config = AgentConfig(
            node_name=NODE,
            boot_id="bench-boot",
            kubelet_root_dirs=(self.root,),
            state_dir=self.directory / "state-in-process",
            records=self.directory / "records-in-process" / "records.db",
            pools=(Pool(name="default", directory=str(self.pool)),),
        )
        config.state_dir.mkdir(mode=0o700)
        threads = BoundedThreadPool("files", _THREADS, when_full=WhenFull.WAIT, owner="storage agent")
        agent = StorageAgent(config, blocking=threads.run, clock=SystemClock())
        try:
            await agent.attachments.before_serving()
            yield agent.operations
            await agent.operations.close(10)
        finally:
            await agent.attachments.close()
            threads.close()

    @contextlib.contextmanager
    def agent(self) -> Iterator[None]:
        """Run the agent as a process, with the driver installed."""
        options = {
            "--state-dir": self.state,
            "--volume-plugin-dir": self.plugins,
            "--kubelet-root-dir": self.root,
            "--pool": f"default={self.pool}",
            "--records": self.records,
            "--node-name": NODE,
        }
        words = [str(word) for pair in options.items() for word in pair]
        argv = [
            sys.executable,
            "-m",
            "kubeletx_flexvolume.agent.main",
            "agent",
            "--no-known-plugin-dirs",
            *words,
        ]
        daemon = Daemon(name="storage-agent", argv=argv, directory=self.directory / "log")
        daemon.start()
        try:
            daemon.wait_until(self._answers, what="an answer to init")
            yield
        finally:
            daemon.stop(grace_seconds=20)

    def agent_is_idle(self) -> bool:
        """Return True if the agent process has no volume."""
        return not ask_agent(self.state)["volumes"]

    def _answers(self) -> bool:
        try:
            ask_agent(self.state)
            self.call("init")
        except (Unavailable, OSError, subprocess.CalledProcessError):
            return False
        return True

    def _make_image(self, name: str) -> None:
        path = self.pool / name
        with path.open("wb") as file:
            file.truncate(_SIZE)
        run("mkfs.ext4", "-q", "-F", "-m0", str(path))


def run(*command: str) -> str:
    """Run a program and return its output. Raises CalledProcessError."""
    return subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ).stdout
