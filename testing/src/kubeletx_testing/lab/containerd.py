"""A private containerd with its own root, state, socket, configuration, CNI directories and runc root.

It shares only program files and the kernel with a containerd of the host. One path is compiled into
containerd: shims put their sockets into /run/containerd/s. The sockets' names are hashes of the (private)
address, so they never collide. `sweep` removes the sockets that a crash left behind.

`start` returns once the CRI service answers: containerd opens its socket after all plugins are loaded, and
its CRI answers "not initialized" until it has recovered. The call is made with raw bytes, so the lab needs no
generated stubs. As with any containerd, containers continue to run after `kill`, `restart` and a crash; only
`stop` ends them.

Source of the settings: containerd 1.6, docs/cri/config.md.
"""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

from . import sweep
from .cri import CriCalls
from .images import REGISTRY_NAME, image_ref
from .mounts import unmount_below
from .process import Daemon, LabError
from .tools import daemon_environment, get_tool

HANDLERS = ("runc", "runc-two")
"""Names of the containerd's runtime handlers. Both use runc, so that two handlers can be tested on any machine."""

_CONFIG = """\
version = 2
root = "{root}"
state = "{state}"
temp = "{temp}"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[debug]
  level = "info"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_bin_dir}"
    conf_dir = "{cni_conf_dir}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registry_dir}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "{default_handler}"
{handlers}
"""

_HANDLER = """\
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]
      runtime_type = "io.containerd.runc.v2"
      pod_annotations = ["example.com/oci-*"]
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
        BinaryName = "{runc}"
        Root = "{runc_root}"
"""

_CRI_STATUS = "/runtime.v1.RuntimeService/Status"


