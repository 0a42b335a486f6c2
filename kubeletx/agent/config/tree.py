"""`AgentConfig`: the typed configuration of the agent, which is read once at start, and `SETTINGS`, the table of its fields.

Each field says its key in the configuration file, its flag, its help text and its default, and nothing else does: the
flags, ``kubeletx config view``, the checks of the configuration file and the reference of the command line all come
from here. A key that begins with ``kubeletx.`` exists only in kubeletx; any other key is a field of
KubeletConfiguration (kubelet.config.k8s.io/v1beta1) with the same meaning and, unless the field says otherwise, the same
default. `load.load_config` builds the configuration from defaults, file, drop-in directory and flags, in that order.

Units are in the names: seconds are floats, sizes are bytes. None means "not set".
"""

# Without `from __future__ import annotations`: `_settings` reads the annotations as values. The two types in quotes are
# never evaluated, so that ``--help`` does not import their packages.

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from kubeletx.plugins.settings import PluginLimits
from kubeletx.runtimes.images.verification import NEVER_PRELOADED, POLICIES

from .kinds import (
    Boolean,
    Choice,
    Duration,
    HeaderMap,
    Integer,
    Items,
    Pairs,
    PathKind,
    PriorityGraces,
    SettingKind,
    Size,
    String,
    Tables,
    Taints,
)
from .kubelet_words import EXTERNAL, VOLUME_PLUGIN_DIR

if TYPE_CHECKING:
    from kubeletx.kube.types.node import Taint
    from kubeletx.node.shutdown import ShutdownGroup

PORT: Final = Integer(low=0, high=65535)
PERCENT: Final = Integer(low=0, high=100)
PERIOD: Final = Duration(zero_is_unset=True, nullable=False, forgives_negative=True)
"""A duration of the kubelet: zero and negative values mean its default."""
BY_TYPE: Final = String()
_KINDS: Final[dict[object, SettingKind]] = {
    bool: Boolean(),
    int: Integer(),
    float: Duration(),
    str: String(),
    str | None: String(optional=True),
    Path | None: PathKind(),
    dict[str, str]: Pairs(),
    tuple[str, ...]: Items(),
}


class Setting(msgspec.Struct, frozen=True):
    """One setting: its key, flag, help text and values. It annotates its field of `AgentConfig`.

    `key`: its key in the configuration file, empty if it has only a flag. `flag`: its flag without dashes, empty if it
    has only a key. `kind`: parses and formats its values; `BY_TYPE`: the usual kind of the field's type.
    """

    key: str
    flag: str
    help: str
    kind: SettingKind = BY_TYPE
    short: str = ""
    """One-letter form of the flag; empty if there is none."""
    single: str = ""
    """The kubelet's key for a single endpoint, of a list of endpoints. If the flag is given, this key is ignored."""
    path: str = ""
    """The field's place in `AgentConfig`, such as ``node.max_pods``. `SETTINGS` has this and `default` from the field."""
    default: Any = None


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the sections of `AgentConfig`."""


class EndpointText(Section, frozen=True, kw_only=True):
    """Text of one or more endpoints as the operator wrote it, not parsed yet.

    `text`: the endpoints, joined by ``;``. `origin`: the file or flag that contains the text, for error messages.
    `key`: the field in the file; empty for a flag.
    """

    text: str
    origin: str
    key: str = ""

    @property
    def place(self) -> str:
        """File and field, for error messages; empty for a flag."""
        return f"{self.origin}: {self.key}" if self.key else ""


# fmt: off
class RuntimeSettings(Section, frozen=True, kw_only=True):
    """Settings of the runtimes and of the agent's calls to them."""

    endpoints: Annotated[tuple[EndpointText, ...], Setting("kubeletx.containerRuntimeEndpoints", "container-runtime-endpoint",
        "Runtimes as type:name:url joined by ';' (repeatable); the first of a type is its default. Default: "
        "the first well-known CRI socket that exists.",
        Items(), single="containerRuntimeEndpoint")] = ()
    """In the order flags, configuration file, drop-ins by file name; the first of a workload type is its default.

    Empty: the agent looks for the well-known CRI sockets, unless there are drop-in files of runtimes.
    """
    image_endpoints: Annotated[tuple[EndpointText, ...], Setting("kubeletx.imageServiceEndpoints", "image-service-endpoint",
        "Image services that are not on the socket of their runtime, in the same form (repeatable).",
        Items(), single="imageServiceEndpoint")] = ()
    request_timeout_seconds: Annotated[float, Setting("runtimeRequestTimeout", "runtime-request-timeout",
        "Deadline of runtime calls, except pulls, logs, exec and attach.", PERIOD)] = 120.0
    health_grace_seconds: Annotated[float, Setting("kubeletx.runtimeHealthGracePeriod", "runtime-health-grace-period",
        "How long a runtime may fail to answer before it is unreachable and not ready.")] = 10.0
    """The kubelet's is fixed: 30s."""
    classes: Annotated[dict[str, str], Setting("kubeletx.runtimeClasses", "",
        "RuntimeClass name to NAME or NAME--HANDLER of a runtime.")] = {}
    plugins: Annotated[dict[str, dict[str, Any]], Setting("kubeletx.plugins", "",
        "Settings of plugins, by kind or registered name.", Tables())] = {}
    plugin_isolation: Annotated[dict[str, str], Setting("kubeletx.pluginIsolation", "",
        "Name that a plugin registers to process (own process) or none (agent's process); isolation= in the "
        "URL overrides it.")] = {}
    share_runtime: Annotated[bool, Setting("kubeletx.shareRuntime", "share-runtime",
        "Start even if a kubelet uses one of the CRI sockets. That kubelet removes pods that it did not start.")] = False


