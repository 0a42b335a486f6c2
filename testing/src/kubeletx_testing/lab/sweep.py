"""Finds and removes what a lab, or an aborted earlier run, left behind.

Everything that belongs to a lab can be found from its base directory:

- daemons and shims have a path below it on their command line,
- containers are known by their ids, which are names of directories below the containerds' state and runc roots;
  their processes have such an id in their cgroup path, whatever their parent process is,
- mounts (root file systems, network namespaces, volumes) and the files of loop devices are below it,
- emulators of a lab's libvirtd have libvirt's usual directories on their command line, but their pid files are below it,
- the names of bridge, CNI results and iptables chains are derived from it (see `cni`).

The file ``owner`` in a base directory contains the pid and start time of its owner. While this process is
alive, no other process sweeps the directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from kubeletx.linux.processes import read_stat

from . import cgroups, cni, mount_points
from .disk import detach_loop_devices, loop_devices
from .mounts import list_mounts, unmount_below
from .process import list_pids, process_state, read_pid_file, write_pid_file

OWNER_FILE = "owner"
MAX_SOCKET_PATH = 100
"""Maximum length of a socket's path in the lab; the kernel's limit is 107."""
SHORT_DIRECTORY = Path("/run/kubeletx-lab")
"""Directory for the sockets of labs whose own paths are too long; `clean` removes those sockets."""
_PROGRAMS = (
    "containerd",
    "containerd-shim-runc-v2",
    "docker-registry",
    "runc",
    "kubeletx",
    "kubeletx-flexvolume",
    "qemu-system-x86_64",
    "libvirtd",
    "virtlogd",
)


def claim(base_dir: Path) -> None:
    """Make this process the owner of `base_dir`; the directory is made if missing."""
    base_dir.mkdir(parents=True, exist_ok=True)
    write_pid_file(base_dir / OWNER_FILE, os.getpid())


def find_owner(base_dir: Path) -> int | None:
    """Return the process id of the living process that owns `base_dir`; None if there is none."""
    return read_pid_file(base_dir / OWNER_FILE)


def clean(base_dir: Path) -> None:
    """Remove everything that belongs to `base_dir`, and the directory itself; succeeds if there is nothing."""
    end_processes(pid for pid in list_processes(base_dir) if not _is_shim(pid))
    cgroups.thaw_cgroups(cni.network_name(base_dir))
    if base_dir.is_dir():
        for directory in _containerd_directories(base_dir):
            end_containers(directory)
    end_processes(list_processes(base_dir), signum=signal.SIGKILL)
    unmount_below(base_dir)
    detach_loop_devices(base_dir)
    cgroups.remove_empty_default_cgroups()
    cgroups.remove_cgroups(cni.network_name(base_dir))
    cni.remove_network(base_dir)
    remove_short_paths(base_dir)
    remove_tree(base_dir)
    mount_points.remove_unused(is_any_libvirtd_alive)


def clean_stale(parent: Path) -> list[Path]:
    """Clean the base directories below `parent` whose owners have ended; returns these directories."""
    stale = [owner.parent for owner in sorted(parent.glob(f"*/{OWNER_FILE}")) if read_pid_file(owner) is None]
    for base_dir in stale:
        clean(base_dir)
    return stale


def container_ids(base_dir: Path) -> set[str]:
    """Return the ids of all containers and sandboxes of a lab's containerds, read from their directories."""
    return {
        container_id
        for directory in _containerd_directories(base_dir)
        for container_id in _container_ids(directory)
    }


def leftovers(base_dir: Path, *, ids: Iterable[str] = ()) -> list[str]:
    """Return one line for each object that still exists of the lab with this base directory, except files below it.

    `ids`: ids of containers that are known from an earlier call of `container_ids`.
    """
    leftovers = [f"process {pid}: {_command_line(pid)}" for pid in list_processes(base_dir)]
    leftovers += [f"mount {path}" for path in list_mounts(base_dir)]
    leftovers += [f"loop device {path}" for path in loop_devices(base_dir)]
    leftovers += cni.network_leftovers(base_dir)
    known = container_ids(base_dir) | set(ids)
    leftovers += [
        f"process {pid} of a container: {_command_line(pid)}"
        for pid in cgroups.list_container_processes(known)
    ]
    leftovers += [
        f"cgroup {path}"
        for path in [
            *cgroups.list_container_cgroups(known),
            *cgroups.cgroups_below(cni.network_name(base_dir)),
        ]
    ]
    return leftovers


def end_containers(containerd_dir: Path) -> None:
    """Kill the containers and shims of a containerd that has ended; remove their cgroups and sockets.

    `containerd_dir`: directory of the `PrivateContainerd`.
    """
    ids = _container_ids(containerd_dir)
    sockets = _shim_sockets(containerd_dir)
    cgroups.thaw_containers(ids)
    # Containers before shims: a living shim reaps them at once, but PID 1 of some machines takes seconds.
    end_processes(cgroups.list_container_processes(ids), signum=signal.SIGKILL)
    end_processes(list_processes(containerd_dir), signum=signal.SIGKILL)
    for path in cgroups.list_container_cgroups(ids):
        cgroups.remove_cgroup(path)
    for socket in sockets:
        socket.unlink(missing_ok=True)
    cni.remove_loopback_results(ids)


