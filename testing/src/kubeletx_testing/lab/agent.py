"""A kubeletx agent as a child process, for the demo, integration tests and benchmarks.

The agent's files are below ``BASE/<name>`` (its root directory), where BASE is the lab's base directory. Its
pods' cgroups are below a cgroup named after the base directory, so that a sweep finds what a killed agent
left behind. `pods`, `node`, `runtimes` and `usage` read the agent's admin socket; `cli` runs the command line
as a user would.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from kubeletx.api.names import BOUND_RUNTIME
from kubeletx.kube.types.core import Pod, PodList
from kubeletx.kube.types.node import Node
from kubeletx.server.views import RuntimeView, UsageView

from . import sweep
from .cgroups import remove_cgroups
from .cni import network_name
from .lab import Lab
from .mounts import unmount_below
from .process import Daemon, LabError, run_to_end
from .tools import daemon_environment

EXAMPLES = (
    "directory-pods",
    "disk-space",
    "host-load",
    "image-registry",
    "local-process",
    "rack-power",
    "ramdisk",
)
"""Plugins of examples/plugins: most would be a process of their own at each start of an agent."""


class PrivateAgent:
    """An agent process that a test starts and stops. As a context manager it runs during the block."""

    def __init__(
        self,
        lab: Lab,
        *,
        manifest_dir: Path | None = None,
        name: str = "agent",
        node_name: str = "lab",
        endpoints: str | None = None,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        examples: Collection[str] = (),
    ) -> None:
        """`manifest_dir`: value of --pod-manifest-path; None: not set.

        `name`: name of the agent's directory in the lab. `endpoints`: value of --container-runtime-endpoint;
        None: every containerd of the lab. `flags`: added at the end of the command line, so that they
        override the usual ones. `env`: added to the agent's environment. `examples`: names of the `EXAMPLES` that
        the agent loads; the others are disabled.
        """
        self.lab = lab
        self.root_dir = lab.base_dir / name
        self.logs_dir = lab.base_dir / f"{name}-pod-logs"
        self.manifest_dir = manifest_dir
        self.node_name = node_name
        self.endpoints = endpoints
        """Value of --container-runtime-endpoint at the next `start`; None: every containerd of the lab."""
        self.flags = tuple(flags)
        """Flags that the next `start` adds at the end of the command line."""
        self._env = dict(env or {})
        self._disabled = tuple(name for name in EXAMPLES if name not in examples)
        self._name = name
        self.daemon: Daemon | None = None

    @property
    def cgroup_root(self) -> str:
        """Path of the cgroup that contains the cgroups of the agent's pods, without a leading slash."""
        return f"{network_name(self.lab.base_dir)}/{self._name}"

    @property
    def volume_plugin_dir(self) -> Path:
        """Directory of executable volume drivers. It is not the one of the machine, whose drivers no test may call."""
        return self.root_dir / "volume-plugins"

    @property
    def socket_path(self) -> Path:
        """Path of the agent's admin socket."""
        return self.root_dir / "kubeletx.sock"

    def argv(self) -> list[str]:
        """Return the command line that `start` runs."""
        arguments = [
            str(_program()),
            f"--root-dir={self.root_dir}",
            f"--container-runtime-endpoint={self.endpoints or self.lab.endpoints}",
            f"--hostname-override={self.node_name}",
            f"--pod-logs-dir={self.logs_dir}",
            f"--cni-conf-dir={self.lab.network.conf_dir}",
            f"--cni-bin-dir={self.lab.network.bin_dir}",
            f"--cgroup-root=/{self.cgroup_root}",
            f"--volume-plugin-dir={self.volume_plugin_dir}",
            "--healthz-port=0",
            "--port=0",
            # The developer's machine may be rather full: that must not evict the pods of a test.
            "--eviction-hard=memory.available<50Mi,nodefs.available<1%,imagefs.available<1%",
            *(f"--disable-plugin=kubeletx-{name}" for name in self._disabled),
        ]
        if self.manifest_dir is not None:
            arguments.append(f"--pod-manifest-path={self.manifest_dir}")
        return [*arguments, *self.flags]

    def start(self, *, timeout_seconds: float = 120) -> None:
        """Start the agent and wait until its admin socket answers. Raises LabError after `timeout_seconds`."""
        self.root_dir.mkdir(parents=True, exist_ok=True)
        self.daemon = Daemon(
            name=self._name,
            argv=self.argv(),
            directory=self.lab.base_dir,
            env={**daemon_environment(), **self._env},
        )
        self.daemon.start()
        self.daemon.wait_until(
            self.is_serving, what="answer on its admin socket", timeout_seconds=timeout_seconds
        )

    def stop(self, *, grace_seconds: float = 20) -> None:
        """Stop the agent with SIGTERM, then SIGKILL after `grace_seconds`; its pods continue to run."""
        if self.daemon is not None:
            self.daemon.stop(grace_seconds=grace_seconds)

    def kill(self) -> None:
        """Kill the agent, to simulate a crash; its pods continue to run."""
        if self.daemon is not None:
            self.daemon.kill()

    def restart(self) -> None:
        """Stop the agent and start it again with the current flags."""
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        """Process id of the agent. Raises LabError if it was not started."""
        if self.daemon is None:
            raise LabError("the agent does not run")
        return self.daemon.pid

    @property
    def is_running(self) -> bool:
        """True while the agent's process runs."""
        return self.daemon is not None and self.daemon.is_running

    def is_serving(self) -> bool:
        """Return True if the admin socket answers."""
        try:
            self.get("/version", timeout_seconds=5)
        except LabError:
            return False
        return True

    def get(self, path: str, *, timeout_seconds: float = 20) -> bytes:
        """Return the body of a GET request to the admin socket.

        Raises LabError if there is no answer, or its status is not 200.
        """
        connection = _UnixConnection(self.socket_path, timeout_seconds)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as err:
            raise LabError(f"the agent does not answer on {self.socket_path}: {err}") from err
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise LabError(f"GET {path}: HTTP {response.status}: {body.decode(errors='replace')}")
        return body

    def pods(self) -> tuple[Pod, ...]:
        """Return all pods of the agent with their statuses."""
        return msgspec.json.decode(self.get("/v1/pods"), type=PodList).items

    def pod(self, name: str) -> Pod | None:
        """Return the pod with this name in its manifest; None if the agent has no such pod.

        For static pods, the agent appends the node's name.
        """
        names = {name, f"{name}-{self.node_name}"}
        return next((pod for pod in self.pods() if pod.metadata.name in names), None)

    def wait_for(
        self, name: str, is_wanted: Callable[[Pod], bool] | None = None, *, timeout_seconds: float = 120
    ) -> Pod:
        """Wait until `is_wanted` returns True for the pod, and return the pod.

        `is_wanted`: None waits until the pod is Running and Ready. Raises LabError with the pod's last status
        after `timeout_seconds`.
        """
        wanted = is_wanted or is_ready
        pod = None
        for pod in self._looks(name, timeout_seconds):
            if pod is not None and wanted(pod):
                return pod
        status = "unknown to the agent" if pod is None else msgspec.json.encode(pod.status).decode()
        raise LabError(f"pod {name} is not as wanted after {timeout_seconds} s: {status}")

    def wait_gone(self, name: str, *, timeout_seconds: float = 120) -> None:
        """Wait until the agent no longer lists the pod.

        Raises LabError if it is still listed after `timeout_seconds`.
        """
        for pod in self._looks(name, timeout_seconds):
            if pod is None:
                return
        raise LabError(f"pod {name} is still there after {timeout_seconds} s")

    def _looks(self, name: str, timeout_seconds: float) -> Iterator[Pod | None]:
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            yield self.pod(name)
            time.sleep(0.05)
        yield self.pod(name)

    def node(self) -> Node:
        """Return the agent's Node object, with its conditions."""
        return msgspec.json.decode(self.get("/v1/node"), type=Node)

    def runtimes(self) -> tuple[RuntimeView, ...]:
        """Return the agent's runtimes, with their health."""
        return msgspec.json.decode(self.get("/v1/runtimes"), type=_Runtimes).items

    def usage(self) -> UsageView:
        """Return the usage of the node, its runtimes and its pods, as the agent reports it."""
        return msgspec.json.decode(self.get("/v1/usage"), type=UsageView)

    def cli(self, *arguments: str, timeout_seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run ``kubeletx --root-dir ... ARGUMENTS`` to its end; returns its exit status and output."""
        return run_to_end(
            _program(),
            f"--root-dir={self.root_dir}",
            *arguments,
            env=daemon_environment(),
            timeout_seconds=timeout_seconds,
        )

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the agent's log."""
        return self.daemon.log_tail(lines) if self.daemon is not None else "(never started)"

    def remove_files(self) -> None:
        """Remove all that a stopped agent left: root directory, pod logs, mounts, cgroups and processes."""
        sweep.end_processes(sweep.list_processes(self.root_dir))
        unmount_below(self.root_dir)
        remove_cgroups(self.cgroup_root)
        sweep.remove_tree(self.root_dir)
        sweep.remove_tree(self.logs_dir)

    @property
    def log_path(self) -> Path:
        """Path of the agent's log file."""
        return self.lab.base_dir / f"{self._name}.log"

    def __enter__(self) -> PrivateAgent:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def is_ready(pod: Pod) -> bool:
    """Return True if the pod is Running and its Ready condition is True."""
    ready = any(
        condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions
    )
    return pod.status.phase == "Running" and ready


def bound_runtime(pod: Pod) -> str:
    """Return the name of the runtime to which the pod is assigned; empty if it is not assigned yet."""
    return pod.metadata.annotations.get(BOUND_RUNTIME, "")


class _Runtimes(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[RuntimeView, ...] = ()


class _UnixConnection(http.client.HTTPConnection):
    """HTTP connection over a Unix socket."""

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(str(self._path))
        except BaseException:
            self.sock.close()
            raise


def _program() -> Path:
    """Return the path of the ``kubeletx`` command, in the directory of the running Python interpreter.

    Raises LabError if it is missing.
    """
    program = Path(sys.executable).with_name("kubeletx")
    if not program.exists():
        raise LabError(f"{program} is missing; run script/setup")
    return program
