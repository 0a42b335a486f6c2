"""Views: types of the requests and answers on the admin socket that are not Kubernetes objects.

Pods, nodes and events are the Kubernetes types of `kubeletx.kube`. All views are plain, frozen and serialisable; JSON
names are camelCase. A list or total that may be incomplete has the field `missing`: the names of the runtimes that did
not answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kubeletx.api import Png, Table, Text
from kubeletx.kube.start_timeline import PodAction, PodStart
from kubeletx.kube.types.api_status import Status
from kubeletx.kube.types.core import Pod


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of all views: a frozen struct whose field names are camelCase in JSON."""


# --- pods ---


class PodTarget(View, frozen=True, kw_only=True):
    """Pod that a request names. `uid`: only the pod with this UID; empty: a pod of this name with any UID."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def ref(self) -> str:
        """The pod as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class PodChange(View, frozen=True, kw_only=True):
    """One event of a watch of pods.

    `type`: ADDED, MODIFIED or DELETED. `object`: the pod now; for DELETED, its last state.
    """

    type: str
    object: Pod


class PodHistory(View, frozen=True, kw_only=True):
    """The last actions of the agent on a pod, oldest first. `start` None: the pod existed before this agent process."""

    items: tuple[PodAction, ...] = ()
    start: PodStart | None = None


class ApplyResult(View, frozen=True, kw_only=True):
    """Result of applying one pod, config map, secret or claim of a manifest.

    `action`: created, configured, unchanged, replaced, or failed. Only failed has an `error`: the server makes this
    result from the error that the backend raises. `warnings`: sentences about fields that have no effect. `object`: the
    JSON form of anything but a pod, without values of secrets; empty for a pod.
    """

    action: str
    pod: Pod = Pod()
    object: dict[str, Any] = {}
    error: Status | None = None
    warnings: tuple[str, ...] = ()


class ApplyReport(View, frozen=True, kw_only=True):
    """Results of applying a manifest: one for each of its pods, in order."""

    items: tuple[ApplyResult, ...] = ()


class DeleteOptions(View, frozen=True, kw_only=True):
    """Options of a deletion. `grace_seconds` None: the pod's own grace period.

    `force` with `grace_seconds` 0: do not wait for a runtime that does not answer (DECISIONS 11).
    """

    grace_seconds: int | None = None
    force: bool = False


class LogOptions(View, frozen=True, kw_only=True):
    """Selection of a container's log lines.

    `container` empty: the pod's only container. `previous`: lines of the container's run before the present one.
    `tail_lines` None: all lines. `since_seconds` and `since_at` None: from the start. `limit_bytes` None: no limit.
    """

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: float | None = None
    since_at: datetime | None = None
    limit_bytes: int | None = None


class StandbyView(View, frozen=True, kw_only=True):
    """Standby of one pod.

    `power`: the requested state: running, standby or hibernated. `containers`: the present state of each container that
    has not ended, such as running, paused (frozen) or suspended (hibernated). `since`: time since which the pod is
    frozen, or runs again; None if it was never frozen. `took_seconds`: duration of the last freeze, hibernation or thaw
    of the whole pod; None if there was none since the agent started. `memory_before_bytes` and `memory_after_bytes`:
    memory of a hibernated pod before and after the hibernation; None if it was not measured.
    """

    namespace: str
    name: str
    runtime: str
    power: str
    containers: dict[str, str] = {}
    since: datetime | None = None
    took_seconds: float | None = None
    memory_before_bytes: int | None = None
    memory_after_bytes: int | None = None


class VolumeView(View, frozen=True, kw_only=True):
    """One volume of one pod on this node.

    `kind`: the kubelet's name of its plugin, such as ``kubernetes.io/empty-dir``, or the name of a FlexVolume driver.
    `driver`: name of the volume driver; empty for a volume that the agent prepares itself. `state`: preparing, ready or
    releasing. `message`: error of the last call of the driver. `since`: time of the last change of the state; None if
    unknown. Sizes in bytes; None: not measured.
    """

    namespace: str
    pod: str
    name: str
    kind: str
    state: str
    pod_uid: str = ""
    driver: str = ""
    persistent_volume: str = ""
    claim: str = ""
    path: str = ""
    device: str = ""
    fs_type: str = ""
    read_only: bool = False
    access_modes: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    message: str = ""
    since: datetime | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None


# --- virtual machines ---


class MachineOperation(View, frozen=True, kw_only=True):
    """Record of a reboot or a snapshot operation that was started on a machine.

    `outcome`: begun, done, failed, cancelled, or unknown: the call timed out, or the connection was lost.
    `ended_at` None: it has not ended.
    """

    verb: str
    detail: str = ""
    begun_at: datetime
    ended_at: datetime | None = None
    outcome: str
    message: str = ""


