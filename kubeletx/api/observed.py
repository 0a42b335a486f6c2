"""Values that a runtime reports: summaries (from lists), statuses (of one object), stats, events, images.

The `list_*` methods of a runtime return summaries, which are sufficient to resume a pod after a restart of the agent;
`*_status` returns all details. Times are nanoseconds since the epoch, as in CRI; 0: it has not happened.
"""

from __future__ import annotations

import enum

import msgspec

from .identity import PodUid, SandboxId, StoreId, UnitId


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of all values that a runtime reports: frozen, keyword-only, serialisable with msgspec."""


class SandboxState(enum.Enum):
    """State of a sandbox. Source: CRI v1 PodSandboxState."""

    READY = "ready"
    NOT_READY = "not-ready"


class UnitState(enum.Enum):
    """State of a unit, which is a container, a process or a virtual machine (DECISIONS 15).

    The agent treats PAUSED and SUSPENDED units as alive.
    """

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
    """One sandbox as `Runtime.list_sandboxes` returns it. `uid`, `name`, `namespace`: of its pod.

    `attempt`: number of the sandbox among the pod's sandboxes, from 0. `handler`: CRI runtime handler.
    """

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
    """Full status of one sandbox. `ips`: primary address first; empty for host network or no network.

    `info`: extra facts of the runtime for users, by name.
    """

    summary: SandboxSummary
    ips: tuple[str, ...] = ()
    host_network: bool = False
    info: dict[str, str] = {}


class UnitSummary(Seen, frozen=True, kw_only=True):
    """One unit (container, process or virtual machine) as `Runtime.list_units` returns it.

    `uid`: UID of its pod. `name`: name of the container or machine in the pod's spec.

    `attempt`: number of the unit among units of this name, from 0. `image`: reference in the manifest.
    `image_id`: the image store's reference.
    """

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
    """Full status of one unit (container, process or virtual machine).

    `since_ns`: start of the present state; 0 if the runtime does not report it. `exit_code`, `reason`
    (Completed, Error, OOMKilled, ...) and `message`: valid once the unit has exited. Reason
    `names.START_CUT_OFF`: the unit never ran.

    `reason` of a PAUSED machine: empty or Paused if it was paused on request. Other words mean that the guest
    or its emulator paused itself; `message` then says what an operator has to do.

    `resources`: limits that the runtime has granted, by the field names of `Resources`; for a machine `vcpus`
    and `memory_bytes`. `restarts`: number of reboots of the machine inside the same unit. `info`: extra facts
    of the runtime for users, by name.
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
    """Name and version of a runtime's backend.

    `name`: such as containerd or libvirt; the part of a containerID before ``://``. `api_version`: version of
    its API; empty if it has none.
    """

    name: str
    version: str
    api_version: str = ""


class RuntimeCondition(Seen, frozen=True, kw_only=True):
    """One condition that a runtime reports about itself, such as RuntimeReady. `ok` False: the condition is not met."""

    type: str
    ok: bool
    reason: str = ""
    message: str = ""


class RuntimeHealth(Seen, frozen=True, kw_only=True):
    """Result of `Runtime.health`. `handlers`: runtime handlers that a RuntimeClass may name; empty: not known."""

    runtime_ready: bool
    network_ready: bool
    conditions: tuple[RuntimeCondition, ...] = ()
    handlers: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """One line for users with the name, reason and message of every false condition; empty if all are true."""
        return "; ".join(
            f"{c.type} is false: {c.reason}: {c.message}".rstrip(": ") for c in self.conditions if not c.ok
        )


class EventKind(enum.Enum):
    """Kind of a `RuntimeEvent`. After each event the agent reads the state from the runtime."""

    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"
    OOM = "oom"
    CHANGED = "changed"
    RESYNC = "resync"
    """Events may have been lost: the agent lists everything of this runtime again."""


class RuntimeEvent(Seen, frozen=True, kw_only=True):
    """Event of a runtime: something changed, and the agent should read the state of the named objects again.

    `uid`: UID of the pod. None: the runtime does not report that field.
    """

    kind: EventKind
    uid: PodUid | None = None
    sandbox_id: SandboxId | None = None
    unit_id: UnitId | None = None
    at_ns: int = 0


class ImageStatus(Seen, frozen=True, kw_only=True):
    """One image in an image store.

    `ref`: reference by which the store finds the image again, for `ImageSpec.ref`. `tags`, `digests`: full
    image references. `user`: numeric user id in the image's configuration; None if there is none. `username`:
    user name there; empty if there is none. `pinned`: the image must not be removed by garbage collection.
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
    """Usage of one file system by an image store. `mountpoint`: path on this node. `at_ns`: time of the measurement."""

    mountpoint: str
    used_bytes: int
    inodes_used: int = 0
    at_ns: int = 0


class StoreInfo(Seen, frozen=True, kw_only=True):
    """Id of an image store, and the usage of its file systems."""

    id: StoreId
    filesystems: tuple[ImageFilesystem, ...] = ()


class PullProgress(Seen, frozen=True, kw_only=True):
    """Progress of one image pull, for users. `total_bytes` None: the size is not known yet."""

    done_bytes: int = 0
    total_bytes: int | None = None
    message: str = ""


class ImageAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for an image registry, with the fields of CRI v1 AuthConfig. The repr hides them."""

    username: str = ""
    password: str = ""
    auth: str = ""
    server_address: str = ""
    identity_token: str = ""
    registry_token: str = ""

    def __repr__(self) -> str:
        return f"ImageAuth(server_address={self.server_address!r}, ...)"


