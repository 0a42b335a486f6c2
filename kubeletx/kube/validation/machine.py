"""Rules for the virtual machine of a pod and for network interfaces (the multi-runtime design)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from typing import Final

from ..core import PodSpec
from ..machine import Nic, VirtualMachine
from . import words
from .containers import PULL_POLICIES
from .mounts import check_mounts
from .problems import Problems, show
from .resources import check_amounts, check_resources

MAX_USER_DATA_BYTES: Final = 65535
FIELD: Final = "spec.virtualMachine"


def check_machine(machine: VirtualMachine, volumes: Collection[str], problems: Problems) -> None:
    """The one machine of a pod."""
    problems.name(f"{FIELD}.name", machine.name, words.machine_name)
    if problems.required(f"{FIELD}.image", machine.image, "name an image"):
        problems.word(f"{FIELD}.image", machine.image, words.image, "remove the white space")
    problems.one_of(f"{FIELD}.imagePullPolicy", machine.image_pull_policy, PULL_POLICIES)
    problems.one_of(f"{FIELD}.shutdownBehavior", machine.shutdown_behavior, ("stop", "terminate"))
    problems.one_of(f"{FIELD}.powerSpec", machine.power_spec, ("Running", "Paused", "Shutdown", "Suspended"))
    check_resources(f"{FIELD}.resources", machine.resources, problems)
    check_amounts(f"{FIELD}.resourcesAllocated", machine.resources_allocated, problems)
    for index, rule in enumerate(machine.resize_policy):
        where = f"{FIELD}.resizePolicy[{index}]"
        problems.one_of(f"{where}.resourceName", rule.resource_name, ("cpu", "memory"))
        problems.one_of(f"{where}.policy", rule.policy, ("NoRestart", "RestartContainer"))
    check_mounts(FIELD, machine.volume_mounts, machine.volume_devices, volumes, False, problems)
    if machine.boot_volume is not None and machine.boot_volume not in volumes:
        problems.add(
            f"{FIELD}.bootVolume",
            f"{show(machine.boot_volume)} is not a volume of this pod",
            "use one of spec.volumes",
        )
    _check_user_data(machine.user_data, problems)


def check_nics(spec: PodSpec, problems: Problems) -> None:
    """The pod's network and its interfaces."""
    problems.word("spec.vpc", spec.vpc, words.network_id)
    names: set[str] = set()
    addresses: set[str] = set()
    for index, nic in enumerate(spec.nics):
        _check_nic(f"spec.nics[{index}]", nic, names, addresses, problems)


def _check_nic(field: str, nic: Nic, names: set[str], addresses: set[str], problems: Problems) -> None:
    problems.word(f"{field}.name", nic.name, words.interface_name)
    if nic.name:
        problems.unique(f"{field}.name", nic.name, names, "interface")
    problems.word(f"{field}.subnetName", nic.subnet_name, words.network_id)
    problems.word(f"{field}.portId", nic.port_id, words.network_id)
    problems.word(f"{field}.ipAddress", nic.ip_address, words.ip_address)
    if nic.ip_address and nic.ip_address in addresses:
        problems.add(f"{field}.ipAddress", f"{show(nic.ip_address)} is given twice", "choose another address")
    addresses.add(nic.ip_address or "")


def _check_user_data(user_data: str | None, problems: Problems) -> None:
    if not user_data:
        return
    field = f"{FIELD}.userData"
    try:
        decoded = base64.b64decode("".join(user_data.split()), validate=True)
    except binascii.Error:
        problems.add(field, f"{show(user_data)} is not base64", "encode it with base64, once")
        return
    if len(decoded) > MAX_USER_DATA_BYTES:
        problems.add(field, f"holds {len(decoded)} bytes", f"use at most {MAX_USER_DATA_BYTES}")
