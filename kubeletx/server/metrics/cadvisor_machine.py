"""Makes cAdvisor's series about the machine: ``machine_*``, ``cadvisor_version_info``, ``container_scrape_error``."""

from __future__ import annotations

from collections.abc import Iterator

from .exposition import Family, labels_of
from .figures import Figures


def machine_families(figures: Figures) -> Iterator[Family]:
    """Yield the series of the machine. They have no labels while `figures.machine` is None (not read yet)."""
    machine = figures.machine
    labels = ""
    if machine is not None:
        named = {
            "boot_id": machine.boot_id,
            "machine_id": machine.machine_id,
            "system_uuid": machine.system_uuid,
        }
        labels = labels_of(named)
        info = Family("cadvisor_version_info", "gauge", "Kernel and distribution; no cAdvisor runs here.")
        versions = {
            "cadvisorRevision": "",
            "cadvisorVersion": "",
            "dockerVersion": "",
            "kernelVersion": machine.kernel_version,
            "osVersion": machine.os_image,
        }
        info.add(labels_of(versions), 1)
        yield info
    error = Family("container_scrape_error", "gauge", "1 while a runtime does not answer, else 0.")
    error.add("", int(bool(figures.missing)))
    yield error
    for name, text, value in (
        ("machine_cpu_cores", "Logical processors.", figures.host.cores),
        (
            "machine_cpu_physical_cores",
            "Cores, without hyperthreads.",
            machine.physical_cores or None if machine is not None else None,
        ),
        (
            "machine_cpu_sockets",
            "Processor sockets.",
            machine.sockets or None if machine is not None else None,
        ),
        ("machine_memory_bytes", "Memory of the node.", figures.host.memory_capacity_bytes),
        ("machine_swap_bytes", "Swap of the node.", figures.host.swap_capacity_bytes),
    ):
        family = Family(name, "gauge", text)
        family.add(labels, value)
        yield family