class PluginSettings(PluginLimits, Section, frozen=True, kw_only=True):
    """Settings of plugins; `PluginLimits` has their meaning."""

    disabled: Annotated[tuple[str, ...], Setting("kubeletx.disabledPlugins", "disable-plugin",
        "Plugins that are not imported, by name of the plugin or of its distribution (repeatable).",
        Items(word="NAME"))] = ()
    variables: Annotated[tuple[str, ...], Setting("kubeletx.pluginEnvironment", "",
        "Environment variables that plugin processes inherit in addition to PATH, HOME, LANG, TZ and proxy settings.")] = ()
    health_check_seconds: Annotated[float, Setting("kubeletx.pluginHealthCheckTimeout", "",
        "Deadline of one health check of a plugin.", Duration(zero_is_unset=True))] = 10.0
    admission_check_seconds: Annotated[float, Setting("kubeletx.pluginAdmissionCheckTimeout", "",
        "Deadline of one plugin's review of a new pod.", Duration(zero_is_unset=True))] = 5.0
    pod_source_sync_seconds: Annotated[float, Setting("kubeletx.pluginPodSourceSyncTimeout", "",
        "How long a plugin's pod source may take to set all its pods before it counts as degraded.",
        Duration(zero_is_unset=True))] = 60.0
    panel_seconds: Annotated[float, Setting("kubeletx.pluginPanelTimeout", "",
        "Deadline of one panel of a plugin.", Duration(zero_is_unset=True))] = 10.0
    volume_seconds: Annotated[float, Setting("kubeletx.pluginVolumeTimeout", "",
        "Deadline of a volume driver's preparation, release or expansion of one volume.",
        Duration(zero_is_unset=True))] = 120.0
    stall_seconds: Annotated[float, Setting("kubeletx.pluginStallTimeout", "",
        "How long the plugin of a runtime may block the agent before pluginStallAction is taken.",
        Duration(zero_is_unset=True))] = 30.0
    stall_action: Annotated[str, Setting("kubeletx.pluginStallAction", "",
        "restart: end the agent; its next start runs that plugin in a process of its own. log: only log and dump.",
        Choice(("restart", "log")))] = "restart"
    memory_limit_bytes: Annotated[int, Setting("kubeletx.pluginMemoryLimit", "",
        "Memory of the process of one distribution's plugins, except runtimes, with everything that it "
        "starts.", Size())] = 512 * 1024 * 1024
    process_limit: Annotated[int, Setting("kubeletx.pluginProcessLimit", "",
        "Most processes and threads of the process of one distribution's plugins, with everything that it "
        "starts.", Integer(low=16))] = 512
    cpu_weight: Annotated[int, Setting("kubeletx.pluginCPUWeight", "",
        "CPU weight of the process of one distribution's plugins, as in cgroup v2; 100 is the weight of other "
        "services.", Integer(low=1, high=10_000))] = 100


class SourceSettings(Section, frozen=True, kw_only=True):
    """Settings of the sources of static pods: manifest files and a manifest URL."""

    pod_manifest_path: Annotated[Path | None, Setting("staticPodPath", "pod-manifest-path",
        "Directory of static pod manifests, or one file.")] = None
    manifest_url: Annotated[str | None, Setting("staticPodURL", "manifest-url",
        "URL of a static pod manifest.")] = None
    manifest_url_headers: Annotated[dict[str, tuple[str, ...]], Setting("staticPodURLHeader", "manifest-url-header",
        "HTTP header for --manifest-url, as Name:value (repeatable).", HeaderMap())] = {}
    file_check_seconds: Annotated[float, Setting("fileCheckFrequency", "file-check-frequency",
        "How often manifests are listed; changes are also noticed at once by inotify.", PERIOD)] = 20.0
    http_check_seconds: Annotated[float, Setting("httpCheckFrequency", "http-check-frequency",
        "How often --manifest-url is requested.", PERIOD)] = 20.0


