"""Rules for the virtual machine of a pod and for network interfaces, which are extensions of core/v1."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kubeletx.api import names

from ..manifests.machine_form import POD_TWINS, TWINS, machine_of, says_machine
from ..text.quantity import parse
from ..types.core import Pod, PodSpec
from ..types.machine import Nic, VirtualMachine
from . import words
from .containers import PULL_POLICIES
from .mounts import check_mounts
from .problems import Problems, show
from .resources import check_amounts, check_resources

MAX_USER_DATA_BYTES: Final = 65535
MAX_META_DATA_LEVELS: Final = 100
T = TypeVar("T")

FIELD: Final = "spec.virtualMachine"
POWER_WORDS: Final = ("Running", "Paused", "Shutdown", "Suspended")
SHUTDOWN_WORDS: Final = ("stop", "terminate")
VIRTLET_RUNTIME: Final = "kubernetes.io/target-runtime"
"""Annotation by which a pod selects Virtlet, another runtime for virtual machines."""


def check_machine(machine: VirtualMachine, volumes: Collection[str], problems: Problems) -> None:
    """Check ``spec.virtualMachine``. `volumes`: names of the pod's volumes."""
    problems.name(f"{FIELD}.name", machine.name, words.machine_name)
    if problems.required(f"{FIELD}.image", machine.image, "name an image"):
        problems.word(f"{FIELD}.image", machine.image, words.image, "remove the white space")
    problems.one_of(f"{FIELD}.imagePullPolicy", machine.image_pull_policy, PULL_POLICIES)
    problems.one_of(f"{FIELD}.shutdownBehavior", machine.shutdown_behavior, SHUTDOWN_WORDS)
    problems.one_of(f"{FIELD}.powerSpec", machine.power_spec, POWER_WORDS)
    check_resources(f"{FIELD}.resources", machine.resources, problems)
    check_amounts(f"{FIELD}.resourcesAllocated", machine.resources_allocated, problems)
    for index, rule in enumerate(machine.resize_policy):
        where = f"{FIELD}.resizePolicy[{index}]"
        problems.one_of(f"{where}.resourceName", rule.resource_name, ("cpu", "memory"))
        problems.one_of(f"{where}.policy", rule.policy, ("NoRestart", "RestartContainer"))
    check_mounts(FIELD, machine.volume_mounts, machine.volume_devices, volumes, False, problems)
    _check_boot_volume(f"{FIELD}.bootVolume", machine, volumes, problems)
    _check_user_data(f"{FIELD}.userData", machine.user_data, problems)
    _check_keys(f"{FIELD}.publicKey", machine.public_key, problems)


def check_machine_annotations(pod: Pod, problems: Problems) -> None:
    """Check the annotations ``kubeletx.io/vm-*``.

    They are allowed only on a pod with a virtual machine, need valid values, and must not set what a field of the
    spec sets. Containers meant for Virtlet are reported, too.
    """
    notes = pod.metadata.annotations
    is_machine = says_machine(pod) or pod.spec.runtime_class_name is not None
    if notes.get(VIRTLET_RUNTIME) == "virtlet.cloud" and not is_machine:
        problems.add(
            f"metadata.annotations[{VIRTLET_RUNTIME}]",
            "requests a virtual machine of Virtlet, but kubeletx would run the pod as a container",
            f"set annotation {names.WORKLOAD_TYPE} to vm, and write Virtlet's annotations as docs/virtual-machines.md says",
        )
    if says_machine(pod) and pod.spec.virtual_machine is None and len(pod.spec.containers) != 1:
        problems.add(
            "spec.containers", f"has {len(pod.spec.containers)} containers", "a machine is exactly one"
        )
    given = [key for key in notes if key.startswith(names.VM_PREFIX)]
    if not given:
        return
    machine = machine_of(pod, on_vm_runtime=True)
    for key in given:
        field = f"metadata.annotations[{key}]"
        if not says_machine(pod) and pod.spec.runtime_class_name is None:
            problems.add(
                field,
                "is set on a pod of containers",
                f"set annotation {names.WORKLOAD_TYPE} to vm, or remove it",
            )
        elif pod.spec.virtual_machine is not None and key in TWINS:
            problems.add(
                field,
                "is set together with spec.virtualMachine",
                f"use spec.virtualMachine.{TWINS[key]} instead",
            )
        elif key in POD_TWINS and getattr(pod.spec, POD_TWINS[key]):
            problems.add(field, f"is set together with spec.{POD_TWINS[key]}", "keep one of them")
    if machine is None or pod.spec.virtual_machine is not None:
        return
    volumes = {volume.name for volume in pod.spec.volumes}
    where = "metadata.annotations[{}]"
    problems.one_of(where.format(names.VM_POWER), notes.get(names.VM_POWER), POWER_WORDS)
    problems.one_of(
        where.format(names.VM_SHUTDOWN_BEHAVIOR), notes.get(names.VM_SHUTDOWN_BEHAVIOR), SHUTDOWN_WORDS
    )
    _check_boot_volume(where.format(names.VM_BOOT_VOLUME), machine, volumes, problems)
    if names.VM_USER_DATA in notes and names.VM_USER_DATA_BASE64 in notes:
        field = where.format(names.VM_USER_DATA_BASE64)
        problems.add(field, f"is set together with {names.VM_USER_DATA}", "keep one of them")
    _check_user_data(where.format(names.VM_USER_DATA_BASE64), notes.get(names.VM_USER_DATA_BASE64), problems)
    _check_keys(where.format(names.VM_SSH_KEYS), notes.get(names.VM_SSH_KEYS), problems)
    _check_length(where.format(names.VM_USER_DATA), len(notes.get(names.VM_USER_DATA, "").encode()), problems)


