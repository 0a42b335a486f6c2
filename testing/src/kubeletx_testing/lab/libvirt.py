"""libvirt for tests and demo: the embedded driver, or a libvirtd of one's own.

The embedded driver (`embedded_endpoint`) runs inside the process that opens it; a process can open only one root in its
life. `PrivateLibvirtd` starts a libvirtd that believes to be the system's, in a mount namespace where
libvirt's directories are private ones; it can be stopped, paused and killed while machines run. What is mounted after
its start it sees only below a shared mount, as a node's root usually is (`mounts.make_shared`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from pathlib import Path

from kubeletx.cri.url import LONGEST_SOCKET_PATH

from . import mount_points, sweep
from .containerd import SHORT_DIRECTORY
from .images import default_cache_dir
from .process import Daemon
from .tools import daemon_environment, get_tool

QEMU_CONF = """\
user = "{user}"
group = "{user}"
remember_owner = 0
stdio_handler = "{handler}"
security_driver = "none"
namespaces = []
"""
"""`user`: the user of machines. `handler`: who writes consoles, `file` or `logd`."""
_KVM = "/dev/kvm"
_UNIX_SOCKETS = Path("/proc/net/unix")
_CONNECTED = "03"
_LONGEST_ROOT = 32
"""Characters of the embedded driver's root: with more, the names of guests' sockets below it are too long."""
_SYSTEM_DIRECTORIES = (
    "/run/libvirt",
    "/etc/libvirt",
    "/var/lib/libvirt",
    "/var/cache/libvirt",
    "/var/log/libvirt",
)


def embedded_endpoint(root: Path, *, name: str = "libvirt-qemu", cache_dir: Path | None = None) -> str:
    """Value for --container-runtime-endpoint: libvirt's driver inside the agent, with its files below `root`."""
    return f"vm:{name}:{embedded_url(root, cache_dir=cache_dir)}"


def embedded_url(root: Path, *, cache_dir: Path | None = None) -> str:
    """The URI. Results of probing the emulator are shared between runs, since probing takes seconds.

    `cache_dir`: directory of these results, beside the packed images; None: the user's cache.
    """
    _share_cache(root / "cache" / "qemu" / "capabilities", cache_dir)
    return f"qemu:///embed?root={_short(root)}"