class ClusterSettings(Section, frozen=True, kw_only=True):
    """Settings of the connection to the API server, and of the Node object."""

    kubeconfig: Annotated[Path | None, Setting("kubeletx.kubeconfig", "kubeconfig",
        "Address of the API server and credentials of the node. Without it the node belongs to no cluster.")] = None
    bootstrap_kubeconfig: Annotated[Path | None, Setting("kubeletx.bootstrapKubeconfig", "bootstrap-kubeconfig",
        "Used to request the node's certificate if --kubeconfig does not exist; that file is then written.")] = None
    """Also used when the certificate in `kubeconfig` has expired. None: no certificate is requested."""
    rotate_certificates: Annotated[bool, Setting("rotateCertificates", "rotate-certificates",
        "Request a new client certificate from the cluster before the current one expires.")] = False
    server_tls_bootstrap: Annotated[bool, Setting("serverTLSBootstrap", "rotate-server-certificates",
        "Request the certificate of --port from the cluster and renew it; each request must be approved.")] = False
    register_node: Annotated[bool, Setting("registerNode", "register-node",
        "Create the Node object in the API server; false: it must exist.")] = True
    register_deleted_node: Annotated[bool, Setting("kubeletx.registerDeletedNode", "register-deleted-node",
        "Register a Node again at once when it is deleted; false: at the next start.")] = False
    register_schedulable: Annotated[bool, Setting("kubeletx.registerSchedulable", "register-schedulable",
        "Register the node so that pods may be scheduled to it at once.")] = True
    register_with_taints: Annotated["tuple[Taint, ...]", Setting("registerWithTaints", "register-with-taints",
        "Taints that the Node gets when it is registered, as key=value:effect,...", Taints())] = ()
    taint_kubeconfig: Annotated[Path | None, Setting("kubeletx.taintKubeconfig", "taint-kubeconfig",
        "Credentials for taints of workload types that have no ready runtime (deploy/taints.yaml).")] = None
    """A node may not change its own taints, so these are the credentials of another identity.

    None: the taints are set only when the node is registered.
    """
    report_seconds: Annotated[float, Setting("nodeStatusReportFrequency", "node-status-report-frequency",
        "How often node status is sent when nothing changes.", PERIOD)] = 300.0
    lease_seconds: Annotated[int, Setting("nodeLeaseDurationSeconds", "",
        "Duration of the node's lease in seconds; it is renewed after a quarter of that.",
        Integer(low=1, zero_is_unset=True))] = 40
    qps: Annotated[int, Setting("kubeAPIQPS", "kube-api-qps",
        "Requests a second to the API server; 0: no limit.")] = 50
    """Heartbeats and events do not count."""
    burst: Annotated[int, Setting("kubeAPIBurst", "kube-api-burst",
        "Requests allowed in a burst above --kube-api-qps.", Integer(zero_is_unset=True))] = 100
    event_qps: Annotated[int, Setting("eventRecordQPS", "event-qps",
        "Events a second to the API server; 0: no limit.")] = 50
    event_burst: Annotated[int, Setting("eventBurst", "event-burst",
        "Events allowed in a burst above --event-qps.", Integer(zero_is_unset=True))] = 100


class NodeSettings(Section, frozen=True, kw_only=True):
    """Settings of the node: name, addresses, labels, capacity, readiness and status."""

    hostname_override: Annotated[str | None, Setting("kubeletx.hostnameOverride", "hostname-override",
        "The node's name, instead of the host's name.")] = None
    """None: the host name in lower case."""
    node_ip: Annotated[tuple[str, ...], Setting("kubeletx.nodeIP", "node-ip",
        "The node's address, or one for each IP family joined by a comma. Default, or 0.0.0.0: an address of "
        "the default route, preferably IPv4; '::': preferably IPv6.")] = ()
    labels: Annotated[dict[str, str], Setting("kubeletx.nodeLabels", "node-labels",
        "Labels of the node, as a=1,b=2.")] = {}
    max_pods: Annotated[int, Setting("maxPods", "max-pods",
        "The largest number of pods on this node.", Integer(low=1, zero_is_unset=True))] = 110
    pods_per_core: Annotated[int, Setting("podsPerCore", "pods-per-core",
        "The largest number of pods for each core; 0: no such limit.")] = 0
    readiness_policy: Annotated[str, Setting("kubeletx.nodeReadinessPolicy", "node-readiness-policy",
        "Which runtimes must be ready for the node to be Ready: at least one, all, or the first listed.",
        Choice(("partial", "all", "primary")))] = "partial"
    status_update_seconds: Annotated[float, Setting("nodeStatusUpdateFrequency", "node-status-update-frequency",
        "How often node status is computed.", PERIOD)] = 10.0
    system_reserved: Annotated[dict[str, str], Setting("systemReserved", "system-reserved",
        "Resources kept for the system, as cpu=200m,memory=1Gi.")] = {}
    kube_reserved: Annotated[dict[str, str], Setting("kubeReserved", "kube-reserved",
        "Resources kept for the node's agents, as cpu=200m,memory=1Gi.")] = {}
    provider_id: Annotated[str | None, Setting("providerID", "provider-id",
        "ID of the machine at its cloud provider.")] = None
    cloud_provider: Annotated[str | None, Setting("kubeletx.cloudProvider", "cloud-provider",
        "external: register with the taint that a cloud controller removes; the controller sets the "
        "addresses.", Choice((EXTERNAL,), optional=True))] = None
    max_images: Annotated[int, Setting("nodeStatusMaxImages", "node-status-max-images",
        "How many images the node's status lists, largest first; -1: all.", Integer(low=-1))] = 50
    fail_swap_on: Annotated[bool, Setting("failSwapOn", "fail-swap-on",
        "Refuse to start while the machine has swap (the kubelet's default is true).")] = False
    """False by default, unlike the kubelet: pods get no swap by default, even if the machine has it."""


