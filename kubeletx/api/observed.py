"""Reports of a runtime: summaries (from lists), statuses (of one object), stats, events, images.

`list_*` returns summaries sufficient to resume a pod after a restart; `*_status` returns everything. Times are
nanoseconds since the epoch (0: it has not happened), as in CRI; the host turns them into UTC.
"""

from __future__ import annotations

import enum

import msgspec

from .identity import PodUid, SandboxId, StoreId, UnitId


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all values that a runtime reports: frozen, keyword-only, serialisable."""


class SandboxState(enum.Enum):
    """State of a sandbox. Source: CRI v1 PodSandboxState."""

    READY = "ready"
    NOT_READY = "not-ready"


class UnitState(enum.Enum):
    """State of a unit (DECISIONS 15). The host treats PAUSED and SUSPENDED units as alive."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    """The process exists but is not scheduled: paused or frozen."""
    SUSPENDED = "suspended"
    """There is no process, but the unit can be resumed: hibernated or saved."""
    EXITED = "exited"
    UNKNOWN = "unknown"

    @property
    def is_alive(self) -> bool:
        """True for RUNNING, PAUSED and SUSPENDED."""
        return self in _ALIVE


_ALIVE = frozenset({UnitState.RUNNING, UnitState.PAUSED, UnitState.SUSPENDED})


class SandboxSummary(Seen, frozen=True, kw_only=True):
    """One sandbox as `Runtime.list_sandboxes` returns it."""

    id: SandboxId
    uid: PodUid
    name: str
    namespace: str
    attempt: int
    state: SandboxState
    created_at_ns: int
    handler: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class SandboxStatus(Seen, frozen=True, kw_only=True):
    """Full status of one sandbox. `ips`: primary address first; empty for host network or no network."""

    summary: SandboxSummary
    ips: tuple[str, ...] = ()
    host_network: bool = False
    info: dict[str, str] = {}


class UnitSummary(Seen, frozen=True, kw_only=True):
    """One unit as `Runtime.list_units` returns it."""

    id: UnitId
    sandbox_id: SandboxId
    uid: PodUid
    name: str
    attempt: int
    state: UnitState
    created_at_ns: int
    image: str = ""
    image_id: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class UnitStatus(Seen, frozen=True, kw_only=True):
    """Full status of one unit.

    `since_ns`: begin of the present state; 0 if the runtime does not report it. `exit_code`, `reason`
    (Completed, Error, OOMKilled, ...) and `message`: valid once the unit has exited; reason
    `names.START_CUT_OFF` means that the unit never ran. For a PAUSED machine, `reason` is empty or Paused if
    a call paused it, else the reason for which it paused itself; `message` then says what an operator has to
    do. `resources`: granted amounts, by the names of `Resources`, or `vcpus` and `memory_bytes` of a machine.
    `restarts`: number of restarts of the guest inside the same unit (a machine's reboots).
    """

    summary: UnitSummary
    started_at_ns: int = 0
    finished_at_ns: int = 0
    since_ns: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    log_path: str = ""
    image_ref: str = ""
    restarts: int = 0
    resources: dict[str, int] = {}
    info: dict[str, str] = {}


class RuntimeVersion(Seen, frozen=True, kw_only=True):
    """Name and version of a backend. `name`: the word before ``://`` in containerID, such as containerd or libvirt."""

    name: str
    version: str
    api_version: str = ""


class RuntimeCondition(Seen, frozen=True, kw_only=True):
    """One condition that a runtime reports about itself."""

    type: str
    ok: bool
    reason: str = ""
    message: str = ""


class RuntimeHealth(Seen, frozen=True, kw_only=True):
    """Result of one health check. `handlers`: runtime handlers that a pod may name."""

    runtime_ready: bool
    network_ready: bool
    conditions: tuple[RuntimeCondition, ...] = ()
    handlers: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """One line that names every false condition; empty if all are true."""
        return "; ".join(
            f"{c.type} is false: {c.reason}: {c.message}".rstrip(": ") for c in self.conditions if not c.ok
        )


class EventKind(enum.Enum):
    """Kind of an event. An event only makes the host read the runtime's state sooner."""

    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"
    OOM = "oom"
    CHANGED = "changed"
    RESYNC = "resync"
    """Events may have been lost: look at everything of this runtime."""


class RuntimeEvent(Seen, frozen=True, kw_only=True):
    """Hint that something changed in a runtime. None: the runtime does not report that field."""

    kind: EventKind
    uid: PodUid | None = None
    sandbox_id: SandboxId | None = None
    unit_id: UnitId | None = None
    at_ns: int = 0


class ImageStatus(Seen, frozen=True, kw_only=True):
    """One image in one store. `ref`: the store's own reference, for `ImageSpec.ref`.

    `user`: numeric user of the image's configuration; None if it has none.
    """

    id: str
    ref: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size_bytes: int = 0
    user: int | None = None
    username: str = ""
    pinned: bool = False


class ImageFilesystem(Seen, frozen=True, kw_only=True):
    """Usage of one file system that an image store writes to. `mountpoint`: path on this node."""

    mountpoint: str
    used_bytes: int
    inodes_used: int = 0
    at_ns: int = 0


class StoreInfo(Seen, frozen=True, kw_only=True):
    """Id of an image store, and the usage of its file systems."""

    id: StoreId
    filesystems: tuple[ImageFilesystem, ...] = ()


class PullProgress(Seen, frozen=True, kw_only=True):
    """Progress of one pull, for users. `total_bytes` None: not known yet."""

    done_bytes: int = 0
    total_bytes: int | None = None
    message: str = ""


class ImageAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for a registry. The repr hides them."""

    username: str = ""
    password: str = ""
    auth: str = ""
    server_address: str = ""
    identity_token: str = ""
    registry_token: str = ""

    def __repr__(self) -> str:
        return f"ImageAuth(server_address={self.server_address!r}, ...)"


class InterfaceStats(Seen, frozen=True, kw_only=True):
    """Counters of one network interface since it was made; rx is what the pod received."""

    name: str
    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


class UnitStats(Seen, frozen=True, kw_only=True):
    """Usage of one unit. None: the runtime does not measure that value; it never reports 0 instead."""

    id: UnitId
    uid: PodUid
    name: str
    at_ns: int
    cpu_usage_core_ns: int | None = None
    cpu_usage_nano_cores: int | None = None
    memory_working_set_bytes: int | None = None
    memory_usage_bytes: int | None = None
    memory_rss_bytes: int | None = None
    memory_available_bytes: int | None = None
    fs_used_bytes: int | None = None
    fs_inodes_used: int | None = None
    swap_usage_bytes: int | None = None
    interfaces: tuple[InterfaceStats, ...] = ()
    """Interfaces of the pod, primary first; empty: the host reads the interfaces of the unit's processes."""


class SnapshotStatus(Seen, frozen=True, kw_only=True):
    """One snapshot of a machine. `with_memory`: restoring it also restores the running guest.

    `parent`: name of the snapshot on which it is based; empty for the first. `size_bytes` None: not known.
    """

    name: str
    created_at_ns: int = 0
    with_memory: bool = False
    is_current: bool = False
    parent: str = ""
    size_bytes: int | None = None


class NicState(enum.Enum):
    """State of a network interface of a machine."""

    ATTACHED = "attached"
    ATTACHING = "attaching"
    """Requested; its port does not exist yet, or the guest has not accepted it."""
    DETACHING = "detaching"
    """The guest was asked to release it and has not yet."""


class NicStatus(Seen, frozen=True, kw_only=True):
    """One network interface of a machine, by the name that the pod gave it."""

    name: str
    state: NicState = NicState.ATTACHED
    mac: str = ""
    network: str = ""
    port_id: str = ""
    ips: tuple[str, ...] = ()
    message: str = ""


class ExecResult(Seen, frozen=True, kw_only=True):
    """Output and exit code of a command that ran to its end."""

    stdout: bytes
    stderr: bytes
    exit_code: int


class LogMode(enum.Enum):
    """Defines who writes a unit's log file, and in which format (DECISIONS 18)."""

    FILE = "file"
    """The runtime writes CRI format to the given path and reopens it on request."""
    RAW_FILE = "raw-file"
    """The runtime writes raw bytes to the given path; the host adds format, times and rotation."""
    STREAM = "stream"
    """The runtime returns a stream; the host writes the file."""


class Traits(Seen, frozen=True, kw_only=True):
    """Properties that a runtime declares about itself, once for each connection.

    The contract suite checks them.
    """

    details: tuple[str, ...] = ("process",)
    """Kinds of `UnitSpec.detail` it accepts: process, machine, or the kind of a Custom."""
    log_mode: LogMode = LogMode.FILE
    units_survive_agent: bool = True
    remote: bool = False
    """The runtime is on another machine: outside node capacity, no hostPath, hostNetwork or node-local volumes."""
    image_before_sandbox: bool = False
    """The sandbox is the machine itself, so images must be present before it."""
    images: bool = True
    """False: units have no image that could be pulled (a local process, say)."""
    brings_pod_network: bool = True
    """True: the runtime calls CNI itself. False: it uses `Host.pod_network`, or has no pod network."""
    refuses: tuple[str, ...] = ()
    """Pod features it cannot do, by the names in `FEATURES`; a pod that needs one is rejected."""
    handler_refuses: dict[str, tuple[str, ...]] = {}
    """Handler → features it refuses; a handler not listed refuses what the runtime does."""
    cgroup_driver: str = ""
    """``systemd`` or ``cgroupfs``: how it uses `SandboxSpec.cgroup_parent`.

    Empty: it does not report it, or has no cgroups on this machine.
    """
    cpu_overhead_millicores: int = 0
    memory_overhead_bytes: int = 0


FEATURES: frozenset[str] = frozenset(
    {
        "host-network",
        "host-pid",
        "host-ipc",
        "host-ports",
        "dns-options",
        "pod-network",
        "user-namespace",
        "privileged",
        "capabilities",
        "run-as-user",
        "strict-groups",
        "read-only-root",
        "seccomp",
        "apparmor",
        "selinux",
        "sysctls",
        "devices",
        "block-volumes",
        "mounts",
        "mount-propagation",
        "image-volumes",
        "tty",
        "stdin",
        "stop-signal",
        "resources",
        "several-units",
        "nics",
        "key-pairs",
        "image-certificates",
        "recursive-read-only",
    }
)
"""Every word allowed in `Traits.refuses`."""


def every_feature_but(*can: str) -> tuple[str, ...]:
    """Return all words of `FEATURES` except those named, sorted, as the value of `Traits.refuses`.

    Raises ValueError for an unknown word.
    """
    if unknown := set(can) - FEATURES:
        raise ValueError(f"unknown feature {min(unknown)!r}: use one of {', '.join(sorted(FEATURES))}")
    return tuple(sorted(FEATURES.difference(can)))
