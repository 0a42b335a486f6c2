"""The node's ``nodeInfo`` (machine id, kernel, distribution, versions), and its hardware for the metrics ``machine_*``.

``containerRuntimeVersion`` is the version of the default container runtime (DECISIONS 25). The node's conditions and
``kubeletx get runtimes`` show the other runtimes.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kubeletx.api import RuntimeVersion
from kubeletx.kube.types.node import NodeSwapStatus, NodeSystemInfo

from .cgroups.text import read_meminfo, text_of

ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
    "riscv64": "riscv64",
}
"""Kubernetes' name of each CPU architecture, by the kernel's name (``uname -m``)."""


KUBERNETES_VERSION = "v1.36.0"
"""Version of the kubelet whose behaviour this agent follows."""


def kubelet_version(agent_version: str) -> str:
    """Return the kubelet version for the Node object, in a form that tools such as kubeadm's upgrade can parse.

    It is `KUBERNETES_VERSION`, with the agent's version as build metadata (letters, digits, dots and dashes).
    """
    return f"{KUBERNETES_VERSION}+kubeletx-{agent_version.replace('+', '.')}"


def architecture(machine: str | None = None) -> str:
    """Return Kubernetes' name of a CPU architecture, such as amd64.

    `machine`: the kernel's name of the hardware, such as x86_64; None: this machine.
    """
    machine = machine or os.uname().machine
    return ARCHITECTURES.get(machine, machine)


def read_system_info(
    *, kubelet_version: str, runtime: RuntimeVersion | None, root: Path = Path("/")
) -> NodeSystemInfo:
    """Read ``nodeInfo`` from the files below `root`.

    `kubelet_version`: see the function of this name. `runtime`: version of the default container runtime; None: it has
    not answered yet.
    """
    machine_id = _first(root / "etc/machine-id", root / "var/lib/dbus/machine-id")
    swap = read_meminfo(root / "proc/meminfo").get("SwapTotal", 0)
    return NodeSystemInfo(
        machine_id=machine_id,
        system_uuid=_first(root / "sys/class/dmi/id/product_uuid", root / "proc/device-tree/vm,uuid")
        or machine_id,
        boot_id=_first(root / "proc/sys/kernel/random/boot_id"),
        kernel_version=_first(root / "proc/sys/kernel/osrelease") or os.uname().release,
        os_image=_os_image(root / "etc/os-release") or _os_image(root / "usr/lib/os-release") or "Linux",
        container_runtime_version=f"{runtime.name}://{runtime.version}" if runtime else "",
        kubelet_version=kubelet_version,
        kube_proxy_version="",
        operating_system="linux",
        architecture=architecture(),
        swap=NodeSwapStatus(capacity=swap) if swap else None,
    )


def _first(*paths: Path) -> str:
    for path in paths:
        try:
            text = path.read_text(errors="replace").strip("\0 \n")
        except OSError:
            continue
        if text:
            return text
    return ""


def _os_image(path: Path) -> str:
    for line in _first(path).split("\n"):
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip("\"'")
    return ""


class MachineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Hardware and operating system of the machine. `physical_cores` and `sockets`: 0 if unknown."""

    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    os_image: str = ""
    physical_cores: int = 0
    sockets: int = 0


def read_machine(root: Path = Path("/")) -> MachineInfo:
    """Read the machine's hardware from the files below `root`; blocks for a few milliseconds."""
    system = read_system_info(kubelet_version="", runtime=None, root=root)
    cores = _cores(root / "sys/devices/system/cpu")
    return MachineInfo(
        machine_id=system.machine_id,
        system_uuid=system.system_uuid,
        boot_id=system.boot_id,
        kernel_version=system.kernel_version,
        os_image=system.os_image,
        physical_cores=len(cores),
        sockets=len({socket for socket, _ in cores}),
    )


def _cores(directory: Path) -> set[tuple[str, str]]:
    """Return the socket id and core id of every physical core."""
    cores = set()
    for topology in directory.glob("cpu[0-9]*/topology"):
        socket = text_of(topology / "physical_package_id").strip()
        core = text_of(topology / "core_id").strip()
        if socket and core:
            cores.add((socket, core))
    return cores