class PodSettings(Section, frozen=True, kw_only=True):
    """Settings of pods: restarts, sysctls, seccomp, process limit and swap."""

    sync_seconds: Annotated[float, Setting("syncFrequency", "sync-frequency",
        "Runtimes with events are also listed completely, after one to five times this period.",
        Duration(zero_is_unset=True, nullable=False))] = 60.0
    max_restart_period_seconds: Annotated[float, Setting("crashLoopBackOff.maxContainerRestartPeriod", "",
        "Cap of the crash-loop back-off.", Duration(low=1.0, high=300.0))] = 300.0
    allowed_unsafe_sysctls: Annotated[tuple[str, ...], Setting("allowedUnsafeSysctls", "allowed-unsafe-sysctls",
        "Unsafe sysctls that pods may set; a name may end in *.", Items(text=False))] = ()
    seccomp_default: Annotated[bool, Setting("seccompDefault", "seccomp-default",
        "Give containers without a seccomp profile the runtime's default one.")] = False
    pids_limit: Annotated[int, Setting("podPidsLimit", "pod-max-pids",
        "The largest number of processes in a pod; -1: no limit per pod.",
        Integer(low=-(2**63), high=2**63 - 1))] = -1
    swap_behavior: Annotated[str | None, Setting("memorySwap.swapBehavior", "",
        "LimitedSwap: burstable pods get a share of the machine's swap (cgroup v2). Default: NoSwap.",
        Choice(("NoSwap", "LimitedSwap"), optional=True))] = None
    standby_streams: Annotated[str, Setting("kubeletx.standbyStreams", "",
        "thaw: exec, attach and each forwarded connection wake a frozen pod. refuse: they fail, and it stays "
        "frozen.", Choice(("thaw", "refuse")))] = "thaw"
    standby_delay_seconds: Annotated[float, Setting("kubeletx.standbyDelay", "",
        "Time for which a woken pod runs on after its last exec, attach or forwarded connection.")] = 0.0
    """A client that comes back within this time finds the pod running; a hibernated pod is not reclaimed between requests."""
    standby_requests_percent: Annotated[int, Setting("kubeletx.standbyRequestsPercent", "",
        "Share of requests that counts at admission: CPU of frozen pods, CPU and memory of hibernated ones.",
        PERCENT)] = 100


class NetworkSettings(Section, frozen=True, kw_only=True):
    """Settings of DNS, and of the pod network for runtimes that do not call CNI themselves."""

    cni_conf_dir: Annotated[Path | None, Setting("kubeletx.cniConfDir", "cni-conf-dir",
        "CNI configuration for runtimes that do not call CNI themselves.")] = None
    """None: the agent offers no pod network to runtime plugins."""
    cni_bin_dirs: Annotated[tuple[Path, ...], Setting("kubeletx.cniBinDir", "cni-bin-dir",
        "Directories of CNI plugins, searched in order.",
        Items(paths=True))] = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
    """The second is Debian's."""
    cluster_dns: Annotated[tuple[str, ...], Setting("clusterDNS", "cluster-dns",
        "Addresses of the cluster's DNS servers.", Items(text=False))] = ()
    cluster_domain: Annotated[str, Setting("clusterDomain", "cluster-domain", "The cluster's DNS domain.")] = ""
    resolv_conf: Annotated[Path | None, Setting("resolvConf", "resolv-conf",
        "Resolver file of the node on which the resolver files of pods are based; empty: none.")] = Path("/etc/resolv.conf")
    pod_cidr: Annotated[str | None, Setting("podCIDR", "pod-cidr",
        "Range of the pods' addresses on a node without a cluster, passed to the runtimes; a comma separates IPv4 and IPv6.",
        String(optional=True))] = None
    """A cluster or a FornaxCore that gives a range replaces it."""


class VolumeSettings(Section, frozen=True, kw_only=True):
    """Settings of volumes."""

    plugin_dir: Annotated[Path, Setting("volumePluginDir", "volume-plugin-dir",
        "Directory of executable FlexVolume drivers, for the plugin kubeletx-flexvolume.",
        PathKind(empty_means=VOLUME_PLUGIN_DIR))] = VOLUME_PLUGIN_DIR


