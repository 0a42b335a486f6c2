"""Reads the machine's hardware (cores, sockets, ids) for the metrics ``machine_*``, once at the agent's start."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .cgroups.text import text_of
from .info import read_system_info


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