class PrivateLibvirtd:
    """One libvirtd with directories of its own below ``BASE/<name>``."""

    def __init__(
        self,
        base_dir: Path,
        *,
        name: str = "libvirtd",
        user: str = "root",
        virtlogd: int = 0,
        tcp_port: int = 0,
        patience_seconds: int = 30,
    ) -> None:
        """`base_dir`: the lab's, so that a sweep finds left-overs. `user`: the user of machines.

        `virtlogd`: size at which a virtlogd, as with the system's libvirtd, rotates console files; 0: the emulators
        write them. `tcp_port`: listen there too, on 127.0.0.1, without authentication; 0: only on the socket.
        `patience_seconds`: silence after which a client's connection is closed, in steps of 6.
        """
        self.name = name
        self.user = user
        self._virtlogd = virtlogd
        self._tcp_port = tcp_port
        self._patience_seconds = patience_seconds
        self.directory = base_dir / name
        longest = self.socket_path.with_name("libvirt-admin-sock")
        if len(os.fsencode(longest)) > LONGEST_SOCKET_PATH:
            raise ValueError(
                f"{longest}: longer than {LONGEST_SOCKET_PATH} bytes; use a shorter base directory"
            )
        self.daemon: Daemon | None = None

    @property
    def socket_path(self) -> Path:
        """Socket of the daemon."""
        return self.directory / "sock" / "libvirt-sock"

    @property
    def url(self) -> str:
        """URI of the daemon's socket."""
        return f"qemu+unix:///system?socket={self.socket_path}"

    @property
    def tcp_url(self) -> str:
        """URI of its TCP port."""
        return f"qemu+tcp://127.0.0.1:{self._tcp_port}/system"

    @property
    def endpoint(self) -> str:
        """Value for --container-runtime-endpoint."""
        return f"vm:{self.name}:{self.url}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        for number, _ in enumerate(_SYSTEM_DIRECTORIES):
            (self.directory / f"d{number}").mkdir(parents=True, exist_ok=True)
        # For its networks; Debian's package makes it, libvirt does not.
        (self.directory / "d2" / "dnsmasq").mkdir(exist_ok=True)
        (self.directory / "sock").mkdir(exist_ok=True)
        qemu_conf = QEMU_CONF.format(user=self.user, handler="logd" if self._virtlogd else "file")
        (self.directory / "d1" / "qemu.conf").write_text(qemu_conf)
        config = self.directory / "libvirtd.conf"
        config.write_text(
            f'unix_sock_dir = "{self.directory}/sock"\n'
            'auth_unix_rw = "none"\nunix_sock_rw_perms = "0700"\nlog_outputs = "3:stderr"\n'
            f'listen_tls = 0\nlisten_tcp = 1\nlisten_addr = "127.0.0.1"\ntcp_port = "{self._tcp_port}"\n'
            'auth_tcp = "none"\n'
            f"keepalive_interval = {max(1, self._patience_seconds // 6)}\nkeepalive_count = 5\n"
        )
        _share_cache(self.directory / "d3" / "qemu" / "capabilities")
        binds = " && ".join(
            f"mount --bind {shlex.quote(str(self.directory))}/d{number} {target}"
            for number, target in enumerate(_SYSTEM_DIRECTORIES)
        )
        binds += self._bind_kvm()
        start = f"{self._start_virtlogd()}exec {get_tool('libvirtd')}"
        place = shlex.quote(str(self.directory))
        script = f"{binds} && {start} --config {shlex.quote(str(config))} --pid-file {place}/pid"
        script += " --listen" if self._tcp_port else ""
        self.socket_path.unlink(missing_ok=True)
        self.daemon = Daemon(
            name=self.name,
            argv=[get_tool("unshare"), "--mount", "--propagation", "slave", "sh", "-c", script],
            directory=self.directory.parent,
            env=daemon_environment(),
        )
        with mount_points.making(_SYSTEM_DIRECTORIES):
            self.daemon.start()
            self.daemon.wait_until(self._answers, what="answer on its socket", timeout_seconds=60)

    def _answers(self) -> bool:
        """Return True once it answers a request; it accepts connections slightly earlier."""
        if not self.socket_path.exists():
            return False
        import libvirt

        try:
            libvirt.open(self.url).close()
        except libvirt.libvirtError:
            return False
        return True

    def _start_virtlogd(self) -> str:
        """Shell commands that start virtlogd, which runs until `end`, also without libvirtd."""
        if not self._virtlogd:
            return ""
        config = self.directory / "virtlogd.conf"
        config.write_text(f"max_size = {self._virtlogd}\nmax_backups = 9\n")
        place = "/run/libvirt/virtlogd-sock"
        start = f"{get_tool('virtlogd')} --daemon --config {shlex.quote(str(config))}"
        start += f" --pid-file {shlex.quote(str(self.directory))}/virtlogd.pid"
        return f"{{ [ -S {place} ] || {start}; }} && "

    def _bind_kvm(self) -> str:
        """Make /dev/kvm usable for all users there, as on a node.

        Otherwise libvirt finds the shared probe results (`_share_cache`) wrong for this user, and probes again for a
        minute.
        """
        if self.user == "root" or not Path(_KVM).exists():
            return ""
        node = self.directory / "kvm"
        node.unlink(missing_ok=True)
        os.mknod(node, stat.S_IFCHR, Path(_KVM).stat().st_rdev)
        node.chmod(0o666)
        return f" && mount --bind {shlex.quote(str(node))} {_KVM}"

    def stop(self) -> None:
        """Stop libvirtd; machines run on."""
        if self.daemon is not None:
            self.daemon.stop()

    def kill(self) -> None:
        """Kill libvirtd, like a crash; machines run on."""
        if self.daemon is not None:
            self.daemon.kill()

    def pause(self) -> None:
        """Pause it: connections stay open without answers."""
        if self.daemon is not None:
            self.daemon.pause()

    def resume(self) -> None:
        """Resume it."""
        if self.daemon is not None:
            self.daemon.resume()

    def count_connections(self) -> int:
        """Number of connected clients."""
        return sum(
            path == str(self.socket_path) and state == _CONNECTED
            for *_, state, _inode, path in (line.split() for line in _UNIX_SOCKETS.read_text().splitlines())
            if path.startswith("/")
        )

    def emulators(self) -> list[int]:
        """Process ids of the machines.

        Their command lines name libvirt's usual directories, not the lab's.
        """
        return sweep.list_emulators(self.directory)

    def end(self) -> None:
        """End libvirtd and every machine, and remove its files."""
        self.stop()
        sweep.end_processes(self.emulators())
        sweep.end_processes(sweep.list_processes(self.directory))
        sweep.remove_tree(self.directory)
        mount_points.remove_unused(sweep.is_any_libvirtd_alive)


def _share_cache(path: Path, cache_dir: Path | None = None) -> None:
    shared = (cache_dir or default_cache_dir()).parent / "libvirt-capabilities"
    shared.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.symlink_to(shared)


def _short(root: Path) -> Path:
    """`root`, or a link to it below /run if paths of guests' sockets would be too long."""
    if len(str(root)) <= _LONGEST_ROOT:
        return root
    link = SHORT_DIRECTORY / hashlib.sha256(str(root).encode()).hexdigest()[:12]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(root)
    return link