class ImageSettings(Section, frozen=True, kw_only=True):
    """Settings of image pulls and of image garbage collection; they apply to each image store separately."""

    serialize_pulls: Annotated[bool, Setting("serializeImagePulls", "serialize-image-pulls",
        "Pull one image at a time for each store.")] = True
    max_parallel_pulls: Annotated[int | None, Setting("maxParallelImagePulls", "max-parallel-image-pulls",
        "How many pulls run at once when they are not serialised.", Integer(low=1))] = None
    """None: no limit."""
    pull_qps: Annotated[int, Setting("registryPullQPS", "registry-qps", "Pulls a second; 0: no limit.")] = 5
    pull_burst: Annotated[int, Setting("registryBurst", "registry-burst",
        "Pulls allowed in a burst above --registry-qps.", Integer(zero_is_unset=True))] = 10
    gc_high_percent: Annotated[int, Setting("imageGCHighThresholdPercent", "image-gc-high-threshold",
        "Disk usage in percent above which unused images are removed.", PERCENT)] = 85
    gc_low_percent: Annotated[int, Setting("imageGCLowThresholdPercent", "image-gc-low-threshold",
        "Disk usage in percent at which the removal of images stops.", PERCENT)] = 80
    minimum_gc_age_seconds: Annotated[float, Setting("imageMinimumGCAge", "minimum-image-ttl-duration",
        "Unused images younger than this are kept.", Duration(zero_is_unset=True, nullable=False))] = 120.0
    maximum_gc_age_seconds: Annotated[float, Setting("imageMaximumGCAge", "",
        "Images unused for longer are removed regardless of disk usage; 0s: never.",
        Duration(nullable=False))] = 0.0
    verification_policy: Annotated[str, Setting("imagePullCredentialsVerificationPolicy", "",
        "Images for which a pod needs pull credentials even if they are present on the node.",
        Choice(POLICIES))] = NEVER_PRELOADED
    verification_allowlist: Annotated[tuple[str, ...], Setting("preloadedImagesVerificationAllowlist", "",
        "Images, or prefixes ending in /*, that need no credentials with policy NeverVerifyAllowlistedImages.",
        Items(text=False))] = ()
    credential_provider_config: Annotated[Path | None, Setting("kubeletx.imageCredentialProviderConfig", "image-credential-provider-config",
        "CredentialProviderConfig file with the programs that supply registry credentials, or a directory of such files.")] = None
    credential_provider_bin_dir: Annotated[Path | None, Setting("kubeletx.imageCredentialProviderBinDir", "image-credential-provider-bin-dir",
        "Directory of the programs in --image-credential-provider-config.")] = None


class LogSettings(Section, frozen=True, kw_only=True):
    """Settings of container logs and of the agent's own log."""

    pod_logs_dir: Annotated[Path, Setting("podLogsDir", "pod-logs-dir",
        "Directory of container logs.", PathKind(exact=True))] = Path("/var/log/pods")
    max_size_bytes: Annotated[int, Setting("containerLogMaxSize", "container-log-max-size",
        "Size at which a container's log is rotated; negative: logs are not rotated.",
        Size())] = 10 * 1024 * 1024
    max_files: Annotated[int, Setting("containerLogMaxFiles", "container-log-max-files",
        "Log files kept for each container.", Integer(low=2))] = 5
    monitor_interval_seconds: Annotated[float, Setting("containerLogMonitorInterval", "",
        "How often log sizes are checked.", Duration(low=3.0))] = 10.0
    format: Annotated[str, Setting("logging.format", "logging-format",
        "Format of the agent's own log.", Choice(("text", "json")))] = "text"
    verbosity: Annotated[int, Setting("logging.verbosity", "v",
        "Verbosity of the agent's own log; 4: debug.", short="v")] = 0


class CgroupSettings(Section, frozen=True, kw_only=True):
    """Settings of the cgroups that the agent makes for pods."""

    per_qos: Annotated[bool, Setting("cgroupsPerQOS", "cgroups-per-qos",
        "Group pods' cgroups by QoS class.")] = True
    driver: Annotated[str | None, Setting("cgroupDriver", "cgroup-driver",
        "Cgroup driver if the runtimes report none or different ones. Default: cgroupfs.",
        Choice(("cgroupfs", "systemd"), optional=True))] = None
    root: Annotated[str, Setting("cgroupRoot", "cgroup-root", "The parent cgroup of all pods' cgroups.")] = ""
    cpu_cfs_quota: Annotated[bool, Setting("cpuCFSQuota", "cpu-cfs-quota",
        "Enforce CPU limits with a quota.")] = True
    cpu_cfs_quota_period_seconds: Annotated[float, Setting("cpuCFSQuotaPeriod", "cpu-cfs-quota-period",
        "Period of the CPU quota.", Duration(low=0.001, high=1.0))] = 0.1
    single_process_oom_kill: Annotated[bool | None, Setting("singleProcessOOMKill", "",
        "Let the kernel kill one process instead of the whole container when memory runs out.",
        Boolean())] = None
    """None: False on cgroup v2."""
    enforce_allocatable: Annotated[tuple[str, ...], Setting("enforceNodeAllocatable", "enforce-node-allocatable",
        "pods: limit all pods together to what kubeReserved and systemReserved leave; none: no limit.",
        Items(text=False))] = ("pods",)
    fail_cgroup_v1: Annotated[bool, Setting("failCgroupV1", "fail-cgroupv1",
        "Refuse to start on cgroup v1 (the kubelet's default is true).")] = False
    """False by default, unlike the kubelet: v1 is reported with an event."""


DEFAULT_EVICTION_HARD: dict[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}

