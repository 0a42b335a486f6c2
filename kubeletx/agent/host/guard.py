"""Detects a kubelet that uses the same resources of the machine (DECISIONS 12), before the first call to a runtime.

A kubelet removes pods that it does not know from its runtime. Two agents with the same root directory, log directory,
cgroup root or port destroy each other's work. The agent therefore refuses to start if it would share any of these, or
a CRI socket. ``--share-runtime`` turns the refusal for a shared CRI socket into a warning.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from kubeletx.api import InvalidConfig

from ..config.kubelet_words import KUBELET, KUBELET_ROOT

KUBELET_LOGS = Path("/var/log/pods")
KUBELET_SOCKETS = ("/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock")
KUBELET_CGROUP_ROOT = ""


class Kubelet(msgspec.Struct, frozen=True, kw_only=True):
    """A running kubelet process, with the settings of its command line; its configuration file is not read."""

    pid: int
    root_dir: Path = KUBELET_ROOT
    logs_dir: Path = KUBELET_LOGS
    cgroup_root: str = KUBELET_CGROUP_ROOT
    sockets: tuple[str, ...] = KUBELET_SOCKETS


class OwnResources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of the machine that this agent is about to use.

    `cgroup_root` None: the agent makes no cgroups. `sockets`: endpoints of its runtimes. `ports`: (address, port) of
    its servers; port 0: not used.
    """

    root_dir: Path
    logs_dir: Path
    cgroup_root: str | None
    sockets: tuple[str, ...]
    ports: tuple[tuple[str, int], ...]


class Collision(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that this agent would share with a kubelet or another process.

    `field`: the setting that names the resource. `shareable`: ``--share-runtime`` permits sharing it.
    """

    field: str
    problem: str
    fix: str
    shareable: bool = False


def find_kubelets(proc: Path = Path("/proc")) -> list[Kubelet]:
    """Find the kubelet processes of this machine, except this process and processes in pods.

    A kubelet is found by the program name in its command line.
    """
    namespace = _pid_namespace(proc / "self")
    kubelets = []
    for directory in sorted(proc.glob("[0-9]*")):
        try:
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # the process has ended since the directory was listed
            continue
        is_other = Path(words[0]).name == KUBELET and int(directory.name) != os.getpid()
        if is_other and not _is_of_a_pod(directory, namespace):
            kubelets.append(_kubelet(int(directory.name), words[1:]))
    return kubelets


def _is_of_a_pod(process: Path, namespace: str) -> bool:
    """Return True if the process belongs to a pod: it is in another PID namespace or in a pod's cgroup.

    Such a process is not taken for a kubelet, since a pod can choose the name and flags of its processes. `namespace`:
    this process's PID namespace.
    """
    if namespace and _pid_namespace(process) not in ("", namespace):
        return True
    try:
        lines = (process / "cgroup").read_bytes().split(b"\n")
    except OSError:  # the process has ended
        return False
    parts = {part for line in lines for part in line.rpartition(b":")[2].split(b"/")}
    return any(
        part in (b"kubepods", b"kubepods.slice") or part.endswith(b"-kubepods.slice") for part in parts
    )


def _pid_namespace(process: Path) -> str:
    """Return the identity of the process's PID namespace; empty if the process has ended."""
    try:
        return os.readlink(process / "ns/pid")
    except OSError:
        return ""


def _kubelet(pid: int, words: Sequence[str]) -> Kubelet:
    flags = _flags(words)
    endpoint = flags.get("container-runtime-endpoint", "").removeprefix("unix://")
    return Kubelet(
        pid=pid,
        root_dir=Path(flags.get("root-dir", str(KUBELET_ROOT))),
        logs_dir=Path(flags.get("pod-logs-dir", str(KUBELET_LOGS))),
        cgroup_root=flags.get("cgroup-root", KUBELET_CGROUP_ROOT).strip("/"),
        sockets=(endpoint,) if endpoint else KUBELET_SOCKETS,
    )


def _flags(words: Sequence[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    waiting = ""
    for word in words:
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            waiting = "" if sign else name
            if sign:
                flags[name] = value
        elif waiting:
            flags[waiting], waiting = word, ""
    return flags


def collisions(
    ours: OwnResources, kubelets: Iterable[Kubelet], is_free: Callable[[str, int], bool]
) -> list[Collision]:
    """Return every resource that this agent would share with one of the kubelets, and every port that is in use.

    `is_free`: returns True if no process listens on the address and port.
    """
    overlaps = []
    for kubelet in kubelets:
        overlaps += _with_kubelet(ours, kubelet)
    for address, port in ours.ports:
        if port and not is_free(address, port):
            overlaps.append(
                Collision(
                    field="port",
                    problem=f"{address}:{port} is in use by another process",
                    fix="stop it or choose another port (0 turns the server off)",
                )
            )
    return overlaps


def _with_kubelet(ours: OwnResources, kubelet: Kubelet) -> list[Collision]:
    who = f"the kubelet with pid {kubelet.pid}"
    overlaps = []
    if _overlap(ours.root_dir, kubelet.root_dir):
        problem = f"{ours.root_dir} is also the root directory of {who}"
        overlaps.append(Collision(field="--root-dir", problem=problem, fix="choose another directory"))
    if _overlap(ours.logs_dir, kubelet.logs_dir):
        problem = f"{ours.logs_dir} is also the log directory of {who}"
        overlaps.append(Collision(field="--pod-logs-dir", problem=problem, fix="choose another directory"))
    if ours.cgroup_root is not None and ours.cgroup_root.strip("/") == kubelet.cgroup_root:
        problem = f"/{kubelet.cgroup_root} is also the cgroup root of {who}"
        overlaps.append(
            Collision(field="cgroupRoot", problem=problem, fix="set cgroupRoot to one of your own")
        )
    theirs = {_real(path) for path in kubelet.sockets}
    for path in ours.sockets:
        if _real(path) in theirs:
            overlaps.append(
                Collision(
                    field="--container-runtime-endpoint",
                    problem=f"{path} is also the runtime of {who}, which removes pods that it did not start",
                    fix="use a runtime of your own, or accept the risk with --share-runtime",
                    shareable=True,
                )
            )
    return overlaps


def check(overlaps: Sequence[Collision], *, share_runtime: bool) -> list[str]:
    """Raise one InvalidConfig that lists all collisions that `share_runtime` does not permit.

    If all are permitted, returns their problems, which the caller logs as warnings.
    """
    refused = [c for c in overlaps if not (c.shareable and share_runtime)]
    if refused:
        raise InvalidConfig(
            field=", ".join(sorted({c.field for c in refused})),
            problem="; ".join(c.problem for c in refused),
            fix="; ".join(dict.fromkeys(c.fix for c in refused)),
        )
    return [c.problem for c in overlaps]


def is_port_free(address: str, port: int) -> bool:
    """Return True if no process listens on the address and port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # without it, connections in TIME_WAIT of an earlier agent count as listeners
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _overlap(one: Path, other: Path) -> bool:
    a, b = one.resolve(), other.resolve()
    return a == b or a.is_relative_to(b) or b.is_relative_to(a)


def _real(path: str) -> str:
    return str(Path(path.removeprefix("unix://")).resolve())
