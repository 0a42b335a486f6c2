"""Specifications that the host gives to a runtime: `SandboxSpec` and `UnitSpec`.

A Pod never crosses this interface. Both specs can be built from a Pod and from a CRI request alone; both are plain
serialisable values (frozen msgspec Structs), so a runtime may live in another process. None means "not set, the
runtime's default"; an empty tuple means "none".
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from .identity import PodUid, UnitId


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all values that the host gives to a runtime: frozen, keyword-only, serialisable with msgspec."""


class NamespaceMode(enum.Enum):
    """Owner of the Linux namespace that a unit joins. Source: CRI v1 NamespaceMode."""

    POD = "pod"
    CONTAINER = "container"
    NODE = "node"
    TARGET = "target"


class MountPropagation(enum.Enum):
    """Direction in which later mounts below a mount become visible. Source: CRI v1 MountPropagation."""

    PRIVATE = "private"
    HOST_TO_CONTAINER = "host-to-container"
    BIDIRECTIONAL = "bidirectional"


class SourceKind(enum.Enum):
    """Kind of a mount's source on the node. The host prepares the source; the runtime mounts it in the unit."""

    DIRECTORY = "directory"
    """A directory or a regular file."""
    BLOCK_DEVICE = "block-device"
    DISK_IMAGE = "disk-image"


class ProfileType(enum.Enum):
    """Type of a seccomp or AppArmor profile. Source: CRI v1 SecurityProfile.ProfileType."""

    RUNTIME_DEFAULT = "runtime-default"
    UNCONFINED = "unconfined"
    LOCALHOST = "localhost"


class SecurityProfile(Spec, frozen=True, kw_only=True):
    """seccomp or AppArmor profile of a unit or sandbox.

    `localhost_ref`: path of the seccomp file or name of the AppArmor profile, for LOCALHOST only.
    """

    type: ProfileType
    localhost_ref: str = ""


class SELinuxOptions(Spec, frozen=True, kw_only=True):
    """Parts of an SELinux label. An empty part is chosen by the runtime."""

    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class PortMapping(Spec, frozen=True, kw_only=True):
    """Container port, published on the node if `host_port` is not 0. `protocol`: TCP, UDP or SCTP."""

    container_port: int
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = ""


class Dns(Spec, frozen=True, kw_only=True):
    """Content of the pod's resolv.conf: nameserver, search and options lines, in order."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class HostEntry(Spec, frozen=True, kw_only=True):
    """One extra line of the pod's hosts file (Kubernetes hostAliases)."""

    ip: str
    names: tuple[str, ...]


class IdMapping(Spec, frozen=True, kw_only=True):
    """One range of ids in a user namespace: `length` ids from `container_id` on are those from `host_id` on."""

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
    """Limits and shares of a unit, or of a whole sandbox. None: unlimited, or the runtime's default.

    Source of the conversions: kubelet, pkg/kubelet/cm/helpers_linux.go and qos/policy.go.
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
    """Page size ("2MB", "1GB") to bytes."""
    pids_limit: int | None = None
    unified: dict[str, str] = {}
    """Raw cgroup v2 settings."""


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
    """Specification of a sandbox: the pod's identity and all settings that its units share.

    (`uid`, `attempt`) is the key: creating the same key again returns the first sandbox.
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
    """Sum over the pod's units, for runtimes whose sandbox is sized at creation (VM-backed ones)."""


class EnvVar(Spec, frozen=True, kw_only=True):
    """One environment variable, with references expanded. The repr hides the value."""

    name: str
    value: str = ""

    def __repr__(self) -> str:
        return f"EnvVar(name={self.name!r}, ...)"


class Mount(Spec, frozen=True, kw_only=True):
    """A directory, file, device or image that the runtime mounts into the unit."""

    source: str
    """Absolute path on the node (directory, file, device or disk image)."""
    target: str
    """Absolute path in the guest; for a block device or disk image, the device path or serial."""
    kind: SourceKind = SourceKind.DIRECTORY
    name: str = ""
    """Name of the pod's volume; empty if it is none."""
    read_only: bool = False
    recursive_read_only: bool = False
    propagation: MountPropagation = MountPropagation.PRIVATE
    selinux_relabel: bool = False
    user_mappings: tuple[IdMapping, ...] = ()
    group_mappings: tuple[IdMapping, ...] = ()
    format: str = ""
    """Format of a disk image, fixed at its creation: raw or qcow2."""
    image: str = ""
    """Image volumes: the image reference; `source` is then empty."""
    image_sub_path: str = ""


class ImageSpec(Spec, frozen=True, kw_only=True):
    """Image of a unit, by its name in the manifest and by its store's reference."""

    requested: str
    """The reference in the manifest, unchanged."""
    ref: str = ""
    """The store's own reference (image id or digest), from `ImageStatus.ref`; empty before the pull."""
    handler: str = ""
    annotations: dict[str, str] = {}


class Device(Spec, frozen=True, kw_only=True):
    """Device node of the host in a container. `permissions`: any of r, w, m."""

    container_path: str
    host_path: str
    permissions: str = "rwm"


class Capabilities(Spec, frozen=True, kw_only=True):
    """Linux capabilities without the CAP_ prefix; ALL is allowed."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class ProcessSecurity(Spec, frozen=True, kw_only=True):
    """Security settings of one process unit. Source: CRI v1 LinuxContainerSecurityContext."""

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
    """Detail of a unit that is a process: a container, or a plain process of the node.

    Empty `command`, `args` or `stop_signal`: the image's own. `stop_signal`: a name such as SIGTERM.
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
    """An extra network interface of a machine (Arktos ``nics``)."""

    name: str
    network: str = ""
    port_id: str = ""
    ip_address: str = ""
    tag: str = ""
    ipv6: bool = False


class CloudInit(Spec, frozen=True, kw_only=True):
    """cloud-init data for a machine (NoCloud), decoded. None: the pod gives none. The repr hides all."""

    user_data: bytes | None = None
    meta_data: dict[str, Any] | None = None
    script: str | None = None
    ssh_keys: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "CloudInit(...)"


class Machine(Spec, frozen=True, kw_only=True, tag="machine"):
    """Detail of a unit that is a whole virtual machine. Its sizes are in `UnitSpec.resources`.

    Its disks are the unit's mounts of kind BLOCK_DEVICE or DISK_IMAGE. `boot_volume`: name of the one to boot
    from; None: a temporary overlay of the image. `power`: state after the start: running, paused, suspended
    or off.
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
    """The pod's ``kubeletx.io/vm-*`` annotations that the plugin declared."""


class Custom(Spec, frozen=True, kw_only=True, tag="custom"):
    """Detail of a unit of a workload type that a plugin declares. `kind`: as in `Traits.details`.

    `value`: JSON values that the plugin defines.
    """

    kind: str
    value: dict[str, Any] = {}


class UnitSpec(Spec, frozen=True, kw_only=True):
    """Specification of one unit in a sandbox: a container, or the virtual machine of the pod.

    (sandbox, `name`, `attempt`) is the key: creating the same key again returns the first unit.
    """

    name: str
    attempt: int = 0
    image: ImageSpec
    detail: Process | Machine | Custom
    environment: tuple[EnvVar, ...] = ()
    resources: Resources = Resources()
    mounts: tuple[Mount, ...] = ()
    log_path: str = ""
    """Path of the log, relative to the sandbox's log directory."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