class EvictionSettings(Section, frozen=True, kw_only=True):
    """Settings of evictions. Hard thresholds also reduce the node's allocatable resources."""

    hard: Annotated[dict[str, str], Setting("evictionHard", "eviction-hard",
        "Thresholds, as memory.available<100Mi,nodefs.available<10%.",
        Pairs(separator="<"))] = msgspec.field(default_factory=DEFAULT_EVICTION_HARD.copy)
    """If the setting is given, signals that it does not name have no hard threshold, unless `merge_defaults`."""
    merge_defaults: Annotated[bool, Setting("mergeDefaultEvictionSettings", "",
        "Use the default thresholds for signals that evictionHard does not name.")] = False
    soft: Annotated[dict[str, str], Setting("evictionSoft", "eviction-soft",
        "Thresholds that act after their grace period, as memory.available<1.5Gi.", Pairs(separator="<"))] = {}
    soft_grace_periods: Annotated[dict[str, str], Setting("evictionSoftGracePeriod", "eviction-soft-grace-period",
        "Grace period of each soft threshold, as memory.available=1m30s.")] = {}
    minimum_reclaim: Annotated[dict[str, str], Setting("evictionMinimumReclaim", "eviction-minimum-reclaim",
        "Amount above the threshold at which a pressure ends, as nodefs.available=500Mi.")] = {}
    pressure_transition_seconds: Annotated[float, Setting("evictionPressureTransitionPeriod", "eviction-pressure-transition-period",
        "How long a pressure is reported after it was last seen.", PERIOD)] = 300.0
    max_pod_grace_seconds: Annotated[int, Setting("evictionMaxPodGracePeriod", "eviction-max-pod-grace-period",
        "Longest grace period in seconds of pods that are evicted by a soft threshold.",
        Integer(low=-2 ** 31))] = 0
    """At least 1 s is used."""
    local_limits: Annotated[bool, Setting("localStorageCapacityIsolation", "local-storage-capacity-isolation",
        "Evict pods that exceed the sizeLimit of an emptyDir or their limits of ephemeral storage.")] = True
    volume_stats_seconds: Annotated[float, Setting("volumeStatsAggPeriod", "volume-stats-agg-period",
        "How often the disk usage of pods is measured.", PERIOD)] = 60.0
    """The usage of pods with limits is measured every ten seconds."""


class ShutdownSettings(Section, frozen=True, kw_only=True):
    """Settings of shutdowns of the host, which systemd-logind announces. A stop of the agent ends no pod."""

    grace_seconds: Annotated[float, Setting("shutdownGracePeriod", "",
        "How long a shutdown of the host waits for pods to end; 0s: it does not wait.",
        Duration(nullable=False))] = 0.0
    critical_grace_seconds: Annotated[float, Setting("shutdownGracePeriodCriticalPods", "",
        "The part of shutdownGracePeriod reserved for critical pods, which end last.",
        Duration(nullable=False))] = 0.0
    by_priority: Annotated["tuple[ShutdownGroup, ...]", Setting("shutdownGracePeriodByPodPriority", "",
        "Replaces shutdownGracePeriod and shutdownGracePeriodCriticalPods: a list of priority and "
        "shutdownGracePeriodSeconds.", PriorityGraces())] = ()


class ServerSettings(Section, frozen=True, kw_only=True):
    """Settings of the agent's TCP servers: health, read-only port, and the kubelet's API."""

    healthz_bind_address: Annotated[str, Setting("healthzBindAddress", "healthz-bind-address",
        "Address of the health endpoint.", String(empty_is_unset=True))] = "127.0.0.1"
    healthz_port: Annotated[int, Setting("healthzPort", "healthz-port",
        "Port of the health endpoint; 0: off.", PORT)] = 10248
    read_only_port: Annotated[int, Setting("readOnlyPort", "read-only-port",
        "Port that serves pods and metrics without authentication; 0: off.", PORT)] = 0
    address: Annotated[str, Setting("address", "address",
        "Address of --port and --read-only-port.", String(empty_is_unset=True))] = "0.0.0.0"
    enabled: Annotated[bool, Setting("enableServer", "enable-server", "Serve the kubelet's API on --port.")] = True
    port: Annotated[int, Setting("port", "port",
        "Port of the kubelet's API, served when there is a --kubeconfig or when this is set; 0: off.",
        PORT)] = 10250
    cert_dir: Annotated[Path | None, Setting("", "cert-dir",
        "Directory of certificates. Default: pki below the root directory.")] = None
    tls_cert_file: Annotated[Path | None, Setting("tlsCertFile", "tls-cert-file",
        "Certificate of --port with its chain, reloaded when the file changes. Default: one created in --cert-dir.")] = None
    """None: the certificate in `cert_dir`: signed by the cluster with `server_tls_bootstrap`, else self-signed."""
    tls_key_file: Annotated[Path | None, Setting("tlsPrivateKeyFile", "tls-private-key-file",
        "Key of --tls-cert-file.")] = None
    tls_cipher_suites: Annotated[tuple[str, ...], Setting("tlsCipherSuites", "tls-cipher-suites",
        "Ciphers of TLS 1.2 by their IANA names. Default: strong ones.", Items(text=False))] = ()
    tls_min_version: Annotated[str, Setting("tlsMinVersion", "tls-min-version",
        "Oldest TLS version accepted on --port.", Choice(("VersionTLS12", "VersionTLS13")))] = "VersionTLS12"
    debugging_handlers: Annotated[bool, Setting("enableDebuggingHandlers", "enable-debugging-handlers",
        "Serve logs, commands, port-forward and running pods on --port.")] = True
    system_log_handler: Annotated[bool, Setting("enableSystemLogHandler", "",
        "Serve the files below /var/log on --port to users with access to nodes/log.")] = True
    system_log_query: Annotated[bool, Setting("enableSystemLogQuery", "",
        "With enableSystemLogHandler: let /logs/?query=SERVICE read the journal by journalctl.")] = False
    debug_flags_handler: Annotated[bool, Setting("enableDebugFlagsHandler", "",
        "Allow changing --v while the agent runs, by PUT to /debug/flags/v on --port.")] = True
    stream_idle_seconds: Annotated[float, Setting("streamingConnectionIdleTimeout", "streaming-connection-idle-timeout",
        "A stream without data for this time is closed.", PERIOD)] = 4 * 3600.0


