"""libvirt for tests and the demo: the embedded driver, or a private libvirtd.

The embedded driver (`embedded_endpoint`) runs inside the process that opens it; a process can open it with
only one root directory during its life. `PrivateLibvirtd` starts a libvirtd for ``qemu:///system`` in a mount
namespace in which libvirt's system directories are private. It can be stopped, paused and killed while
machines run. It sees mounts made after its start only if they are below a shared mount, which a node's root
usually is (see `mounts.make_shared`).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from pathlib import Path

from kubeletx.cri.url import LONGEST_SOCKET_PATH

from . import mount_points, sweep
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
"""Template of qemu.conf. `user`: user and group as which machines run.

`handler`: program that writes console files: `file` (the emulator) or `logd` (virtlogd).
"""
_KVM = "/dev/kvm"
_UNIX_SOCKETS = Path("/proc/net/unix")
_CONNECTED = "03"
_LONGEST_ROOT = 32
"""Maximum length of the path of the embedded driver's root.

With a longer path, the names of guests' sockets below it become too long.
"""
_SYSTEM_DIRECTORIES = (
    "/run/libvirt",
    "/etc/libvirt",
    "/var/lib/libvirt",
    "/var/cache/libvirt",
    "/var/log/libvirt",
)


def embedded_endpoint(root: Path, *, name: str = "libvirt-qemu", cache_dir: Path | None = None) -> str:
    """Return a value for --container-runtime-endpoint that runs libvirt's driver inside the agent.

    `root`: directory for the driver's files. `cache_dir`: see `embedded_url`.
    """
    return f"vm:{name}:{embedded_url(root, cache_dir=cache_dir)}"


def embedded_url(
    root: Path, *, cache_dir: Path | None = None, short_directory: Path = sweep.SHORT_DIRECTORY
) -> str:
    """Return the libvirt URI of the embedded driver with its files below `root`.

    All runs share libvirt's cached capabilities of the emulator, since probing it takes seconds. `cache_dir`:
    directory of packed images, beside which this cache is kept; None: the user's cache. `short_directory`: for
    links to roots with long paths.
    """
    _share_cache(root / "cache" / "qemu" / "capabilities", cache_dir)
    return f"qemu:///embed?root={_short(root, short_directory)}"


class PrivateLibvirtd:
    """A libvirtd process with its own directories below ``BASE/<name>``, which a test can pause, kill and restart."""

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
        """`base_dir`: base directory of the lab, so that a sweep finds what is left.

        `user`: user as which machines run. `virtlogd`: size in bytes at which a virtlogd rotates console
        files, as with the system's libvirtd; 0: there is no virtlogd, and the emulators write these files.
        `tcp_port`: port on 127.0.0.1 on which libvirtd also listens, without authentication; 0: only the
        socket. `patience_seconds`: libvirtd closes the connection of a client that is silent for so long, in
        steps of 6.
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
        """Path of libvirtd's socket."""
        return self.directory / "sock" / "libvirt-sock"

    @property
    def url(self) -> str:
        """libvirt URI with libvirtd's socket."""
        return f"qemu+unix:///system?socket={self.socket_path}"

    @property
    def tcp_url(self) -> str:
        """libvirt URI with libvirtd's TCP port."""
        return f"qemu+tcp://127.0.0.1:{self._tcp_port}/system"

    @property
    def endpoint(self) -> str:
        """Value for --container-runtime-endpoint, in which this libvirtd is a runtime of the same name."""
        return f"vm:{self.name}:{self.url}"

    def start(self) -> None:
        """Start libvirtd, and virtlogd if requested, and wait until libvirtd answers."""
        for number, _ in enumerate(_SYSTEM_DIRECTORIES):
            (self.directory / f"d{number}").mkdir(parents=True, exist_ok=True)
        # libvirt's networks need it; Debian's package makes it, libvirt does not.
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
        """Return True if the daemon answers a request. It accepts connections slightly earlier."""
        if not self.socket_path.exists():
            return False
        import libvirt

        try:
            libvirt.open(self.url).close()
        except libvirt.libvirtError:
            return False
        return True

    def _start_virtlogd(self) -> str:
        """Return shell commands that start virtlogd; empty if it is not requested.

        virtlogd runs until `end`, even while libvirtd is stopped.
        """
        if not self._virtlogd:
            return ""
        config = self.directory / "virtlogd.conf"
        config.write_text(f"max_size = {self._virtlogd}\nmax_backups = 9\n")
        place = "/run/libvirt/virtlogd-sock"
        start = f"{get_tool('virtlogd')} --daemon --config {shlex.quote(str(config))}"
        start += f" --pid-file {shlex.quote(str(self.directory))}/virtlogd.pid"
        return f"{{ [ -S {place} ] || {start}; }} && "

    def _bind_kvm(self) -> str:
        """Return shell commands that make /dev/kvm usable for all users in libvirtd's mount namespace.

        Empty if there is nothing to do. Without this, libvirt would discard the shared capabilities
        (`_share_cache`) as wrong for this user, and probe the emulator again for a minute.
        """
        if self.user == "root" or not Path(_KVM).exists():
            return ""
        node = self.directory / "kvm"
        node.unlink(missing_ok=True)
        os.mknod(node, stat.S_IFCHR, Path(_KVM).stat().st_rdev)
        node.chmod(0o666)
        return f" && mount --bind {shlex.quote(str(node))} {_KVM}"

    def stop(self) -> None:
        """Stop libvirtd; machines continue to run."""
        if self.daemon is not None:
            self.daemon.stop()

    def kill(self) -> None:
        """Kill libvirtd, to simulate a crash; machines continue to run."""
        if self.daemon is not None:
            self.daemon.kill()

    def pause(self) -> None:
        """Pause libvirtd's process: connections remain open, but calls get no answer."""
        if self.daemon is not None:
            self.daemon.pause()

    def resume(self) -> None:
        """Let a paused libvirtd continue."""
        if self.daemon is not None:
            self.daemon.resume()

    def count_connections(self) -> int:
        """Return the number of clients that are connected to libvirtd's socket."""
        return sum(
            path == str(self.socket_path) and state == _CONNECTED
            for *_, state, _inode, path in (line.split() for line in _UNIX_SOCKETS.read_text().splitlines())
            if path.startswith("/")
        )

    def emulators(self) -> list[int]:
        """Return the process ids of the machines' emulators.

        They are found by their pid files, since their command lines contain libvirt's usual directories and
        not the lab's.
        """
        return sweep.list_emulators(self.directory)

    def end(self) -> None:
        """Stop libvirtd, end every machine, and remove all files."""
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


def _short(root: Path, directory: Path) -> Path:
    """Return `root`, or a link to it in `directory` if the paths of guests' sockets would be too long."""
    if len(str(root)) <= _LONGEST_ROOT:
        return root
    link = directory / hashlib.sha256(str(root).encode()).hexdigest()[:12]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(root)
    return link
