"""Specifications that the agent passes to a runtime: `SandboxSpec` for a pod sandbox, `UnitSpec` for what runs in it.

A *unit* is a container, a process or a virtual machine. Runtimes get these specs, never a Pod: the agent builds them
from a Pod or from a CRI request. They are plain serialisable values (frozen msgspec Structs), so that a runtime may
run in another process. None means "not set, the runtime's default"; an empty tuple means "none".
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from .identity import PodUid, UnitId


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of all values that the agent passes to a runtime: frozen, keyword-only, serialisable with msgspec."""


class NamespaceMode(enum.Enum):
    """Selects the Linux namespace that a sandbox or unit uses. Source: CRI v1 NamespaceMode.

    POD: one for the whole pod. CONTAINER: one for each unit. NODE: the node's. TARGET: the one of another unit,
    `Namespaces.target_unit`.
    """

    POD = "pod"
    CONTAINER = "container"
    NODE = "node"
    TARGET = "target"


class MountPropagation(enum.Enum):
    """Propagation of mounts that are made later below a mount point. Source: CRI v1 MountPropagation.

    PRIVATE: they are not propagated. HOST_TO_CONTAINER: mounts made on the node appear in the container. BIDIRECTIONAL:
    mounts made in the container also appear on the node.
    """

    PRIVATE = "private"
    HOST_TO_CONTAINER = "host-to-container"
    BIDIRECTIONAL = "bidirectional"


class SourceKind(enum.Enum):
    """Kind of `Mount.source` on the node. The agent prepares the source; the runtime mounts it in the unit."""

    DIRECTORY = "directory"
    """A directory or a regular file."""
    BLOCK_DEVICE = "block-device"
    DISK_IMAGE = "disk-image"


class ProfileType(enum.Enum):
    """Type of a `SecurityProfile`. LOCALHOST: a profile of the node. Source: CRI v1 SecurityProfile.ProfileType."""

    RUNTIME_DEFAULT = "runtime-default"
    UNCONFINED = "unconfined"
    LOCALHOST = "localhost"


class SecurityProfile(Spec, frozen=True, kw_only=True):
    """Profile of seccomp or AppArmor for a unit or sandbox.

    `localhost_ref`: path of the seccomp file or name of the AppArmor profile; used only with type LOCALHOST.
    """

    type: ProfileType
    localhost_ref: str = ""


class SELinuxOptions(Spec, frozen=True, kw_only=True):
    """SELinux label of a process or sandbox, by its parts. For an empty part the runtime chooses a value."""

    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class PortMapping(Spec, frozen=True, kw_only=True):
    """Port of a container. `host_port`: port of the node that leads to it; 0: none. `protocol`: TCP, UDP or SCTP.

    `host_ip`: address of the node on which `host_port` is open; empty: all addresses.
    """

    container_port: int
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = ""


class Dns(Spec, frozen=True, kw_only=True):
    """Content of the pod's resolv.conf: the values of its nameserver, search and options lines, in order."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class HostEntry(Spec, frozen=True, kw_only=True):
    """One extra line of the pod's hosts file: an address and its names (Kubernetes hostAliases)."""

    ip: str
    names: tuple[str, ...]


class IdMapping(Spec, frozen=True, kw_only=True):
    """Mapping of one range of user or group ids in a user namespace, as in /proc/PID/uid_map.

    The `length` ids that start at `container_id` in the container are the ids that start at `host_id` on the node.
    """

    host_id: int
    container_id: int
    length: int


class Namespaces(Spec, frozen=True, kw_only=True):
    """Linux namespaces that a sandbox or unit joins.

    `user`: id mappings of the pod's user namespace; None: the node's user namespace.
    """

    network: NamespaceMode = NamespaceMode.POD
    pid: NamespaceMode = NamespaceMode.CONTAINER
    ipc: NamespaceMode = NamespaceMode.POD
    target_unit: UnitId | None = None
    """With pid=TARGET: the unit whose PID namespace is joined."""
    user: tuple[IdMapping, ...] | None = None