class AuthSettings(Section, frozen=True, kw_only=True):
    """Settings of authentication and authorization for the kubelet's API."""

    client_ca_file: Annotated[Path | None, Setting("authentication.x509.clientCAFile", "client-ca-file",
        "Certificate authorities whose client certificates are accepted on --port (CN is the user, O the groups).")] = None
    """None: client certificates are refused."""
    webhook: Annotated[bool, Setting("authentication.webhook.enabled", "authentication-token-webhook",
        "Let the API server review bearer tokens.")] = True
    webhook_cache_seconds: Annotated[float, Setting("authentication.webhook.cacheTTL", "authentication-token-webhook-cache-ttl",
        "How long the review of a token is cached.", PERIOD)] = 120.0
    anonymous: Annotated[bool, Setting("authentication.anonymous.enabled", "anonymous-auth",
        "Treat requests without credentials as requests of user system:anonymous.")] = False
    mode: Annotated[str, Setting("authorization.mode", "authorization-mode",
        "Webhook: the API server authorizes each request. AlwaysAllow: every authenticated request is "
        "allowed.", Choice(("Webhook", "AlwaysAllow")))] = "Webhook"
    allow_cache_seconds: Annotated[float, Setting("authorization.webhook.cacheAuthorizedTTL", "authorization-webhook-cache-authorized-ttl",
        "How long the answer that a request is allowed is cached.", PERIOD)] = 300.0
    deny_cache_seconds: Annotated[float, Setting("authorization.webhook.cacheUnauthorizedTTL", "authorization-webhook-cache-unauthorized-ttl",
        "How long the answer that a request is denied is cached.", PERIOD)] = 30.0


class SessionSettings(Section, frozen=True, kw_only=True):
    """Settings of application sessions."""

    address: Annotated[str | None, Setting("kubeletx.sessionServiceAddress", "session-service-address",
        "Address of the session service as IP:PORT, for virtual machines; containers use a Unix socket.",
        String(optional=True))] = None
    liveness_seconds: Annotated[float, Setting("kubeletx.sessionLivenessTimeout", "",
        "How long a new instance may take to connect to the session service once its containers run.",
        Duration(low=1.0, zero_is_unset=True))] = 60.0
    heartbeat_seconds: Annotated[float, Setting("kubeletx.sessionHeartbeatLimit", "",
        "How long an open session may be without a heartbeat before it is shown as silent.",
        Duration(low=1.0, zero_is_unset=True))] = 60.0
    """The SDK sends one every 10 s. A silent session is not closed."""


class FornaxSettings(Section, frozen=True, kw_only=True):
    """Settings of a node that FornaxCores manage. Without `cores`, all others have no effect."""

    cores: Annotated[tuple[str, ...], Setting("kubeletx.fornaxCores", "fornaxcore-url",
        "FornaxCore as HOST:PORT (repeatable); the node registers with each. Default: none.", Items(word="HOST:PORT"))] = ()
    identifier: Annotated[str | None, Setting("kubeletx.fornaxNodeIdentifier", "fornaxcore-node-identifier",
        "Identifier of the node for FornaxCores, as NAMESPACE/NAME. Default: fornax.centaurusinfra.io/NODE-NAME.")] = None
    ca_file: Annotated[Path | None, Setting("kubeletx.fornaxCoreCAFile", "fornaxcore-ca-file",
        "Certificate authorities of the FornaxCores. Default: connections without TLS.")] = None
    cert_file: Annotated[Path | None, Setting("kubeletx.fornaxCoreCertFile", "fornaxcore-cert-file",
        "Certificate that the node shows to FornaxCores.")] = None
    key_file: Annotated[Path | None, Setting("kubeletx.fornaxCoreKeyFile", "fornaxcore-key-file",
        "Private key of --fornaxcore-cert-file.")] = None
    state_seconds: Annotated[float, Setting("kubeletx.fornaxStateInterval", "",
        "How often each FornaxCore gets the full state when nothing changes.",
        Duration(low=1.0, zero_is_unset=True))] = 60.0
    liveness_seconds: Annotated[float, Setting("kubeletx.fornaxPodLivenessTimeout", "",
        "How long the containers of a new pod of a FornaxCore may take to be ready once they run.",
        Duration(low=1.0, zero_is_unset=True))] = 60.0

