"""A node with a real storage agent: an own process in a mount namespace of the node, called through the installed driver.

The namespace belongs to a process that only waits. So mounts survive a SIGKILL of the agent, as they do on a node, and no
mount is visible outside. `end` removes everything.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from kubeletx_flexvolume.agent.wire import ask_agent
from kubeletx_flexvolume.attachments.stores import open_stores
from kubeletx_flexvolume.attachments.views import entry_rows
from kubeletx_flexvolume.driver import program

from kubeletx.api import SystemClock, Unavailable
from kubeletx.linux.mounts import MountPoint, read_mounts
from kubeletx_testing.lab.process import Daemon
from kubeletx_testing.waiting import block_until

MIB = 1 << 20
SIZE = f"{16 * MIB}"
READ_ONLY = {"kubernetes.io/readwrite": "ro"}
XFS = {"kubernetes.io/fsType": "xfs", "size": f"{320 * MIB}"}
"""XFS needs at least 300 MiB."""
_SYS_BLOCK = Path("/sys/block")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of the driver to one call. `code`: its exit status."""

    status: str
    message: str = ""
    code: int = 0

    @property
    def is_success(self) -> bool:
        """True if the call succeeded, by status and exit status."""
        return (self.status, self.code) == ("Success", 0)


class Namespace:
    """A private mount namespace, held by a process."""

    def __init__(self) -> None:
        command = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            "echo held; exec sleep infinity",
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"

    @property
    def pid(self) -> int:
        """Process of the namespace."""
        return self._process.pid

    def path(self, path: Path | str) -> Path:
        """Return the path by which this process reaches `path` of the namespace."""
        return Path(f"/proc/{self.pid}/root{path}")

    def command(self, *command: str) -> list[str]:
        """Return the command that runs `command` in the namespace."""
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", "--", *command]

    def run(self, *command: str) -> None:
        """Run a command in the namespace. Raises if it fails."""
        subprocess.run(self.command(*command), check=True, capture_output=True)

    def table(self) -> tuple[MountPoint, ...]:
        """Return the mounts of the namespace."""
        return read_mounts(table=Path(f"/proc/{self.pid}/mountinfo"))

    def end(self) -> None:
        """End the process; the kernel unmounts everything in the namespace with its last process."""
        self._process.kill()
        self._process.communicate()