class Resources(Spec, frozen=True, kw_only=True):
    """Resource limits and CPU shares of a unit or of a whole sandbox. None: unlimited, or the runtime's default.

    The agent computes them from requests and limits like the kubelet (pkg/kubelet/cm/helpers_linux.go and
    qos/policy.go).
    """

    cpu_shares: int | None = None
    cpu_period_us: int | None = None
    cpu_quota_us: int | None = None
    cpu_request_millicores: int | None = None
    cpu_limit_millicores: int | None = None
    memory_request_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_swap_limit_bytes: int | None = None
    ephemeral_storage_limit_bytes: int | None = None
    oom_score_adj: int | None = None
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    hugepage_limits_bytes: dict[str, int] = {}
    """Page size, such as "2MB" or "1GB", to limit in bytes."""
    pids_limit: int | None = None
    unified: dict[str, str] = {}
    """Name of a cgroup v2 file to the value that is written to it."""


class SandboxSecurity(Spec, frozen=True, kw_only=True):
    """Security settings of the sandbox itself, not of its units."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    supplemental_groups_strict: bool = False
    privileged: bool = False
    readonly_rootfs: bool = False
    seccomp: SecurityProfile | None = None
    apparmor: SecurityProfile | None = None
    selinux: SELinuxOptions | None = None


class SandboxSpec(Spec, frozen=True, kw_only=True):
    """Specification of a pod sandbox: the pod's identity, and all settings that its units share.

    `uid` and `attempt` identify the sandbox: a second `Runtime.create_sandbox` with the same pair returns the
    first sandbox.
    """

    uid: PodUid
    name: str
    namespace: str
    attempt: int = 0
    handler: str = ""
    """Runtime handler such as ``runc``; empty: the endpoint's default."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    hostname: str = ""
    """Host name of at most 63 characters; empty with host network."""
    dns: Dns | None = None
    hosts: tuple[HostEntry, ...] = ()
    ports: tuple[PortMapping, ...] = ()
    namespaces: Namespaces = Namespaces()
    cgroup_parent: str = ""
    log_directory: str = ""
    sysctls: dict[str, str] = {}
    security: SandboxSecurity = SandboxSecurity()
    overhead: Resources | None = None
    resources: Resources | None = None
    """Sum over the pod's units, for runtimes that need the sandbox's size at its creation, such as VM-based ones."""


class EnvVar(Spec, frozen=True, kw_only=True):
    """One environment variable of a unit. References such as ``$(NAME)`` are expanded. The repr hides the value."""

    name: str
    value: str = ""

    def __repr__(self) -> str:
        return f"EnvVar(name={self.name!r}, ...)"


class Mount(Spec, frozen=True, kw_only=True):
    """Mount of a directory, file, block device, disk image or container image in a unit."""

    source: str
    """Absolute path on the node of the directory, file, block device or disk image."""
    target: str
    """Absolute path in the unit. For a block device or disk image: path or serial of the device."""
    kind: SourceKind = SourceKind.DIRECTORY
    name: str = ""
    """Name of the pod's volume; empty if the mount is not a volume of the pod."""
    read_only: bool = False
    recursive_read_only: bool = False
    propagation: MountPropagation = MountPropagation.PRIVATE
    selinux_relabel: bool = False
    user_mappings: tuple[IdMapping, ...] = ()
    group_mappings: tuple[IdMapping, ...] = ()
    format: str = ""
    """Format of a disk image, fixed when the image was created: raw or qcow2."""
    image: str = ""
    """Reference of the image of an image volume, whose `source` is empty. Empty for other mounts."""
    image_sub_path: str = ""


class ImageSpec(Spec, frozen=True, kw_only=True):
    """Image of a unit: its name in the manifest, and the reference by which the image store finds it."""

    requested: str
    """Image name in the manifest, unchanged."""
    ref: str = ""
    """Reference in the image store (image id or digest), from `ImageStatus.ref`; empty before the pull."""
    handler: str = ""
    annotations: dict[str, str] = {}


class Device(Spec, frozen=True, kw_only=True):
    """Device file of the node that a container may use. `permissions`: any of r (read), w (write), m (mknod)."""

    container_path: str
    host_path: str
    permissions: str = "rwm"