class EdgeSettings(Section, frozen=True, kw_only=True):
    """Settings of the connection to the guardian of an edge node (``kubeletx health``)."""

    run_dir: Annotated[Path | None, Setting("kubeletx.healthRunDirectory", "health-run-dir",
        "Directory in which the guardian of this node (kubeletx health) and its agents publish topics, as its "
        "--run-dir. Default: the agent has no guardian.")] = None


class TracingSettings(Section, frozen=True, kw_only=True):
    """Settings of the traces of pods' starts."""

    endpoint: Annotated[str, Setting("tracing.endpoint", "",
        "OpenTelemetry collector that takes traces with OTLP over gRPC, without TLS.")] = ""
    """As gRPC names it, such as ``localhost:4317`` or ``unix:///run/otel.sock``. Empty: ``localhost:4317``."""
    sampling_rate_per_million: Annotated[int, Setting("tracing.samplingRatePerMillion", "",
        "Number of pods in a million whose start is traced; 0: none.", Integer(high=1_000_000))] = 0


class ProcessSettings(Section, frozen=True, kw_only=True):
    """Settings of the agent's own process."""

    oom_score_adj: Annotated[int | None, Setting("oomScoreAdj", "oom-score-adj",
        "oom_score_adj of the agent. Default: unchanged; -999 when it runs as the kubelet.",
        Integer(low=-1000, high=1000))] = None
    stop_seconds: Annotated[float, Setting("kubeletx.stopTimeout", "",
        "How long the agent may take to end after SIGTERM; after that it writes a dump and exits with code 4.",
        Duration(zero_is_unset=True))] = 30.0
    max_open_files: Annotated[int | None, Setting("maxOpenFiles", "max-open-files",
        "Limit of open files of the agent. Default: the hard limit; 1000000 when it runs as the kubelet.",
        Integer(high=2**63 - 1, zero_is_unset=True))] = None


# fmt: on


class UnusedSetting(Section, frozen=True, kw_only=True):
    """A kubelet setting in the configuration that has no effect, since kubeletx lacks the feature.

    `origin`: the file or flag that sets it. `consequence`: what happens instead, for the log.
    """

    name: str
    """Name of the field, or of the flag with its dashes."""
    origin: str
    value: object = None
    consequence: str = ""


KUBELET_PROCESS = ProcessSettings(oom_score_adj=-999, max_open_files=1_000_000)
"""Settings that a kubelet applies to its own process by default."""


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of the agent; each field is a section of related settings."""

    root_dir: Path = Path("/var/lib/kubeletx")
    runtimes: RuntimeSettings = RuntimeSettings()
    plugins: PluginSettings = PluginSettings()
    sources: SourceSettings = SourceSettings()
    cluster: ClusterSettings = ClusterSettings()
    node: NodeSettings = NodeSettings()
    pods: PodSettings = PodSettings()
    network: NetworkSettings = NetworkSettings()
    volumes: VolumeSettings = VolumeSettings()
    images: ImageSettings = ImageSettings()
    logs: LogSettings = LogSettings()
    cgroups: CgroupSettings = CgroupSettings()
    eviction: EvictionSettings = EvictionSettings()
    shutdown: ShutdownSettings = ShutdownSettings()
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    sessions: SessionSettings = SessionSettings()
    fornax: FornaxSettings = FornaxSettings()
    edge: EdgeSettings = EdgeSettings()
    tracing: TracingSettings = TracingSettings()
    process: ProcessSettings = ProcessSettings()
    origins: dict[str, str] = {}
    """Path of a field in this tree (``node.max_pods``) → origin of its value; absent: default."""
    unused: tuple[UnusedSetting, ...] = ()
    """Configured kubelet settings that have no effect; each is logged once at start with its consequence."""

    @property
    def socket_path(self) -> Path:
        return self.root_dir / "kubeletx.sock"

    @property
    def runtimes_directory(self) -> Path:
        """Directory of the runtimes' drop-in files, which ``kubeletx runtime add`` or an operator writes."""
        return self.root_dir / "runtimes.d"

    @property
    def applied_directory(self) -> Path:
        """Directory with one file for each pod that was created with ``kubeletx apply``."""
        return self.root_dir / "applied"


def _settings() -> Iterator[Setting]:
    for section in AgentConfig.__struct_fields__:
        cls = AgentConfig.__annotations__[section]
        if not (isinstance(cls, type) and issubclass(cls, Section)):
            continue
        for field in cls.__struct_fields__:
            annotation = cls.__annotations__[field]
            setting: Setting = annotation.__metadata__[0]
            yield msgspec.structs.replace(
                setting,
                kind=_KINDS[annotation.__origin__] if setting.kind is BY_TYPE else setting.kind,
                path=f"{section}.{field}",
                default=getattr(cls(), field),
            )


SETTINGS: Final = tuple(_settings())
BY_KEY: Final = {setting.key: setting for setting in SETTINGS if setting.key}
BY_FLAG: Final = {setting.flag: setting for setting in SETTINGS if setting.flag}
BY_PATH: Final = {setting.path: setting for setting in SETTINGS}
ENDPOINT_KEYS: Final = {setting.path: (setting.key, setting.single) for setting in SETTINGS if setting.single}
"""Path in `AgentConfig` → kubeletx's key for a list of endpoints, and the kubelet's key for a single endpoint."""