class AgentNode:
    """A node in `directory`, with its own agent. `pool`, `records`: may be those of another node of the test.

    `kubeconfig`: the attachment records are those of its cluster.
    """

    def __init__(
        self,
        directory: Path,
        name: str = "n1",
        *,
        pool: Path | None = None,
        records: Path | None = None,
        kubeconfig: Path | None = None,
        boot_id: str = "",
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.name = name
        self.boot_id = boot_id
        self.namespace = Namespace()
        self.root = self.directory / "kubelet"
        self.plugins = self.directory / "plugins"
        self.state = self.directory / "state"
        self.pool = pool or self.directory / "pool"
        self.records = records or self.directory / "records.db"
        self.kubeconfig = kubeconfig
        self.options = list(options)
        self.environment = environment
        for one in (self.root, self.plugins, self.pool):
            one.mkdir(parents=True, exist_ok=True)
        self.agent = self._daemon()

    @property
    def driver(self) -> Path:
        """The installed driver."""
        return self.plugins / "kubeletx.io~storage" / "storage"

    @property
    def socket(self) -> Path:
        """The socket beside the driver."""
        return self.driver.parent / program.SOCKET

    def start(self) -> None:
        """Start the agent, and wait until the driver reaches it."""
        self.agent = self._daemon()
        self.agent.start()
        self.wait()

    def wait(self) -> None:
        """Wait until the driver reaches the agent that was started."""
        self.agent.wait_until(self._answers, what="an answer to init", timeout_seconds=60)

    def stop(self) -> None:
        """End the agent as systemd does."""
        self.agent.stop(grace_seconds=20)

    def kill(self) -> None:
        """Kill the agent with SIGKILL."""
        self.agent.kill()

    def reboot(self, boot_id: str) -> None:
        """Lose all mounts, devices and processes, as a node does that loses power; the agent is not started."""
        self.agent.kill()
        self._end_daemons()
        self._detach()  # the files of exports have no paths without the namespace
        self.namespace.end()
        self._detach()
        self.namespace = Namespace()
        self.boot_id = boot_id

    def end(self) -> None:
        """End everything of the node, also after a failed test."""
        self.agent.stop(grace_seconds=5)
        self._end_daemons()
        self._detach()  # the files of exports have no paths without the namespace
        self.namespace.end()
        self._detach()

    def status(self) -> dict[str, Any]:
        """Return the state of the agent."""
        return ask_agent(self.namespace.path(self.state))

    # --- the kubelet ---

    def target(self, pod: str, name: str) -> Path:
        """Return the path at which a pod gets a volume."""
        return self.root / "pods" / f"{pod}-uid" / "volumes" / "kubeletx.io~storage" / name

    def inside(self, pod: str, name: str) -> Path:
        """Return the pod's volume, as this process reaches it."""
        return self.namespace.path(self.target(pod, name))

    def mount(self, pod: str, name: str, /, **options: str) -> Reply:
        """Call ``mount`` as a kubelet does."""
        self.make_target(pod, name)
        return self.call("mount", str(self.target(pod, name)), self.options_text(pod, name, **options))

    def unmount(self, pod: str, name: str) -> Reply:
        """Call ``unmount`` as a kubelet does: not without a directory, which it removes after a success."""
        target = self.target(pod, name)
        if not target.exists():
            return Reply(status="Success")
        reply = self.call("unmount", str(target))
        if reply.is_success:
            target.rmdir()
        return reply

    def make_target(self, pod: str, name: str) -> None:
        """Make the directory at which a pod gets a volume."""
        self.target(pod, name).mkdir(mode=0o750, parents=True, exist_ok=True)

    def options_text(self, pod: str, name: str, /, **options: str) -> str:
        """Return the options of a mount. An option with an empty text is left out."""
        merged = {
            "backend": "loop",
            "size": SIZE,
            "kubernetes.io/fsType": "ext4",
            "kubernetes.io/readwrite": "rw",
            "kubernetes.io/pvOrVolumeName": name,
            "kubernetes.io/pod.name": pod,
            "kubernetes.io/pod.namespace": "default",
            "kubernetes.io/pod.uid": f"{pod}-uid",
            "kubernetes.io/serviceAccount.name": "default",
            **options,
        }
        return json.dumps({key: value for key, value in merged.items() if value})

    def call(self, *arguments: str, **options: Any) -> Reply:
        """Run the driver once and return its answer."""
        return finished(self.begin(*arguments, **options))

    def begin(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the driver, as a kubelet does, and do not wait for its end."""
        command = ["/usr/bin/python3", "-I", "-S", str(self.driver), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)

    # --- what is there ---

    def mounts(self) -> list[str]:
        """Return the paths below the kubelet's root on which something is mounted, one for each mount."""
        return [one.target for one in self.namespace.table() if one.target.startswith(f"{self.root}/")]

    def devices(self) -> list[str]:
        """Return the loop devices whose files are of this node or its pool."""
        places = (str(self.pool), str(self.directory))
        return [device for device, file in loop_files() if file.startswith(places)]

    def journals(self) -> list[str]:
        """Return the names of the volumes with a journal."""
        return sorted(one.name for one in self._volume_files() if one.suffix == ".json")

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of all attachment records."""
        return entries_of(self.records, self.kubeconfig)

    def daemons(self) -> list[int]:
        """Return the PIDs of the storage daemons of this node."""
        return storage_daemons(self.state)

    def left(self) -> list[str]:
        """Return all that a node without volumes must not have."""
        own = [str(one) for one in self.entries() if one["node"] == self.name]
        daemons = [f"daemon {pid}" for pid in self.daemons()]
        locks = [str(one) for one in self._volume_files() if one.suffix != ".json"]
        return [*self.mounts(), *self.devices(), *self.journals(), *own, *daemons, *locks]

    def becomes_clean(self) -> None:
        """Wait until nothing is left: entries are released after the answer to ``unmount``."""
        block_until(lambda: not self.left())

    # --- inside ---

    @property
    def _store(self) -> dict[str, Path]:
        """Return the option that says where the records are."""
        if self.kubeconfig is not None:
            return {"--storage-kubeconfig": self.kubeconfig}
        return {"--records": self.records}

    def _daemon(self) -> Daemon:
        options = {
            "--state-dir": self.state,
            "--volume-plugin-dir": self.plugins,
            "--kubelet-root-dir": self.root,
            "--pool": f"default={self.pool}",
            **self._store,
            "--node-name": self.name,
        }
        words = [str(word) for pair in options.items() for word in pair]
        boot = ["--boot-id", self.boot_id] if self.boot_id else []
        program_words = [sys.executable, "-m", "kubeletx_flexvolume.agent.main", "agent"]
        argv = [
            *program_words,
            "--no-known-plugin-dirs",
            "--log-format",
            "json",
            *words,
            *boot,
            *self.options,
        ]
        environment = None if self.environment is None else {**os.environ, **self.environment}
        command = self.namespace.command(*argv)
        return Daemon(name="storage-agent", argv=command, directory=self.directory / "log", env=environment)

    def _answers(self) -> bool:
        try:
            is_new = self.status()["pid"] == self.agent.pid
        except (Unavailable, OSError):
            return False
        return is_new and program.main([str(self.driver), "init"])[1] == 0

    def _volume_files(self) -> list[Path]:
        return list(self.namespace.path(self.state / "volumes").glob("*"))

    def _end_daemons(self) -> None:
        for pid in self.daemons():
            os.kill(pid, signal.SIGKILL)
        block_until(lambda: not self.daemons())

    def _detach(self) -> None:
        for device in self.devices():
            subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


def finished(process: subprocess.Popen[bytes]) -> Reply:
    """Return the answer of a driver that was started with `AgentNode.begin`."""
    output, _ = process.communicate(timeout=100)
    value = msgspec.json.decode(output, type=dict[str, Any])
    return Reply(status=value["status"], message=value.get("message", ""), code=process.returncode)


def entries_of(records: Path, kubeconfig: Path | None = None) -> list[dict[str, Any]]:
    """Return the entries of all attachment records: of a file of this machine, or of a cluster."""
    return asyncio.run(_entries(kubeconfig, None if kubeconfig else records))


def storage_daemons(state: Path) -> list[int]:
    """Return the PIDs of the storage daemons of an agent."""
    return [pid for pid, line in _processes() if "qemu-storage-daemon" in line and str(state) in line]


async def _entries(kubeconfig: Path | None, records: Path | None) -> list[dict[str, Any]]:
    stores = open_stores(kubeconfig=kubeconfig, records=records, node="test", clock=SystemClock())
    try:
        return await entry_rows(stores.attachments, ())
    finally:
        await stores.close()


def loop_files() -> list[tuple[str, str]]:
    """Return each loop device with its file."""
    found = []
    for one in _SYS_BLOCK.glob("loop*/loop/backing_file"):
        try:
            found.append((f"/dev/{one.parts[3]}", one.read_text().strip()))
        except OSError:  # it disappeared meanwhile
            continue
    return found


def _processes() -> list[tuple[int, str]]:
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            line = (one / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if line:
            found.append((int(one.name), line))
    return found
