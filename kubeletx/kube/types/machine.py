"""The virtual machine of a pod, and extra network interfaces: extensions of core/v1.

The field names are from the multi-runtime design (Arktos), so that its manifests work unchanged. A pod has either
containers or one virtual machine.
"""

from __future__ import annotations

from msgspec import field

from .container import ResourceRequirements, VolumeDevice, VolumeMount
from .meta import ApiStruct


class VirtualMachineResizePolicy(ApiStruct, frozen=True, kw_only=True):
    """Policy for changes of one resource of a running machine.

    `policy`: NoRestart or RestartContainer. `resource_name`: cpu or memory.
    """

    resource_name: str = ""
    policy: str = ""


class VirtualMachine(ApiStruct, frozen=True, kw_only=True):
    """The virtual machine of a pod, in place of containers.

    `user_data`: base64, as in the manifest. `power_spec`: Running, Paused, Shutdown or Suspended;
    `shutdown_behavior`: stop or terminate. `boot_volume`: one of `volume_devices`, the disk to boot from and to keep;
    None: boot from a temporary overlay of the image. `name`: name of the machine. `image`: name of the disk image.
    `resources`: CPUs and memory of the machine. `resources_allocated`: set by the node; no effect in a manifest.
    `volume_mounts`: volumes that the guest can mount. `volume_devices`: block devices that the machine gets.
    `image_pull_policy`: Always, IfNotPresent or Never. `key_pair_name`: name of the SSH key pair. `public_key`: SSH
    key that may log in. `cloud_init_user_data_script`: script that cloud-init runs at the first start.
    `trusted_image_certificate`: certificates that the image is checked with.
    """

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    resources_allocated: dict[str, str] = {}
    resize_policy: tuple[VirtualMachineResizePolicy, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    image_pull_policy: str | None = None
    key_pair_name: str | None = None
    public_key: str | None = None
    user_data: str | None = None
    cloud_init_user_data_script: str | None = None
    trusted_image_certificate: tuple[str, ...] = ()
    shutdown_behavior: str | None = None
    boot_volume: str | None = None
    power_spec: str | None = None


class Nic(ApiStruct, frozen=True, kw_only=True):
    """Network interface of a virtual machine.

    `name` None: eth0, eth1, ... by its position in the list. `subnet_name`: subnet or network that it is in.
    `port_id`: port that exists already. `ip_address`: its address; None: given by DHCP. `tag`: text for the network.
    `ipv6_enabled`: it also gets an IPv6 address.
    """

    name: str | None = None
    subnet_name: str | None = None
    port_id: str | None = field(default=None, name="portId")
    ip_address: str | None = field(default=None, name="ipAddress")
    tag: str | None = None
    ipv6_enabled: bool | None = None


class VirtualMachineStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of a virtual machine. `power_state`: nostate, running, paused, shutdown, crashed or suspended."""

    name: str = ""
    virtual_machine_id: str | None = field(default=None, name="virtualMachineId")
    image_id: str | None = field(default=None, name="imageId")
    image: str | None = None
    state: str | None = None
    last_termination_state: str | None = None
    power_state: str | None = None
    ready: bool = False
    restart_count: int = 0
    resources: ResourceRequirements = ResourceRequirements()