def check_machine_settings(pod: Pod, problems: Problems) -> None:
    """Check annotations that both forms of a machine (`machine_form`) may have.

    These are disk size, maximum memory and CPUs, firmware, meta-data and network interfaces.
    """
    notes = pod.metadata.annotations
    problems.quantity(f"metadata.annotations[{names.VM_DISK_SIZE}]", notes.get(names.VM_DISK_SIZE))
    _check_maximum(names.VM_MAX_MEMORY, "memory", pod, problems)
    _check_maximum(names.VM_MAX_CPUS, "cpu", pod, problems)
    problems.one_of(
        f"metadata.annotations[{names.VM_FIRMWARE}]", notes.get(names.VM_FIRMWARE), ("bios", "uefi")
    )
    if _levels(_json(names.VM_META_DATA, dict[str, Any], notes, problems)) > MAX_META_DATA_LEVELS:
        problems.add(
            f"metadata.annotations[{names.VM_META_DATA}]",
            "is nested too deep",
            f"use at most {MAX_META_DATA_LEVELS} levels",
        )
    nics = _json(names.VM_NICS, tuple[Nic, ...], notes, problems)
    check_nic_list(f"metadata.annotations[{names.VM_NICS}]", nics or (), problems)


def _levels(value: Any) -> int:
    levels, values = 0, [value]
    while values := [inner for value in values for inner in _inner(value)]:
        levels += 1
    return levels


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _check_maximum(key: str, resource: str, pod: Pod, problems: Problems) -> None:
    """Check that the maximum in annotation `key` is not less than the machine's limit of `resource`."""
    field = f"metadata.annotations[{key}]"
    most = problems.quantity(field, pod.metadata.annotations.get(key))
    machine = machine_of(pod, on_vm_runtime=True)
    if most is None or machine is None or resource not in machine.resources.limits:
        return
    limit = machine.resources.limits[resource]
    try:
        is_below = most.nanos < parse(limit).nanos
    except (ValueError, TypeError):
        return  # the check of the limit reports it
    if is_below:
        text = pod.metadata.annotations[key]
        problems.add(field, f"{show(text)} is less than the limit of {limit}", "raise it, or remove it")


def _check_keys(field: str, text: str | None, problems: Problems) -> None:
    problem = words.ssh_public_keys(text) if text else ""
    if problem:  # a private key must not be shown
        problems.add(field, problem, "write one public key per line")


def _json(key: str, type_: type[T], notes: dict[str, str], problems: Problems) -> T | None:
    text = notes.get(key)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, RecursionError) as err:
        problems.add(f"metadata.annotations[{key}]", f"cannot be read: {err}", "write JSON")
        return None


def _check_boot_volume(
    field: str, machine: VirtualMachine, volumes: Collection[str], problems: Problems
) -> None:
    wanted = machine.boot_volume
    if wanted is None:
        return
    if wanted not in volumes:
        problems.add(field, f"{show(wanted)} is not a volume of this pod", "use one of spec.volumes")
    elif wanted not in {device.name for device in machine.volume_devices}:
        problems.add(field, f"{show(wanted)} is not in volumeDevices", "list it there, with a devicePath")


def check_nics(spec: PodSpec, problems: Problems) -> None:
    """Check ``spec.vpc`` and ``spec.nics``."""
    problems.word("spec.vpc", spec.vpc, words.network_id)
    check_nic_list("spec.nics", spec.nics, problems)


def check_nic_list(field: str, nics: Sequence[Nic], problems: Problems) -> None:
    """Check a list of network interfaces, whose names and IP addresses must differ. `field`: path of the list."""
    seen: set[str] = set()
    addresses: set[str] = set()
    for index, nic in enumerate(nics):
        _check_nic(f"{field}[{index}]", nic, seen, addresses, problems)


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


def _check_user_data(field: str, user_data: str | None, problems: Problems) -> None:
    if not user_data:
        return
    try:
        decoded = base64.b64decode("".join(user_data.split()), validate=True)
    except (binascii.Error, ValueError):
        problems.add(field, f"{show(user_data)} is not base64", "encode it with base64, once")
        return
    _check_length(field, len(decoded), problems)


def _check_length(field: str, length: int, problems: Problems) -> None:
    if length > MAX_USER_DATA_BYTES:
        problems.add(field, f"holds {length} bytes", f"use at most {MAX_USER_DATA_BYTES}")


STANDBY_WORDS: Final = ("standby", "hibernated")
"""Values of annotation ``kubeletx.io/standby``."""


def check_standby(pod: Pod, problems: Problems) -> None:
    """Check the annotations on standby: known state, no empty strategy."""
    notes = pod.metadata.annotations
    field = f"metadata.annotations[{names.STANDBY}]"
    problems.one_of(field, notes.get(names.STANDBY), STANDBY_WORDS)
    if names.STANDBY_STRATEGY in notes and not notes[names.STANDBY_STRATEGY]:
        problems.add(
            f"metadata.annotations[{names.STANDBY_STRATEGY}]", "is empty", "name a strategy, or remove it"
        )
