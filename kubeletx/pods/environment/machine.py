"""The pod's virtual machine → `Machine`: what a hypervisor is told besides resources and disks."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from kubeletx.api import CloudInit, Machine, Nic
from kubeletx.kube.core import Pod, VirtualMachine
from kubeletx.kube.quantity import to_bytes

from .errors import ContainerConfigError

VM_PREFIX: Final = "kubeletx.io/vm-"
DISK_SIZE: Final = "kubeletx.io/vm-disk-size"
FIRMWARE: Final = "kubeletx.io/vm-firmware"
KEY_PAIR: Final = "kubeletx.io/vm-key-pair-name"
"""Setting that carries virtualMachine.keyPairName to the runtime."""

_POWER: Final = {"Running": "running", "Paused": "paused", "Suspended": "suspended", "Shutdown": "off"}


def build_machine(pod: Pod, machine: VirtualMachine) -> Machine:
    """The machine as its runtime needs it. Raises InvalidPod for what cannot be read."""
    power = machine.power_spec or "Running"
    if power not in _POWER:
        raise ContainerConfigError(
            field="spec.virtualMachine.powerSpec",
            problem=f"{power!r} is no power state",
            fix="use " + ", ".join(_POWER),
        )
    settings = {key: value for key, value in pod.metadata.annotations.items() if key.startswith(VM_PREFIX)}
    if machine.key_pair_name:
        settings[KEY_PAIR] = machine.key_pair_name
    return Machine(
        hostname=machine.name.lower(),
        boot_volume=machine.boot_volume or None,
        root_size_bytes=_root_size(pod, machine),
        cloud_init=CloudInit(
            user_data=_user_data(machine),
            script=machine.cloud_init_user_data_script or None,
            ssh_keys=(machine.public_key,) if machine.public_key else (),
        ),
        nics=tuple(
            Nic(
                name=nic.name or f"eth{index}",
                network=nic.subnet_name or "",
                port_id=nic.port_id or "",
                ip_address=nic.ip_address or "",
                tag=nic.tag or "",
                ipv6=bool(nic.ipv6_enabled),
            )
            for index, nic in enumerate(pod.spec.nics)
        ),
        vpc=pod.spec.vpc or "",
        keep_disk=machine.shutdown_behavior != "terminate",
        power=_POWER[power],
        firmware=settings.get(FIRMWARE, "bios"),
        settings=settings,
    )


def _root_size(pod: Pod, machine: VirtualMachine) -> int | None:
    text = pod.metadata.annotations.get(DISK_SIZE)
    if text is None:
        text = machine.resources.limits.get("ephemeral-storage")
        return None if text is None else to_bytes(text)
    try:
        return to_bytes(text)
    except ValueError as err:
        raise ContainerConfigError(
            field=f"metadata.annotations[{DISK_SIZE}]",
            problem=f"{text!r} {err}",
            fix="write a size such as 10Gi",
        ) from err


def _user_data(machine: VirtualMachine) -> bytes | None:
    if not machine.user_data:
        return None
    try:
        return base64.b64decode(machine.user_data, validate=True)
    except (binascii.Error, ValueError) as err:
        raise ContainerConfigError(
            field="spec.virtualMachine.userData", problem=f"is not base64: {err}", fix="encode it with base64"
        ) from err