class MachineView(View, frozen=True, kw_only=True):
    """State of a pod's virtual machine, and what was requested for it.

    `power`: the requested power state (running, paused, suspended or off). `power_state`: the present one.
    `overrides`: the pod's powerSpec, if a request such as ``kubeletx vm stop`` overrides it; else empty.
    `problem`: reason of a pause that was not requested. `limits`: the requested limits. `granted`: the limits that
    the machine has. `operations`: the last reboots and snapshot operations, oldest first.
    """

    namespace: str
    name: str
    machine: str
    runtime: str
    power: str
    overrides: str = ""
    power_state: str = ""
    problem: str = ""
    limits: dict[str, str] = {}
    granted: dict[str, str] = {}
    operations: tuple[MachineOperation, ...] = ()


class MachineReboot(View, frozen=True, kw_only=True):
    """Request to reboot a machine."""

    delay_seconds: float = 0.0


class MachineSize(View, frozen=True, kw_only=True):
    """Request to change a machine's limits, as Kubernetes quantities; a limit of None stays unchanged."""

    cpu: str | None = None
    memory: str | None = None


class SnapshotRequest(View, frozen=True, kw_only=True):
    """Request to create a snapshot. `memory`: include the guest's memory."""

    name: str
    memory: bool = False


class SnapshotView(View, frozen=True, kw_only=True):
    """One snapshot of a machine. `current`: the machine's present state is based on this snapshot."""

    name: str
    created_at: datetime | None = None
    with_memory: bool = False
    current: bool = False
    parent: str = ""
    size_bytes: int | None = None


class NicView(View, frozen=True, kw_only=True):
    """One network interface of a machine.

    `state`: attached, attaching, detaching, or wanted (it does not exist yet).
    """

    name: str
    state: str
    mac: str = ""
    network: str = ""
    port_id: str = ""
    ips: tuple[str, ...] = ()
    message: str = ""


class NicRequest(View, frozen=True, kw_only=True):
    """Request to attach a network interface, with the fields of an item of the pod's ``spec.nics``."""

    name: str
    subnet_name: str | None = None
    port_id: str | None = None
    ip_address: str | None = None
    tag: str | None = None
    ipv6_enabled: bool | None = None


# --- runtimes ---


class ConditionView(View, frozen=True, kw_only=True):
    """One condition that a runtime reports about itself."""

    type: str
    ok: bool
    reason: str = ""
    message: str = ""


class ImageServiceView(View, frozen=True, kw_only=True):
    """Image service of one runtime.

    `url`: of the image service; the runtime's own URL if it has no separate one. `store`: id of the image store; empty
    until the service has answered once. `is_default`: images for this workload type are pulled here unless a runtime
    is named. `capacity_bytes`, `available_bytes`: of the file system that holds the store, measured every 10 s; None
    until the store has answered, and for the disk of another machine.
    """

    name: str
    workload_type: str
    url: str
    store: str = ""
    is_default: bool = False
    capacity_bytes: int | None = None
    available_bytes: int | None = None


class RuntimeView(View, frozen=True, kw_only=True):
    """One runtime, as a row of the table of runtimes.

    `status`: Ready, NotReady or Unknown (never connected). `since`: when that status began. `kind`: the kind of runtime
    that a plugin registered, such as containerd. `version`: such as ``containerd 1.6.20``; empty until the runtime has
    answered once. `pods`: number of pods assigned to it. `default`: it is the first uncordoned runtime of its workload
    type. `image_url` None: there is no separate image service. `origin`: flag, file or drop-in file that configures it.
    `image_service` None: the runtime stores no images. `abandoned_calls`: number of calls that did not end at their
    deadlines and still run, by method. `calls`, `failed_calls`, `call_seconds`: number of all calls since the agent
    started, of those that failed, and the sum of their durations.
    """

    name: str
    workload_type: str
    kind: str
    url: str
    status: str
    since: datetime
    version: str = ""
    pods: int = 0
    default: bool = False
    cordoned: bool = False
    image_url: str | None = None
    reason: str = ""
    message: str = ""
    origin: str = ""
    image_service: ImageServiceView | None = None
    abandoned_calls: dict[str, int] = {}
    calls: int = 0
    failed_calls: int = 0
    call_seconds: float = 0.0


class FilesystemView(View, frozen=True, kw_only=True):
    """One filesystem of an image store."""

    mountpoint: str
    used_bytes: int


class RuntimeDetail(View, frozen=True, kw_only=True):
    """All details of one runtime, for ``kubeletx runtime describe``.

    `capabilities`: for the name of each optional protocol (Events, Exec, ...), True if the runtime implements it.
    `traits`: the runtime's `kubeletx.api.Traits` as plain data. `pods`: namespace/name of the pods assigned to it.
    `isolation`: process if the plugin runs in a process of its own; none if it runs in the agent's. `process` None: it
    runs in the agent's process, or its own process does not run now.
    """

    runtime: RuntimeView
    capabilities: dict[str, bool] = {}
    traits: dict[str, Any] = {}
    conditions: tuple[ConditionView, ...] = ()
    handlers: tuple[str, ...] = ()
    api_version: str = ""
    store_id: str = ""
    filesystems: tuple[FilesystemView, ...] = ()
    pods: tuple[str, ...] = ()
    isolation: str = "none"
    process: PluginProcessView | None = None
    agent_calls: dict[str, int] = {}
    """Number of calls since the agent started, by name of the operation."""


class RuntimeAddition(View, frozen=True, kw_only=True):
    """Request to add a runtime: its endpoint and, if separate, the URL of its image service."""

    endpoint: str
    image_endpoint: str | None = None


class Progress(View, frozen=True, kw_only=True):
    """One line of progress of a long operation, such as a drain. `done`: the operation has succeeded; the last line."""

    message: str
    done: bool = False


# --- images ---


class ImageView(View, frozen=True, kw_only=True):
    """One image in one store.

    `store`: id of the store. `runtimes`: names of the runtimes that use this store. `default_for`: workload types
    whose default runtime uses this store. `used_by`: namespace/name of the pods that use the image. `pulled_by_us`:
    this agent pulled the image; garbage collection removes no others.
    """

    store: str
    runtimes: tuple[str, ...]
    id: str
    ref: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    size_bytes: int = 0
    pinned: bool = False
    default_for: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()
    pulled_by_us: bool = False


class ImageListing(View, frozen=True, kw_only=True):
    """Images of all stores. `missing`: runtimes whose store did not answer."""

    items: tuple[ImageView, ...] = ()
    missing: tuple[str, ...] = ()


class PullUpdate(View, frozen=True, kw_only=True):
    """Progress of one image pull. `total_bytes` None: unknown.

    `ref`: reference of the image in the store; empty except in the last update.
    """

    runtime: str
    done_bytes: int = 0
    total_bytes: int | None = None
    message: str = ""
    ref: str = ""


class PruneResult(View, frozen=True, kw_only=True):
    """Images that a prune removed. `missing`: runtimes whose store could not be pruned."""

    removed: tuple[ImageView, ...] = ()
    freed_bytes: int = 0
    missing: tuple[str, ...] = ()


# --- usage ---


class MeasuredUsage(View, frozen=True, kw_only=True):
    """Measured usage; None means not measured, never 0. `memory_bytes` is the working set."""

    cpu_millicores: int | None = None
    memory_bytes: int | None = None
    fs_bytes: int | None = None


class ContainerUsage(View, frozen=True, kw_only=True):
    """Usage of one container, or of the virtual machine, of a pod."""

    name: str
    usage: MeasuredUsage


class PodUsage(View, frozen=True, kw_only=True):
    """Usage of one pod. `usage`: the sum over its containers. A limit is None if a container has none."""

    namespace: str
    name: str
    runtime: str
    usage: MeasuredUsage
    cpu_limit_millicores: int | None = None
    memory_limit_bytes: int | None = None
    uid: str = ""
    labels: dict[str, str] = {}
    containers: tuple[ContainerUsage, ...] = ()


class RuntimeUsageView(View, frozen=True, kw_only=True):
    """Usage of all pods of this agent on one runtime."""

    name: str
    workload_type: str
    pods: int
    usage: MeasuredUsage


class UsageView(View, frozen=True, kw_only=True):
    """Usage of the node, of each runtime and of each pod.

    `node`: usage of the whole machine, also by processes outside of pods. `missing`: runtimes that did not answer.
    """

    node_name: str
    node: MeasuredUsage
    node_cpu_capacity_millicores: int | None = None
    node_memory_capacity_bytes: int | None = None
    runtimes: tuple[RuntimeUsageView, ...] = ()
    pods: tuple[PodUsage, ...] = ()
    missing: tuple[str, ...] = ()


class UsageSeries(View, frozen=True, kw_only=True):
    """Usage of one pod, or of the whole machine, at the times of a `UsageHistory`; None: not measured.

    `uid` empty: the machine. `cpu`: in millicores. `memory`: working set, in bytes.
    """

    uid: str = ""
    cpu: tuple[int | None, ...] = ()
    memory: tuple[int | None, ...] = ()


class UsageHistory(View, frozen=True, kw_only=True):
    """Usage of the last minutes. `next`: number of the next sample, to ask only for later ones. `times`: in UTC."""

    next: int
    interval_seconds: float
    times: tuple[datetime, ...] = ()
    series: tuple[UsageSeries, ...] = ()


# --- access to the kubelet's API ---

