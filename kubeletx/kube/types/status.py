"""Status of a pod, reported by its node. Source: core/v1 PodStatus and ContainerStatus.

Fields that API clients rely on (`ready`, `restart_count`, `image`, ...) have no default, so they are
always written. Times are cut to whole seconds, as metav1.Time is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .container import ResourceRequirements
from .machine import VirtualMachineStatus
from .meta import ApiStruct, cut_to_seconds


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    """One condition of a pod; `status` is True, False or Unknown."""

    type: str
    status: str
    observed_generation: int | None = None
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None
    reason: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        cut_to_seconds(self, "last_probe_time", "last_transition_time")


class PodIP(ApiStruct, frozen=True, kw_only=True):
    """One address of the pod."""

    ip: str


class HostIP(ApiStruct, frozen=True, kw_only=True):
    """One address of the node."""

    ip: str


class ContainerStateWaiting(ApiStruct, frozen=True, kw_only=True):
    """Waiting state of a container; `reason` such as ContainerCreating or CrashLoopBackOff."""

    reason: str | None = None
    message: str | None = None


class ContainerStateRunning(ApiStruct, frozen=True, kw_only=True):
    """Running state of a container, with its start time."""

    started_at: datetime | None = None

    def __post_init__(self) -> None:
        cut_to_seconds(self, "started_at")


class ContainerStateTerminated(ApiStruct, frozen=True, kw_only=True):
    """Terminated state of a container. `reason`: such as Completed, Error or OOMKilled."""

    exit_code: int
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    container_id: str | None = None

    def __post_init__(self) -> None:
        cut_to_seconds(self, "started_at", "finished_at")


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """State of a container. At most one field is set; if none is set, the container is waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ImageVolumeStatus(ApiStruct, frozen=True, kw_only=True):
    """Image that an image volume was mounted from."""

    image_ref: str | None = None


class VolumeStatus(ApiStruct, frozen=True, kw_only=True):
    """State of a mounted volume; so far only image volumes have one."""

    image: ImageVolumeStatus | None = None


class VolumeMountStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of one volume mount of a container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    recursive_read_only: str | None = None
    volume_status: VolumeStatus | None = None


class LinuxContainerUser(ApiStruct, frozen=True, kw_only=True):
    """User and groups of the container's first process on Linux."""

    uid: int
    gid: int
    supplemental_groups: tuple[int, ...] = ()


class ContainerUser(ApiStruct, frozen=True, kw_only=True):
    """User of the container's first process; one field for each platform."""

    linux: LinuxContainerUser | None = None


class ResourceHealth(ApiStruct, frozen=True, kw_only=True):
    """Health of one device. `resource_id`: id of the device. `health`: such as Healthy, Unhealthy or Unknown."""

    resource_id: str | None = None
    health: str | None = None
    message: str | None = None


class ResourceStatus(ApiStruct, frozen=True, kw_only=True):
    """Health of the devices that a container got for one resource."""

    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of one container. `container_id`: ``<runtime>://<id>``."""

    name: str
    ready: bool
    restart_count: int
    image: str
    image_id: str
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    container_id: str | None = None
    started: bool | None = None
    allocated_resources: dict[str, str] = {}
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMountStatus, ...] = ()
    user: ContainerUser | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] = ()
    stop_signal: str | None = None


class PodResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    """Name of the ResourceClaim object that was created for a claim of the pod."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of the whole pod. `phase`: Pending, Running, Succeeded, Failed or Unknown."""

    observed_generation: int | None = None
    phase: str | None = None
    conditions: tuple[PodCondition, ...] = ()
    message: str | None = None
    reason: str | None = None
    nominated_node_name: str | None = None
    host_ip: str | None = None
    host_ips: tuple[HostIP, ...] = ()
    pod_ip: str | None = None
    pod_ips: tuple[PodIP, ...] = ()
    start_time: datetime | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str | None = None
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resize: str | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: dict[str, Any] | None = None
    allocated_resources: dict[str, str] = {}
    resources: ResourceRequirements = ResourceRequirements()
    node_allocatable_resource_claim_statuses: tuple[dict[str, Any], ...] = ()
    virtual_machine_status: VirtualMachineStatus | None = None

    def __post_init__(self) -> None:
        cut_to_seconds(self, "start_time")
