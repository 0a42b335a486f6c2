"""Checks that libvirt sees the same files in the shared directories of a machine as the agent does.

libvirtd may run in its own mount namespace because of its service's settings (``PrivateMounts``,
``MountFlags``); so may the agent. If mounts do not propagate between the two, libvirtd finds an empty
directory at the path of a tmpfs volume, an NFS export or a read-only mount, and shares it without an error.
So before each start the agent compares each path with libvirtd's view, through ``/proc/<libvirtd>/root``.

The kernel identifies libvirtd: it adds the sender's process id to an answer on a unix socket
(SCM_CREDENTIALS, unix(7)). The credentials of the socket itself (SO_PEERCRED) are those of the process that
created it, which is systemd with socket activation. The check is skipped if libvirt is reached over TCP or
ssh, if its process is in another pid namespace, or if the agent is not root. Blocking.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from kubeletx.api import Conflict, Unavailable
from kubeletx_libvirt.shares import Share

PROC: Final = Path("/proc")
RUN: Final = Path("/run/libvirt")
DRIVER_SOCKET: Final = "virtqemud-sock"
SOCKET: Final = "libvirt-sock"
_PROXY: Final = "virtproxyd"
_SECONDS: Final = 5.0
_CURE: Final = (
    "let both services share the node's mounts (PrivateMounts=no, PrivateTmp=no, no MountFlags=private; "
    "mount --make-rshared / where the root is private; in a container mountPropagation Bidirectional), and restart libvirtd"
)

# libvirt's remote protocol: length, program, version, procedure, type (call), serial, status (ok).
_HEADER: Final = struct.Struct(">7I")
_REMOTE: Final = (0x2000_8086, 1)
_AUTH_LIST, _CONNECT_CLOSE = 66, 2
_CREDENTIALS: Final = struct.Struct("3i")


def socket_of(url: str, run: Path = RUN) -> Path | None:
    """Return the unix socket that libvirt uses for this URL; None for other transports and for a user's session.

    `run`: directory of libvirt's sockets.
    """
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    if parts.scheme not in ("qemu", "qemu+unix") or parts.hostname or parts.path != "/system":
        return None
    if "socket" in asked:
        return Path(asked["socket"][0])
    mode = asked.get("mode", ["auto"])[0]
    driver = run / DRIVER_SOCKET
    return driver if mode == "direct" or (mode == "auto" and driver.exists()) else run / SOCKET


def find_daemon(path: Path, proc: Path = PROC, seconds: float = _SECONDS) -> int | None:
    """Return the process id of the libvirt daemon that starts emulators; None if unknown.

    `path`: the socket that libvirt's clients use; it may belong to virtproxyd, which is then skipped. Raises
    Unavailable if the daemon does not answer for so many seconds.
    """
    try:
        pid = _answering(path, seconds)
        if pid and (proc / str(pid) / "comm").read_bytes().strip() == _PROXY.encode():
            pid = _answering(path.with_name(DRIVER_SOCKET), seconds)
    except TimeoutError as error:
        raise Unavailable(f"libvirt's socket {path} gives no answer in {seconds:g} s") from error
    except OSError:
        return None
    return pid or None


def check_visibility(shares: Sequence[Share], pid: int, proc: Path = PROC) -> None:
    """Raise Conflict if process `pid` sees other files than the agent at the path of a shared directory.

    The message says what the process sees and how to fix it.
    """
    for share in shares:
        if difference := _difference(share, proc / str(pid) / "root"):
            raise Conflict(
                f"volume {share.volume} at {share.target}: in the place of {share.place} libvirtd (process {pid}) has "
                f"{difference}"
            )


def _difference(share: Share, root: Path) -> str:
    """Describe what a process sees instead of the shared directory, and the fix.

    Empty if it sees the same, or if the check is not permitted. `root`: the process's root directory in
    /proc.
    """
    place = os.path.realpath(share.place)
    try:
        ours = Path(place).stat()
    except FileNotFoundError as error:
        raise Unavailable(
            f"volume {share.volume} at {share.target}: {place} does not exist; create it"
        ) from error
    except OSError:  # an NFS export or a FUSE file system that even root may not read
        return ""
    try:
        theirs = Path(f"{root}{place}").stat()
        is_writable = not os.statvfs(f"{root}{place}").f_flag & os.ST_RDONLY
    except (FileNotFoundError, NotADirectoryError):
        return f"nothing; {_CURE}" if root.exists() else ""
    except OSError:
        return ""
    if not os.path.samestat(ours, theirs):
        return f"something else, since it does not see the same mounts as the agent; {_CURE}"
    if share.read_only and is_writable:
        return "a mount that the guest could write to; delete the pod, so that it is created again"
    return ""


def _answering(path: Path, seconds: float) -> int:
    """Return the process id of the daemon that answers on the socket; 0 if unknown.

    It sends a harmless request and closes the connection properly, since libvirtd would otherwise log a lost
    connection.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(seconds)
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        asking.connect(str(path))
        asking.sendall(_call(_AUTH_LIST, 0))
        _, ancillary, _, _ = asking.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
        with contextlib.suppress(OSError):  # refused by a libvirtd that waits for a login
            asking.sendall(_call(_CONNECT_CLOSE, 1))
            while asking.recv(4096):
                pass
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid: int = _CREDENTIALS.unpack_from(data)[0]
            return pid
    return 0


def _call(procedure: int, serial: int) -> bytes:
    return _HEADER.pack(_HEADER.size, *_REMOTE, procedure, 0, serial, 0)