class Capabilities(Spec, frozen=True, kw_only=True):
    """Linux capabilities to add and to drop, by name without CAP_, such as NET_ADMIN. ALL means all of them."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class ProcessSecurity(Spec, frozen=True, kw_only=True):
    """Security settings of a unit that is a process. Source: CRI v1 LinuxContainerSecurityContext."""

    run_as_user: int | None = None
    run_as_username: str = ""
    run_as_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    supplemental_groups_strict: bool = False
    privileged: bool = False
    capabilities: Capabilities = Capabilities()
    readonly_rootfs: bool = False
    no_new_privs: bool = False
    masked_paths: tuple[str, ...] = ()
    readonly_paths: tuple[str, ...] = ()
    seccomp: SecurityProfile | None = None
    apparmor: SecurityProfile | None = None
    selinux: SELinuxOptions | None = None
    namespaces: Namespaces = Namespaces()


class Process(Spec, frozen=True, kw_only=True, tag="process"):
    """Settings of a unit that is a container, or a plain process of the node. A value of `UnitSpec.detail`.

    `command`, `args`, `working_dir`, `stop_signal`: empty: the image's; without images, the working directory
    is the root directory. `stop_signal`: a name such as SIGTERM.
    """

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    stop_signal: str = ""
    devices: tuple[Device, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    security: ProcessSecurity = ProcessSecurity()


class Nic(Spec, frozen=True, kw_only=True):
    """One network interface of a virtual machine, from the field ``nics`` of an Arktos pod.

    `name`: unique in the machine. `network`: name of the network to join (``subnetName``). `port_id`: id of a port
    that was created in advance. Empty: not set.
    """

    name: str
    network: str = ""
    port_id: str = ""
    ip_address: str = ""
    tag: str = ""
    ipv6: bool = False


class CloudInit(Spec, frozen=True, kw_only=True):
    """Data for cloud-init in a virtual machine (data source NoCloud). The repr hides everything.

    `user_data`: decoded from base64. None: the pod does not have that item.
    """

    user_data: bytes | None = None
    meta_data: dict[str, Any] | None = None
    script: str | None = None
    ssh_keys: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "CloudInit(...)"


class Machine(Spec, frozen=True, kw_only=True, tag="machine"):
    """Settings of a unit that is a virtual machine. A value of `UnitSpec.detail`.

    CPU and memory are in `UnitSpec.resources`. Disks are the mounts of kind BLOCK_DEVICE or DISK_IMAGE in
    `UnitSpec.mounts`. `boot_volume`: name of the mount to boot from; None: boot from a root disk that is based on
    the unit's image. `root_size_bytes`: size of that root disk; None: the image's size. `keep_disk`: keep the
    root disk for the next attempt of the unit. `max_vcpus`, `max_memory_bytes`: upper limits for a later
    resize. `vpc`: network for interfaces that name none. `power`: state after the start: running, paused,
    suspended or off.
    """

    hostname: str = ""
    boot_volume: str | None = None
    root_size_bytes: int | None = None
    max_vcpus: int | None = None
    max_memory_bytes: int | None = None
    cloud_init: CloudInit = CloudInit()
    nics: tuple[Nic, ...] = ()
    vpc: str = ""
    keep_disk: bool = True
    power: str = "running"
    firmware: str = "bios"
    settings: dict[str, str] = {}
    """The pod's ``kubeletx.io/vm-*`` annotations that the agent does not read itself; the runtime interprets them."""


class Custom(Spec, frozen=True, kw_only=True, tag="custom"):
    """Settings of a unit whose workload type a plugin declares. A value of `UnitSpec.detail`.

    `kind`: one of the runtime's `Traits.details`. `value`: JSON values whose meaning the plugin defines.
    """

    kind: str
    value: dict[str, Any] = {}


class UnitSpec(Spec, frozen=True, kw_only=True):
    """Specification of one unit in a sandbox: a container, a process, or the virtual machine of the pod.

    The sandbox, `name` and `attempt` identify the unit: a second `Runtime.create_unit` with the same values
    returns the first unit. `detail`: the settings that depend on the kind of the unit.
    """

    name: str
    attempt: int = 0
    image: ImageSpec
    detail: Process | Machine | Custom
    environment: tuple[EnvVar, ...] = ()
    resources: Resources = Resources()
    mounts: tuple[Mount, ...] = ()
    log_path: str = ""
    """Path of the log file, relative to `SandboxSpec.log_directory`; empty: the unit has no log file."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