def list_processes(base_dir: Path) -> list[int]:
    """Return the ids of the daemons, shims and agents with a path below `base_dir` on their command line.

    Programs with a pid file in it and emulators of a libvirtd below it are included. This process and its ancestors are not.
    """
    mark = f"{base_dir}/"
    ancestors = _ancestors()
    emulators = {
        pid for directory in (base_dir, *_subdirectories(base_dir)) for pid in list_emulators(directory)
    }
    known = emulators | {read_pid_file(path) for path in base_dir.glob("*.pid")}
    return [
        pid
        for pid in list_pids()
        if pid in known or (pid not in ancestors and mark in (line := _command_line(pid)) and _is_ours(line))
    ]


def list_emulators(libvirtd_dir: Path) -> list[int]:
    """Return the process ids of the emulators of the `PrivateLibvirtd` with this directory.

    A pid file whose process id is reused by another process is ignored.
    """
    found = []
    for path in (libvirtd_dir / "d0" / "qemu").glob("*.pid"):
        with contextlib.suppress(OSError, ValueError):  # it is just ending
            pid = int(path.read_text())
            if f"guest={path.stem}," in _command_line(pid) and process_state(pid) not in ("", "Z", "X"):
                found.append(pid)
    return found


def is_any_libvirtd_alive() -> bool:
    """Return True if a libvirtd is running, either the system's or one of a lab."""
    return any(Path(_command_line(pid).split(" ")[0]).name == "libvirtd" for pid in list_pids())


def end_processes(pids: Iterable[int], *, signum: int = signal.SIGTERM, grace_seconds: float = 5) -> None:
    """Send `signum` to the processes, then SIGKILL to those that have not ended after `grace_seconds`."""
    waiting = list(pids)
    for signal_number in (signum, signal.SIGKILL):
        for pid in waiting:
            _send(pid, signal.SIGCONT)
            _send(pid, signal_number)
        deadline = time.monotonic() + grace_seconds
        while waiting and time.monotonic() < deadline:
            waiting = [pid for pid in waiting if process_state(pid) not in ("", "Z", "X")]
            if waiting:
                time.sleep(0.01)
        if not waiting:
            return


def socket_path(directory: Path) -> Path:
    """Return the path of containerd's socket for this directory.

    The socket is in `directory`, or below /run if its path would be too long.
    """
    wanted = directory / "containerd.sock"
    if len(str(wanted)) + len(".ttrpc") <= MAX_SOCKET_PATH:
        return wanted
    key = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    return SHORT_DIRECTORY / f"{key}.sock"


def remove_short_paths(base_dir: Path, short_directory: Path = SHORT_DIRECTORY) -> None:
    """Remove the sockets and links below /run that a lab makes if its own paths are too long."""
    for link in short_directory.glob("*"):
        if link.is_symlink() and link.readlink().is_relative_to(base_dir):
            link.unlink(missing_ok=True)
    if base_dir.is_dir():
        for directory in _containerd_directories(base_dir):
            socket = socket_path(directory)
            if socket.parent != directory:
                for path in socket.parent.glob(f"{socket.name}*"):
                    path.unlink(missing_ok=True)


def remove_tree(directory: Path, *, keep: Iterable[Path] = ()) -> None:
    """Remove a directory except the files in `keep`; does nothing if something is mounted in it."""
    kept = {path: path.read_bytes() for path in keep if path.is_file()}
    if list_mounts(directory):
        return
    shutil.rmtree(directory, ignore_errors=True)
    for path, content in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _subdirectories(base_dir: Path) -> list[Path]:
    return [path for path in base_dir.glob("*") if path.is_dir()]


def _containerd_directories(base_dir: Path) -> list[Path]:
    return [path.parent for path in base_dir.glob("*/config.toml")]


def _container_ids(containerd_dir: Path) -> set[str]:
    """Return the ids of containers and sandboxes (64 hex digits each), from the shims' bundles and runc's state."""
    roots = [
        *containerd_dir.glob("state/io.containerd.runtime.v2.task/*/*"),
        *containerd_dir.glob("root/io.containerd.runtime.v2.task/*/*"),
        *containerd_dir.glob("root/io.containerd.grpc.v1.cri/*/*"),
        *containerd_dir.glob("runc/*/*"),
    ]
    return {path.name for path in roots if len(path.name) == 64}


def _shim_sockets(containerd_dir: Path) -> list[Path]:
    """Return the paths of the shims' sockets, read from the ``address`` files in their bundles."""
    found = []
    for path in containerd_dir.glob("state/io.containerd.runtime.v2.task/*/*/address"):
        try:
            address = path.read_text().strip()
        except FileNotFoundError:
            continue
        if address.startswith("unix://"):
            found.append(Path(address.removeprefix("unix://")))
    return found


def _ancestors() -> set[int]:
    """Return the ids of this process and its ancestors. Their command lines may contain the base directory too."""
    found = {0}
    pid = os.getpid()
    while pid not in found:
        found.add(pid)
        stat = read_stat(pid)
        pid = stat.parent if stat is not None else 0
    return found


def _command_line(pid: int) -> str:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def _is_ours(command_line: str) -> bool:
    """Return True for a program that a lab starts.

    It is False for an editor or pager that shows one of the lab's files.
    """
    words = command_line.split()
    names = [Path(word).name for word in words[:3]]
    return names[0] in _PROGRAMS or (names[0].startswith("python") and "kubeletx" in names[1:])


def _is_shim(pid: int) -> bool:
    return Path(_command_line(pid).split(" ")[0]).name.startswith("containerd-shim")


def _send(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass
