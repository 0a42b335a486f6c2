"""Values on the admin socket other than Kubernetes objects, printed by the command line.

Pods, nodes and events are the Kubernetes types of `kubeletx.kube`. All views are plain, frozen and serialisable; JSON
names are camelCase. Sums name the runtimes that did not answer (`missing`), so that a partial total is never mistaken
for a whole one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from kubeletx.api import Png, Table, Text
from kubeletx.kube.types.api_status import Status
from kubeletx.kube.types.core import Pod

ORPHANED: Final = "kubeletx.io/orphaned"
"""Annotation ("true") of a pod that was found on a runtime and that no source claims (DECISIONS 8)."""


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all views."""


# --- pods ---


class PodTarget(View, frozen=True, kw_only=True):
    """Pod that a request names. `uid`: only the pod with this UID; empty: any."""

    namespace: str
    name: str
    uid: str = ""

    @property
    def ref(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class PodChange(View, frozen=True, kw_only=True):
    """One event of a watch.

    `type`: ADDED, MODIFIED or DELETED. `object`: the pod now; for DELETED, its last state.
    """

    type: str
    object: Pod


class ActionView(View, frozen=True, kw_only=True):
    """Equal runs in a row of one action of a pod.

    `at`: end of the last run; `seconds`: its duration; `count`: number of runs.
    """

    at: datetime
    action: str
    result: str
    seconds: float
    count: int = 1


class PodHistory(View, frozen=True, kw_only=True):
    """The last actions of a pod, oldest first."""

    items: tuple[ActionView, ...] = ()


class ApplyResult(View, frozen=True, kw_only=True):
    """Result for one pod of a manifest. `action`: created, configured, unchanged or replaced.

    The server adds the action failed, with the `error`; a backend raises instead. `warnings`: about fields
    without effect.
    """

    action: str
    pod: Pod
    error: Status | None = None
    warnings: tuple[str, ...] = ()


class ApplyReport(View, frozen=True, kw_only=True):
    """Results for all pods of a manifest, in order."""

    items: tuple[ApplyResult, ...] = ()


class DeleteOptions(View, frozen=True, kw_only=True):
    """Options of a deletion. `grace_seconds` None: the pod's own grace period.

    `force` with `grace_seconds` 0: do not wait for a runtime that does not answer (DECISIONS 11).
    """

    grace_seconds: int | None = None
    force: bool = False


class LogOptions(View, frozen=True, kw_only=True):
    """Selection of a container's log lines. `container` empty: the pod's only one. `previous`: lines of the
    previous attempt.

    `tail_lines` None: all lines. `since_seconds` and `since_at` None: from the start. `limit_bytes` None: no
    limit.
    """

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_seconds: float | None = None
    since_at: datetime | None = None
    limit_bytes: int | None = None


# --- runtimes ---


class ConditionView(View, frozen=True, kw_only=True):
    """One condition that a runtime reports about itself."""

    type: str
    ok: bool
    reason: str = ""
    message: str = ""


class ImageServiceView(View, frozen=True, kw_only=True):
    """Image service of one runtime.

    `url`: of the image service; the runtime's own if it has no other. `store`: id of the store, empty before the first
    answer. `is_default`: images of this workload type are pulled here unless a runtime is named.
    """

    name: str
    workload_type: str
    url: str
    store: str = ""
    is_default: bool = False


class RuntimeView(View, frozen=True, kw_only=True):
    """One runtime, as a row of the table of runtimes.

    `status`: Ready, NotReady or Unknown (never connected); `since`: begin of that status. `kind`: the plugin's
    kind. `version`: such as ``containerd 1.6.20``, empty before the first answer. `pods`: number of pods bound
    to it. `default`: it is the first uncordoned runtime of its type. `origin`: flag, file or drop-in that names
    it. `image_service` None: the runtime keeps no images.
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


class FilesystemView(View, frozen=True, kw_only=True):
    """One filesystem of an image store."""

    mountpoint: str
    used_bytes: int


class RuntimeDetail(View, frozen=True, kw_only=True):
    """All details of one runtime, for ``runtime describe``.

    `capabilities`: name of each protocol (Events, Exec, ...) → True if the runtime implements it. `traits`: as
    plain data. `pods`: namespace/name of the pods bound to it.
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
    agent_calls: dict[str, int] = {}
    """Operation name → number of calls since the agent started."""


class RuntimeAddition(View, frozen=True, kw_only=True):
    """Request to add a runtime: its endpoint and, if separate, the URL of its image service."""

    endpoint: str
    image_endpoint: str | None = None


class Progress(View, frozen=True, kw_only=True):
    """One line of a long operation (drain, prune). `done`: the last line, and the operation succeeded."""

    message: str
    done: bool = False


# --- images ---


class ImageView(View, frozen=True, kw_only=True):
    """One image in one store.

    `runtimes`: names of the runtimes that use this store. `default_for`: workload types whose default runtime
    is one of them. `used_by`: namespace/name of pods that use the image. `pulled_by_us`: this agent pulled it;
    garbage collection removes only such images.
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
    """Progress of one pull. `ref`: set only in the last update: the name that the store gave the image."""

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
    """Usage of one container (or machine) of a pod."""

    name: str
    usage: MeasuredUsage


class PodUsage(View, frozen=True, kw_only=True):
    """Usage of one pod: the sum of its containers."""

    namespace: str
    name: str
    runtime: str
    usage: MeasuredUsage
    labels: dict[str, str] = {}
    containers: tuple[ContainerUsage, ...] = ()


class RuntimeUsageView(View, frozen=True, kw_only=True):
    """Usage of all pods of this agent on one runtime."""

    name: str
    workload_type: str
    pods: int
    usage: MeasuredUsage


class UsageView(View, frozen=True, kw_only=True):
    """Usage of the node, of each runtime and of each pod. `missing`: runtimes that did not answer."""

    node_name: str
    node: MeasuredUsage
    node_cpu_capacity_millicores: int | None = None
    node_memory_capacity_bytes: int | None = None
    runtimes: tuple[RuntimeUsageView, ...] = ()
    pods: tuple[PodUsage, ...] = ()
    missing: tuple[str, ...] = ()


# --- the agent itself ---


class RegistrationView(View, frozen=True, kw_only=True):
    """One registration of a plugin, except runtimes. `hook`: its kind, such as health-check.

    `state`: ready; degraded: its last call failed; failed: its factory failed. `reason`: why.
    """

    name: str
    hook: str
    state: str
    reason: str = ""


class PluginView(View, frozen=True, kw_only=True):
    """One plugin. `state`: ready, degraded, skipped or failed; `reason` says why it is not ready.

    Degraded: some of its `registrations` are not ready.
    """

    name: str
    version: str
    state: str
    kinds: tuple[str, ...] = ()
    workload_types: tuple[str, ...] = ()
    registrations: tuple[RegistrationView, ...] = ()
    reason: str = ""


class PluginReload(View, frozen=True, kw_only=True):
    """Result of a reload.

    `plugins`: the new plugins, and those that had failed before. `notes`: what needs a restart or an action,
    one sentence each.
    """

    plugins: tuple[PluginView, ...] = ()
    notes: tuple[str, ...] = ()


class PanelView(View, frozen=True, kw_only=True):
    """One panel of a plugin. `state` and `reason`: as in `RegistrationView`."""

    name: str
    title: str
    plugin: str
    state: str
    reason: str = ""


PanelContent = Table | Text | Png
"""Content of a panel; JSON has the field `type`: table, text or png."""


class ConfigValue(View, frozen=True, kw_only=True):
    """One effective setting. `key`: its key in the configuration file. `origin`: default, flag or file."""

    key: str
    value: Any
    origin: str
    flag: str = ""
    unused: bool = False
    """True for a setting that kubeletx ignores."""


class VersionView(View, frozen=True, kw_only=True):
    """Version, process and identity of the agent that serves the socket."""

    version: str
    pid: int
    started_at: datetime
    node_name: str
    agent_id: str = ""
    root_dir: str = ""


class PartHealth(View, frozen=True, kw_only=True):
    """Health of one part of the agent, such as ``ping`` or ``syncloop``."""

    name: str
    ok: bool
    message: str = ""


class HealthView(View, frozen=True, kw_only=True):
    """Health of all parts; the agent is healthy when every part is."""

    parts: tuple[PartHealth, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every part is healthy."""
        return all(part.ok for part in self.parts)


# --- metrics ---


class HistogramView(View, frozen=True, kw_only=True):
    """A histogram of durations. `bounds`: increasing upper bounds in seconds, without infinity.

    `counts`: observations per bucket (not cumulative), one more than bounds; the last is above all bounds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum_seconds: float


class OperationView(View, frozen=True, kw_only=True):
    """Calls of one operation, such as ``create_sandbox``, to one runtime since the agent started."""

    runtime: str
    operation: str
    calls: int
    errors: int
    durations: HistogramView | None = None


class CountView(View, frozen=True, kw_only=True):
    """One value of a counter or gauge with labels."""

    name: str
    labels: dict[str, str]
    value: float


class LabelledHistogram(View, frozen=True, kw_only=True):
    """A histogram of a metric with labels."""

    name: str
    labels: dict[str, str]
    histogram: HistogramView


class ProbeCount(View, frozen=True, kw_only=True):
    """Number of a probe's results of one kind.

    `probe`: Liveness, Readiness or Startup. `result`: successful, failed or unknown.
    """

    namespace: str
    pod: str
    uid: str
    container: str
    probe: str
    result: str
    count: int


class ProbeDuration(View, frozen=True, kw_only=True):
    """Durations of a container's probe. `probe`: as in `ProbeCount`."""

    namespace: str
    pod: str
    container: str
    probe: str
    histogram: HistogramView


class ClaimView(View, frozen=True, kw_only=True):
    """Usage of the file system behind a persistent volume claim."""

    namespace: str
    claim: str
    capacity_bytes: int
    available_bytes: int
    used_bytes: int
    inodes: int
    inodes_free: int
    inodes_used: int


class ProviderMetrics(View, frozen=True, kw_only=True):
    """Runs of one credential provider's program."""

    name: str
    errors: int
    durations: HistogramView


class MetricsView(View, frozen=True, kw_only=True):
    """Counters, gauges and histograms of the agent, as a scrape renders them.

    `running_containers`: container state (running, exited, created, unknown) → number. `desired_pods`: value of
    the kubelet's label ``static`` → number. `durations`: metric name (``kubelet_pod_start_duration_seconds``) →
    histogram; those with labels are in `labelled_durations`. `counters`: metric name
    (``kubelet_started_pods_total``) → value, gauges too; those with labels are in `counts`. `provider_digest`:
    digest of the configuration of credential providers, empty without one.
    """

    node_name: str
    running_pods: int = 0
    running_containers: dict[str, int] = {}
    desired_pods: dict[str, int] = {}
    operations: tuple[OperationView, ...] = ()
    runtimes_ready: dict[str, bool] = {}
    pods_by_runtime: dict[str, int] = {}
    durations: dict[str, HistogramView] = {}
    labelled_durations: tuple[LabelledHistogram, ...] = ()
    counters: dict[str, float] = {}
    counts: tuple[CountView, ...] = ()
    probes: tuple[ProbeCount, ...] = ()
    probe_durations: tuple[ProbeDuration, ...] = ()
    claims: tuple[ClaimView, ...] = ()
    providers: tuple[ProviderMetrics, ...] = ()
    provider_digest: str = ""


# --- machines ---