class InterfaceStats(Seen, frozen=True, kw_only=True):
    """Counters of one network interface of a pod since the interface was created. rx: received by the pod."""

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
    """Resource usage of one unit (container, process or virtual machine) at the time `at_ns`.

    None (not 0): the runtime does not measure that value.
    """

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
    """Interfaces of the pod, primary first; empty: the agent reads them from the network namespace of the processes."""


class SnapshotStatus(Seen, frozen=True, kw_only=True):
    """One snapshot of a virtual machine.

    `with_memory`: the snapshot has the memory, so that a restored guest continues where it was. `is_current`:
    the machine's state is based on this snapshot. `parent`: name of the snapshot on which this one is based;
    empty for the first. `size_bytes` None: not known.
    """

    name: str
    created_at_ns: int = 0
    with_memory: bool = False
    is_current: bool = False
    parent: str = ""
    size_bytes: int | None = None


class NicState(enum.Enum):
    """State of a network interface of a virtual machine."""

    ATTACHED = "attached"
    ATTACHING = "attaching"
    """Requested, but its port does not exist yet, or the guest has not accepted it yet."""
    DETACHING = "detaching"
    """The guest was asked to release the interface, and has not done so yet."""


class NicStatus(Seen, frozen=True, kw_only=True):
    """One network interface of a virtual machine. `name`: its name in the pod's spec. `message`: text for users."""

    name: str
    state: NicState = NicState.ATTACHED
    mac: str = ""
    network: str = ""
    port_id: str = ""
    ips: tuple[str, ...] = ()
    message: str = ""


class ExecResult(Seen, frozen=True, kw_only=True):
    """Output and exit code of a command that has exited."""

    stdout: bytes
    stderr: bytes
    exit_code: int


class LogMode(enum.Enum):
    """Selects who writes a unit's log file, the runtime or the agent, and in which format (DECISIONS 18)."""

    FILE = "file"
    """The runtime writes the log in CRI format to the unit's log path, and reopens it with `SupportsLogReopen`."""
    RAW_FILE = "raw-file"
    """The runtime writes the raw output to the unit's log path. The agent converts it to CRI format and rotates it."""
    STREAM = "stream"
    """The runtime returns the output as a stream (`SupportsLogStream`); the agent writes the file."""


class Traits(Seen, frozen=True, kw_only=True):
    """Properties of a runtime that tell the agent how to use it. Read after each `Runtime.open`.

    The contract suite in `kubeletx.testing` checks them.
    """

    details: tuple[str, ...] = ("process",)
    """Kinds of `UnitSpec.detail` that the runtime accepts: process, machine, or the `kind` of a `Custom`."""
    log_mode: LogMode = LogMode.FILE
    units_survive_agent: bool = True
    """True: units continue to run when the agent stops."""
    remote: bool = False
    """True: the runtime is on another machine. Its pods do not use the node's capacity.

    They cannot use the node's network, or volumes, which are prepared on this node.
    """
    image_before_sandbox: bool = False
    """True: the sandbox is the virtual machine itself, so images must be pulled before the sandbox is created."""
    images: bool = True
    """False: units have no image to pull; for example they are local processes."""
    brings_pod_network: bool = True
    """True: the runtime calls CNI itself. False: it uses `Host.pod_network`, or has no pod network."""
    refuses: tuple[str, ...] = ()
    """Names in `FEATURES` that the runtime does not support; a pod that needs one of them is rejected."""
    handler_refuses: dict[str, tuple[str, ...]] = {}
    """Runtime handler to the features that it does not support. For a handler that is not a key, `refuses` applies."""
    cgroup_driver: str = ""
    """How the runtime interprets `SandboxSpec.cgroup_parent`: ``systemd`` or ``cgroupfs``.

    Empty: the runtime does not report its driver, or has no cgroups on this machine.
    """
    cpu_overhead_millicores: int = 0
    memory_overhead_bytes: int = 0
    standby_strategies: tuple[str, ...] = ()
    """Values of annotation ``kubeletx.io/standby-strategy`` that the runtime accepts; other pods are rejected.

    Empty: a pod with the annotation is rejected.
    """


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
"""Pod features that a runtime may refuse: the words allowed in `Traits.refuses`."""


def every_feature_but(*can: str) -> tuple[str, ...]:
    """Return a value for `Traits.refuses`: all words of `FEATURES` except the supported ones in `can`, sorted.

    Raises ValueError if `can` has an unknown word.
    """
    if unknown := set(can) - FEATURES:
        raise ValueError(f"unknown feature {min(unknown)!r}: use one of {', '.join(sorted(FEATURES))}")
    return tuple(sorted(FEATURES.difference(can)))