CertificateName = tuple[tuple[tuple[str, str], ...], ...]
"""Subject of a certificate, as `ssl.SSLObject.getpeercert` returns it."""


class AccessFiles(View, frozen=True, kw_only=True):
    """TLS settings of the kubelet's API now. `client_ca_file` None: clients have no certificates. `ciphers`: of OpenSSL; empty: its default."""

    certificate_file: str
    key_file: str
    client_ca_file: str | None
    min_version: str
    ciphers: str


class AccessRequest(View, frozen=True, kw_only=True):
    """Credentials of a request. `authorization`: its header; None: it has none.

    `subject`: of the client certificate that TLS has verified against the client CA; empty: there is none.
    """

    authorization: str | None = None
    subject: CertificateName = ()


class AccessDecision(View, frozen=True, kw_only=True):
    """Answer to an `AccessRequest`. `status`: HTTP status of a refusal, 200 if it is allowed. `user`: empty if unknown."""

    allowed: bool
    user: str = ""
    status: int = 200
    message: str = ""


# --- the agent itself ---


class RegistrationView(View, frozen=True, kw_only=True):
    """One object that a plugin registered, other than a runtime. `hook`: kind of the object, such as health-check.

    `state`: ready; degraded: its last call failed; failed: the plugin could not make it. `reason`: why it is not
    ready. `abandoned_calls`: number of calls that were cancelled and still run, by method.
    """

    name: str
    hook: str
    state: str
    reason: str = ""
    abandoned_calls: dict[str, int] = {}


class PluginProcessView(View, frozen=True, kw_only=True):
    """The process of its own in which a plugin's code for one runtime runs, or everything else that it registers.

    `runtime`: name of the runtime; empty: the process has the other registrations of the plugin's distribution.
    `memory_bytes`: resident memory. `cpu_seconds`: user and system time since the start of the process. `restarts`:
    number of processes that were started after the first one.
    """

    runtime: str
    pid: int
    memory_bytes: int
    cpu_seconds: float
    restarts: int


class PluginView(View, frozen=True, kw_only=True):
    """One plugin. `kinds`: kinds of runtime that it registers. `distribution`: of a program of the kind ``exec``, its path.

    `isolation`: process if what it registers runs in processes of their own (a runtime unless its endpoint has
    ``isolation=none``), none if it runs in the agent's process, both if they differ; empty if it registers nothing.
    `processes`: its processes that run now.
    `state`: ready, skipped, failed, disabled, or degraded: some of its `registrations` are not ready. `reason`: why it
    is not ready.
    """

    name: str
    distribution: str = ""
    version: str
    state: str
    made_for: str = ""
    """Versions of kubeletx that the plugin requires, such as ``>=0.1,<0.2``; empty: it requires none."""
    kinds: tuple[str, ...] = ()
    workload_types: tuple[str, ...] = ()
    registrations: tuple[RegistrationView, ...] = ()
    reason: str = ""
    isolation: str = ""
    processes: tuple[PluginProcessView, ...] = ()


class PluginReload(View, frozen=True, kw_only=True):
    """Result of a reload of plugins.

    `plugins`: the new plugins, and the ones that had failed before. `notes`: sentences for the user about everything
    that needs a restart of the agent or another action.
    """

    plugins: tuple[PluginView, ...] = ()
    notes: tuple[str, ...] = ()


class PanelView(View, frozen=True, kw_only=True):
    """One panel: a table, text or picture about the node that a plugin provides.

    `state` and `reason`: as in `RegistrationView`.
    """

    name: str
    title: str
    plugin: str
    state: str
    reason: str = ""


PanelContent = Table | Text | Png
"""Content of a panel; JSON has the field `type`: table, text or png."""


class ConfigValue(View, frozen=True, kw_only=True):
    """One effective setting. `origin`: default, flag or file.

    `key`: its key in the configuration file, and `flag`: its flag without dashes; empty if there is none.
    """

    key: str
    value: Any
    origin: str
    flag: str = ""
    unused: bool = False
    """True for a setting that kubeletx ignores."""


class VersionView(View, frozen=True, kw_only=True):
    """Version, process and identity of the agent that serves the admin socket."""

    version: str
    pid: int
    started_at: datetime
    node_name: str
    agent_id: str = ""
    root_dir: str = ""
    python: str = ""
    """Path of the Python interpreter that runs the agent; plugins belong into its environment."""


class PartHealth(View, frozen=True, kw_only=True):
    """Health of one part of the agent, such as ``ping`` or ``syncloop``. A healthy one may have a message, too."""

    name: str
    ok: bool
    message: str = ""


class HealthView(View, frozen=True, kw_only=True):
    """Health of all parts; the agent is healthy when every part is."""

    parts: tuple[PartHealth, ...] = ()

    @property
    def ok(self) -> bool:
        return all(part.ok for part in self.parts)