class PrivateContainerd:
    """A containerd process that a test starts, kills and restarts. As a context manager it runs during the block."""

    def __init__(
        self,
        name: str,
        base_dir: Path,
        *,
        cni_conf_dir: Path,
        cni_bin_dir: Path,
        registry_address: str,
    ) -> None:
        """`name`: name of the directory for all its files, in `base_dir`, the lab's base directory.

        `registry_address`: HOST:PORT of the registry from which images of registry.local are pulled.
        """
        self.name = name
        self.base_dir = base_dir
        self.directory = base_dir / name
        self.cni_conf_dir = cni_conf_dir
        self.cni_bin_dir = cni_bin_dir
        self._registries = {REGISTRY_NAME: registry_address, registry_address: registry_address}
        self.socket_path = sweep.socket_path(self.directory)
        self.daemon = Daemon(
            name="containerd",
            argv=[get_tool("containerd"), "--config", str(self.directory / "config.toml")],
            directory=self.directory,
            env=daemon_environment(),
        )

    @property
    def endpoint(self) -> str:
        """URL ``unix://...`` of containerd's socket, for CRI and for containerd's own services."""
        return f"unix://{self.socket_path}"

    @property
    def log_path(self) -> Path:
        """Path of the daemon's log file."""
        return self.daemon.log_path

    def start(self, *, wait: bool = True, timeout_seconds: float = 120) -> None:
        """Write the configuration and start the daemon. `wait`: then wait until its CRI service answers."""
        for sub in ("root", "state", "temp", "runc", "registries"):
            (self.directory / sub).mkdir(parents=True, exist_ok=True)
        self.socket_path.parent.mkdir(parents=True, exist_ok=True)
        for host, address in self._registries.items():
            self.add_registry(host, address)
        (self.directory / "config.toml").write_text(self.config())
        self.daemon.start()
        if wait:
            self.wait_until_ready(timeout_seconds=timeout_seconds)

    def wait_until_ready(self, *, timeout_seconds: float = 120) -> None:
        """Wait until the CRI service answers. Raises LabError if the daemon ends or takes too long."""
        self.daemon.wait_until(
            lambda: answers_cri(self.endpoint),
            what="answer of its CRI service",
            timeout_seconds=timeout_seconds,
        )

    def stop(self) -> None:
        """Stop the daemon and remove all that it made: containers, shims, mounts, network namespaces, files."""
        self.daemon.stop()
        sweep.end_containers(self.directory)
        unmount_below(self.directory)
        if self.socket_path.parent != self.directory:
            for path in self.socket_path.parent.glob(f"{self.socket_path.name}*"):
                path.unlink(missing_ok=True)
        sweep.remove_tree(self.directory, keep=(self.daemon.log_path,))

    def kill(self) -> None:
        """Kill the daemon, to simulate a crash. Containers and shims continue to run."""
        self.daemon.kill()

    def stop_daemon(self) -> None:
        """Stop only the daemon. Containers and shims continue to run."""
        self.daemon.stop()

    def start_daemon(self, *, wait: bool = True) -> None:
        """Start the daemon again after `kill` or `stop_daemon`.

        `wait`: wait until its CRI service answers.
        """
        self.daemon.start()
        if wait:
            self.wait_until_ready()

    def restart(self) -> None:
        """Stop the daemon and start it again; containers continue to run."""
        self.stop_daemon()
        self.start_daemon()

    def pause(self) -> None:
        """Pause the daemon's process: the kernel still accepts connections, but calls get no answer."""
        self.daemon.pause()

    def resume(self) -> None:
        """Let a paused daemon continue."""
        self.daemon.resume()

    def add_registry(self, host: str, address: str) -> None:
        """Make later pulls of images of registry `host` use `address` (HOST:PORT, plain HTTP)."""
        directory = self.directory / "registries" / host
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "hosts.toml").write_text(
            f'server = "http://{address}"\n\n'
            f'[host."http://{address}"]\n  capabilities = ["pull", "resolve"]\n'
        )

    def cri(self) -> CriCalls:
        """Return a CRI client for this containerd; use it as a context manager."""
        return CriCalls(self.endpoint)

    def config(self) -> str:
        """Return the text of containerd's configuration file."""
        handlers = "".join(
            _HANDLER.format(name=name, runc=get_tool("runc"), runc_root=self.directory / "runc")
            for name in HANDLERS
        )
        return _CONFIG.format(
            root=self.directory / "root",
            state=self.directory / "state",
            temp=self.directory / "temp",
            socket=self.socket_path,
            sandbox_image=image_ref("pause"),
            cni_bin_dir=self.cni_bin_dir,
            cni_conf_dir=self.cni_conf_dir,
            registry_dir=self.directory / "registries",
            snapshotter="overlayfs" if can_overlay(self.directory) else "native",
            default_handler=HANDLERS[0],
            handlers=handlers,
        )

    def __enter__(self) -> PrivateContainerd:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def answers_cri(endpoint: str, *, timeout_seconds: float = 2) -> bool:
    """Return True if a CRI v1 service at `endpoint` answers a Status call.

    Raises LabError if the server has no such service.
    """
    import grpc

    with grpc.insecure_channel(endpoint, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(_CRI_STATUS, request_serializer=bytes, response_deserializer=bytes)
        try:
            call(b"", timeout=timeout_seconds)
        except grpc.RpcError as err:
            code = getattr(err, "code", lambda: None)()
            if code is grpc.StatusCode.UNIMPLEMENTED:
                raise LabError(f"{endpoint} serves no CRI: the plugin did not load") from err
            return False
    return True


def can_overlay(directory: Path) -> bool:
    """Return True if an overlay file system can be mounted in `directory`.

    This is not possible if the directory itself is on an overlay.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory(dir=directory) as trial:
        for sub in ("lower", "upper", "work", "merged"):
            Path(trial, sub).mkdir()
        options = f"lowerdir={trial}/lower,upperdir={trial}/upper,workdir={trial}/work"
        target = f"{trial}/merged".encode()
        if libc.mount(b"overlay", target, b"overlay", 0, options.encode()) != 0:
            return False
        libc.umount2(target, 0)
    return True
