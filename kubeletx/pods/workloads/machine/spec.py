"""Converts a pod's virtual machine to an `api.Machine`: all settings for its runtime except resources and volumes."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

from kubeletx.api import CloudInit, Machine, Nic, names
from kubeletx.kube.manifests.machine_form import HOST_SETTINGS, nics_of, vpc_of
from kubeletx.kube.text.quantity import parse, to_bytes
from kubeletx.kube.types.core import Nic as PodNic
from kubeletx.kube.types.core import Pod, VirtualMachine

from ...model.spec_errors import ContainerConfigError

_POWER: Final = {"Running": "running", "Paused": "paused", "Suspended": "suspended", "Shutdown": "off"}


def build_machine(pod: Pod, machine: VirtualMachine) -> Machine:
    """Convert the pod's virtual machine to the `api.Machine` for its runtime. Raises InvalidPod for invalid fields."""
    power = machine.power_spec or "Running"
    if power not in _POWER:
        raise ContainerConfigError(
            field="spec.virtualMachine.powerSpec",
            problem=f"unknown power state {power!r}",
            fix="use " + ", ".join(_POWER),
        )
    notes = pod.metadata.annotations
    return Machine(
        hostname=_hostname(pod, machine),
        boot_volume=machine.boot_volume or None,
        root_size_bytes=_root_size(pod, machine),
        max_vcpus=_max_vcpus(pod),
        max_memory_bytes=_bytes(pod, names.VM_MAX_MEMORY),
        cloud_init=CloudInit(
            user_data=_user_data(pod, machine),
            meta_data=_meta_data(pod),
            script=machine.cloud_init_user_data_script or None,
            ssh_keys=tuple(key.strip() for key in (machine.public_key or "").split("\n") if key.strip()),
        ),
        nics=tuple(build_nic(nic) for nic in _nics(pod)),
        vpc=vpc_of(pod),
        keep_disk=machine.shutdown_behavior != "terminate",
        power=_POWER[power],
        firmware=notes.get(names.VM_FIRMWARE, "bios"),
        settings=_settings(pod, machine),
    )


def build_nic(nic: PodNic) -> Nic:
    """Convert one network interface of a pod to an `api.Nic`. Its name must be set."""
    return Nic(
        name=nic.name or "",
        network=nic.subnet_name or "",
        port_id=nic.port_id or "",
        ip_address=nic.ip_address or "",
        tag=nic.tag or "",
        ipv6=bool(nic.ipv6_enabled),
    )


def _settings(pod: Pod, machine: VirtualMachine) -> dict[str, str]:
    """Return the settings that are passed to the runtime unchanged.

    They are the ``kubeletx.io/vm-`` annotations that the agent does not read itself, the name of the key pair, and the
    trusted image certificates.
    """
    notes = pod.metadata.annotations
    settings = {k: v for k, v in notes.items() if k.startswith(names.VM_PREFIX) and k not in HOST_SETTINGS}
    if machine.key_pair_name:
        settings[names.VM_KEY_PAIR] = machine.key_pair_name
    if machine.trusted_image_certificate:
        settings[names.VM_CERTIFICATES] = "\n".join(machine.trusted_image_certificate)
    return settings


def _hostname(pod: Pod, machine: VirtualMachine) -> str:
    """Return the machine's host name: the name in `spec.virtualMachine`.

    For a machine that is written as a container, return the pod's host name.
    """
    if pod.spec.virtual_machine is not None:
        return machine.name.lower()
    return pod.spec.hostname or pod.name[:63].rstrip("-.").lower()


def _nics(pod: Pod) -> tuple[PodNic, ...]:
    try:
        return nics_of(pod)
    except ValueError as err:
        raise _bad(
            names.VM_NICS, f"is not a list of interfaces: {err}", "write JSON as in spec.nics"
        ) from err


def _root_size(pod: Pod, machine: VirtualMachine) -> int | None:
    size = _bytes(pod, names.VM_DISK_SIZE)
    if size is None and (text := machine.resources.limits.get("ephemeral-storage")) is not None:
        return to_bytes(text)
    return size


def _bytes(pod: Pod, annotation: str) -> int | None:
    text = pod.metadata.annotations.get(annotation)
    if text is None:
        return None
    try:
        return to_bytes(text)
    except ValueError as err:
        raise _bad(annotation, f"{text!r} {err}", "write a size such as 10Gi") from err


def _max_vcpus(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(names.VM_MAX_CPUS)
    if text is None:
        return None
    try:
        return -(-parse(text).nanos // 10**9)
    except ValueError as err:
        raise _bad(names.VM_MAX_CPUS, f"{text!r} {err}", "write a whole number of CPUs") from err


def _meta_data(pod: Pod) -> dict[str, Any] | None:
    text = pod.metadata.annotations.get(names.VM_META_DATA)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as err:
        raise _bad(names.VM_META_DATA, f"is not a JSON object: {err}", "write a JSON object") from err


def _user_data(pod: Pod, machine: VirtualMachine) -> bytes | None:
    plain = pod.metadata.annotations.get(names.VM_USER_DATA)
    if plain and pod.spec.virtual_machine is None:
        return plain.encode()
    if not machine.user_data:
        return None
    try:
        return base64.b64decode("".join(machine.user_data.split()), validate=True)
    except (binascii.Error, ValueError) as err:
        raise ContainerConfigError(
            field="spec.virtualMachine.userData", problem=f"is not base64: {err}", fix="encode it with base64"
        ) from err


def _bad(annotation: str, problem: str, fix: str) -> ContainerConfigError:
    return ContainerConfigError(field=f"metadata.annotations[{annotation}]", problem=problem, fix=fix)
