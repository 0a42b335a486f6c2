"""`AgentConfig`: the typed configuration of the agent, which is read once at start.

Fields that exist in the kubelet's configuration have its name (in snake_case), meaning and default unless they say
otherwise; kubeletx adds fields of its own. `settings.SETTINGS` has the key in the configuration file and the flag of
each field. `load.load_config` builds the configuration from defaults, file, drop-in directory and flags, in that order.

Units are in the names: seconds are floats, sizes are bytes. None means "not set"; each field documents the effect of
None.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kubeletx.kube.types.node import Taint
from kubeletx.node.shutdown import ShutdownGroup
from kubeletx.runtimes.images.verification import NEVER_PRELOADED

from .kubelet_words import VOLUME_PLUGIN_DIR


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


class RuntimeSettings(Section, frozen=True, kw_only=True):
    """Settings of the runtimes and of the agent's calls to them."""

    endpoints: tuple[EndpointText, ...] = ()
    """Endpoints in the order flags, configuration file, drop-ins by file name.

    The first runtime of a workload type is the default of that type. Empty: the agent looks for the well-known CRI
    sockets, unless there are drop-in files of runtimes.
    """
    image_endpoints: tuple[EndpointText, ...] = ()
    """Endpoints of separate image services, in the same syntax. A runtime without one serves its images itself."""
    request_timeout_seconds: float = 120.0
    """Deadline of every call to a runtime except pulls, logs, exec and attach (kubelet: 2m)."""
    health_grace_seconds: float = 10.0
    """Time without an answer to health calls after which a runtime is not ready (kubelet: 30s, fixed)."""
    classes: dict[str, str] = {}
    """RuntimeClass name → NAME or NAME--HANDLER: the name of a runtime of this node, and one of its handlers."""
    plugins: dict[str, dict[str, Any]] = {}
    """Runtime kind or registered name → the plugin's own settings; checked at start against the type it declares."""
    plugin_isolation: dict[str, str] = {}
    """Runtime kind or registered name → process or none; of a kind, for its endpoints without ``isolation=``."""
    share_runtime: bool = False
    """Start even if a kubelet uses one of the same CRI sockets."""


class PluginSettings(Section, frozen=True, kw_only=True):
    """Settings of plugins. Deadlines for calls to runtimes are in `RuntimeSettings`.

    `disabled`: names of plugins, or of their distributions, that are not imported. `variables`: names of environment
    variables that processes of plugins get beside the usual ones. `pod_source_sync_seconds`: a pod
    source that has not delivered all its pods within this time is reported as degraded. `volume_seconds`: deadline of
    a volume driver's preparation, release or expansion of one volume. `stall_seconds`: time for which
    the plugin of a runtime may block the agent. `stall_action`: what the agent does then: ``restart`` (it ends, and its
    next start isolates the runtime) or ``log``. `memory_limit_bytes`, `process_limit`, `cpu_weight`: of the child process
    of one distribution, with all processes that it starts; the weight is that of cgroup v2, 100 the kernel's default.
    """

    disabled: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    health_check_seconds: float = 10.0
    admission_check_seconds: float = 5.0
    pod_source_sync_seconds: float = 60.0
    panel_seconds: float = 10.0
    volume_seconds: float = 120.0
    stall_seconds: float = 30.0
    stall_action: str = "restart"
    memory_limit_bytes: int = 512 * 1024 * 1024
    process_limit: int = 512
    cpu_weight: int = 100


class SourceSettings(Section, frozen=True, kw_only=True):
    """Settings of the sources of static pods: manifest files and a manifest URL."""

    pod_manifest_path: Path | None = None
    """Directory or file of static pod manifests; None: the agent reads no manifest files."""
    manifest_url: str | None = None
    """URL of static pod manifests; None: the agent reads no manifests from a URL."""
    manifest_url_headers: dict[str, tuple[str, ...]] = {}
    """Additional headers of requests to `manifest_url`; their values are never printed."""
    file_check_seconds: float = 20.0
    """Interval at which the manifests are listed again, in addition to inotify (kubelet: 20s)."""
    http_check_seconds: float = 20.0
    """Interval of requests to `manifest_url` (kubelet: 20s)."""


class ClusterSettings(Section, frozen=True, kw_only=True):
    """Settings of the connection to the API server, and of the Node object."""

    kubeconfig: Path | None = None
    """Kubeconfig of the node; None: the node is in no cluster."""
    bootstrap_kubeconfig: Path | None = None
    """Kubeconfig that requests the node's certificate while `kubeconfig` is missing or its certificate has expired.

    None: no certificate is requested.
    """
    rotate_certificates: bool = False
    """Renew the client certificate after 70 to 90 % of its life."""
    server_tls_bootstrap: bool = False
    """Request the serving certificate of the kubelet's API from the cluster; each request must be approved there."""
    taint_kubeconfig: Path | None = None
    """Kubeconfig of an identity that may change the node's taints, which a node itself may not.

    None: the taints are set only when the node is registered.
    """
    register_node: bool = True
    register_deleted_node: bool = False
    """True: a Node that is deleted while the agent runs is registered again at once, without its cordon and taints.

    False: at the next start of the agent, as by a kubelet.
    """
    register_schedulable: bool = True
    """False: the node is registered as unschedulable until 'kubectl uncordon'."""
    register_with_taints: tuple[Taint, ...] = ()
    """Taints set when the node is registered; a node may not change its taints later."""
    report_seconds: float = 300.0
    """Interval at which the node status is sent even if it has not changed (kubelet: 5m)."""
    lease_seconds: int = 40
    """Duration of the node's lease; it is renewed after a quarter of this."""
    qps: int = 50
    """Limit of requests per second to the API server, except heartbeats and events; 0: no limit."""
    burst: int = 100
    event_qps: int = 50
    """Limit of requests per second that send events; 0: no limit."""
    event_burst: int = 100


class NodeSettings(Section, frozen=True, kw_only=True):
    """Settings of the node: name, addresses, labels, capacity, readiness and status."""

    hostname_override: str | None = None
    """The node's name; None: the host name in lower case."""
    node_ip: tuple[str, ...] = ()
    """The node's addresses, at most one per IP family; empty: taken from the default route."""
    labels: dict[str, str] = {}
    max_pods: int = 110
    pods_per_core: int = 0
    """Limit of pods per CPU core; 0: no limit."""
    readiness_policy: str = "partial"
    """Runtimes that must be ready for the node to be Ready.

    partial: at least one. all: every runtime that is not cordoned. primary: the first listed.
    """
    status_update_seconds: float = 10.0
    """Interval at which the node status is computed (kubelet: 10s)."""
    system_reserved: dict[str, str] = {}
    """Resource → quantity that is reserved for the system and that pods may not use."""
    kube_reserved: dict[str, str] = {}
    """Resource → quantity that is reserved for the node's agents and that pods may not use."""
    provider_id: str | None = None
    cloud_provider: str | None = None
    """external: a cloud controller sets the node's addresses and removes a taint. None: there is no such controller."""
    max_images: int = 50
    """Number of images in the node's status, largest first; -1 for all (kubelet: 50)."""
    fail_swap_on: bool = False
    """Refuse to start while the machine has swap.

    False by default, unlike the kubelet: pods get no swap by default, even if the machine has it.
    """


class PodSettings(Section, frozen=True, kw_only=True):
    """Settings of pods: restarts, sysctls, seccomp, process limit and swap."""

    sync_seconds: float = 60.0
    """Base of the interval at which runtimes that send events are also listed (kubelet: 1m).

    The interval is one to five times this value.
    """
    max_restart_period_seconds: float = 300.0
    """Upper bound of the crash-loop back-off, 1 to 300 (kubelet: 5m)."""
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    """Names of sysctls, or prefixes ending in ``*``."""
    seccomp_default: bool = False
    """True: containers without a seccomp profile get the runtime's default profile."""
    pids_limit: int = -1
    """Maximum processes per pod; -1: no limit."""
    swap_behavior: str | None = None
    """LimitedSwap: burstable pods get a share of the machine's swap, on cgroup v2. NoSwap or None: no pod gets swap."""
    standby_streams: str = "thaw"
    """Effect of exec, attach and each connection of a port-forward on a frozen pod.

    thaw: the pod runs while they last. refuse: they fail, and the pod stays frozen.
    """
    standby_delay_seconds: float = 0.0
    """Time for which a woken pod runs on after its last exec, attach or forwarded connection; 0: it rests at once.

    A client that comes back within this time meets no frozen pod, and a hibernated pod is not reclaimed between requests.
    """
    standby_requests_percent: int = 100
    """Share of the CPU requests of frozen pods, and of the memory requests of hibernated ones, counted at admission."""


class NetworkSettings(Section, frozen=True, kw_only=True):
    """Settings of DNS, and of the pod network for runtimes that do not call CNI themselves."""

    cni_conf_dir: Path | None = None
    """Directory of CNI configurations; None: the agent offers no pod network to runtime plugins."""
    cni_bin_dirs: tuple[Path, ...] = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
    """Directories searched for CNI programs, in order; the second is Debian's."""
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    resolv_conf: Path | None = Path("/etc/resolv.conf")
    """Resolver file on which pods' resolver files are based.

    None (an empty string in the configuration file): pods get no name servers from the host.
    """


class VolumeSettings(Section, frozen=True, kw_only=True):
    """Settings of volumes."""

    plugin_dir: Path = VOLUME_PLUGIN_DIR
    """Directory of executable FlexVolume drivers (the kubelet's default)."""


class ImageSettings(Section, frozen=True, kw_only=True):
    """Settings of image pulls and of image garbage collection; they apply to each image store separately."""

    serialize_pulls: bool = True
    max_parallel_pulls: int | None = None
    """Limit of parallel pulls if `serialize_pulls` is False; None: no limit."""
    pull_qps: int = 5
    """Pulls per second; 0: no limit."""
    pull_burst: int = 10
    gc_high_percent: int = 85
    gc_low_percent: int = 80
    minimum_gc_age_seconds: float = 120.0
    maximum_gc_age_seconds: float = 0.0
    """Time without use after which an image is removed whatever the disk usage; 0: never."""
    verification_policy: str = NEVER_PRELOADED
    """Policy that selects the images already on the node for which a pod must have valid pull credentials."""
    verification_allowlist: tuple[str, ...] = ()
    """Images for which a pod needs no credentials; used only with policy NeverVerifyAllowlistedImages."""
    credential_provider_config: Path | None = None
    """A CredentialProviderConfig file, or a directory of such files; None: no credential providers."""
    credential_provider_bin_dir: Path | None = None
    """Directory of the credential providers' programs."""


class LogSettings(Section, frozen=True, kw_only=True):
    """Settings of container logs and of the agent's own log."""

    pod_logs_dir: Path = Path("/var/log/pods")
    max_size_bytes: int = 10 * 1024 * 1024
    max_files: int = 5
    monitor_interval_seconds: float = 10.0
    format: str = "text"
    """Format of the agent's log: text or json."""
    verbosity: int = 0
    """Verbosity of the agent's log; 4 and more shows debug messages."""


class CgroupSettings(Section, frozen=True, kw_only=True):
    """Settings of the cgroups that the agent makes for pods."""

    per_qos: bool = True
    driver: str | None = None
    """cgroupfs or systemd, for runtimes that do not report their driver; None: cgroupfs."""
    root: str = ""
    """Cgroup below which pods' cgroups are made; empty: the root cgroup."""
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period_seconds: float = 0.1
    single_process_oom_kill: bool | None = None
    """True: on OOM the kernel kills one process instead of the whole container; None means False on cgroup v2."""
    enforce_allocatable: tuple[str, ...] = ("pods",)
    """('pods',): all pods together are limited to what kubeReserved and systemReserved leave.

    Empty or ('none',): no such limit.
    """
    fail_cgroup_v1: bool = False
    """Refuse to start on cgroup v1. False by default, unlike the kubelet: v1 is reported with an event."""


DEFAULT_EVICTION_HARD: dict[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


class EvictionSettings(Section, frozen=True, kw_only=True):
    """Settings of evictions. Hard thresholds also reduce the node's allocatable resources."""

    hard: dict[str, str] = msgspec.field(default_factory=DEFAULT_EVICTION_HARD.copy)
    """Hard thresholds: signal → quantity or percentage.

    If the setting is given, signals that it does not name have no hard threshold, unless `merge_defaults`.
    """
    merge_defaults: bool = False
    soft: dict[str, str] = {}
    """Soft thresholds, which act after a grace period: signal → quantity or percentage."""
    soft_grace_periods: dict[str, str] = {}
    """Grace periods of soft thresholds: signal → duration. Each soft threshold must have one."""
    minimum_reclaim: dict[str, str] = {}
    """Signal → quantity or percentage. A pressure ends when this much more than the threshold is available."""
    pressure_transition_seconds: float = 300.0
    """Time for which a pressure is reported after it was last detected (kubelet: 5m)."""
    max_pod_grace_seconds: int = 0
    """Upper bound of the grace period of pods that a soft threshold evicts; at least 1 s is used."""
    local_limits: bool = True
    """Evict pods that exceed the sizeLimit of an emptyDir, or their limits of ephemeral storage."""
    volume_stats_seconds: float = 60.0
    """Interval at which the disk usage of pods is measured (kubelet: 1m); every ten seconds for pods with limits."""


class ShutdownSettings(Section, frozen=True, kw_only=True):
    """Settings of shutdowns of the host, which systemd-logind announces. A stop of the agent ends no pod."""

    grace_seconds: float = 0.0
    """Total time for which a shutdown of the host waits for pods; 0: shutdowns are not detected."""
    critical_grace_seconds: float = 0.0
    """Part of `grace_seconds` that is reserved for critical pods, which end last."""
    by_priority: tuple[ShutdownGroup, ...] = ()
    """Grace periods by pod priority; used instead of `grace_seconds` and `critical_grace_seconds`."""


class ServerSettings(Section, frozen=True, kw_only=True):
    """Settings of the agent's TCP servers: health, read-only port, and the kubelet's API."""

    healthz_bind_address: str = "127.0.0.1"
    healthz_port: int = 10248
    """Port of the health server; 0: off."""
    read_only_port: int = 0
    """Port of the read-only server; 0: off."""
    address: str = "0.0.0.0"
    """Address of the kubelet's API and the read-only port."""
    enabled: bool = True
    """False: the kubelet's API is not served."""
    port: int = 10250
    """Port of the kubelet's API; 0: off. Without a kubeconfig see `ports.kubelet_port`."""
    cert_dir: Path | None = None
    """Directory of certificates; None means ``pki`` below the root directory."""
    tls_cert_file: Path | None = None
    """Serving certificate of the kubelet's API; None: a self-signed one, or one of the cluster, in `cert_dir`."""
    tls_key_file: Path | None = None
    tls_cipher_suites: tuple[str, ...] = ()
    """IANA names of cipher suites for TLS 1.2; empty: OpenSSL's default strong suites."""
    tls_min_version: str = "VersionTLS12"
    debugging_handlers: bool = True
    """False: the kubelet's API serves no logs, commands, port-forward and running pods."""
    system_log_handler: bool = True
    """False: the files in /var/log are not served on the kubelet's API."""
    system_log_query: bool = False
    """True: the logs of systemd services can be queried over the kubelet's API."""
    debug_flags_handler: bool = True
    """False: the log verbosity cannot be changed over the kubelet's API."""
    stream_idle_seconds: float = 4 * 3600.0
    """An exec, attach or port-forward stream without data for this long is closed (kubelet: 4h)."""


class AuthSettings(Section, frozen=True, kw_only=True):
    """Settings of authentication and authorization for the kubelet's API."""

    client_ca_file: Path | None = None
    """CA of client certificates; None: client certificates are refused."""
    webhook: bool = True
    """True: the API server reviews bearer tokens (TokenReview)."""
    webhook_cache_seconds: float = 120.0
    anonymous: bool = False
    """True: a request without credentials is from user system:anonymous."""
    mode: str = "Webhook"
    """Webhook: the API server authorizes each request. AlwaysAllow: every authenticated user may do everything."""
    allow_cache_seconds: float = 300.0
    deny_cache_seconds: float = 30.0


class ProcessSettings(Section, frozen=True, kw_only=True):
    """Settings of the agent's own process.

    `stop_seconds`: time after SIGTERM after which the agent ends even if something in it does not.
    """

    oom_score_adj: int | None = None
    """OOM score, -1000 to 1000; child processes inherit it. None: as the process was started with it."""
    max_open_files: int | None = None
    """Limit of open files, if the kernel allows raising it. None: the soft limit is raised to the hard one."""
    stop_seconds: float = 30.0


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
    process: ProcessSettings = ProcessSettings()
    origins: dict[str, str] = {}
    """Path of a field in this tree (``node.max_pods``) → origin of its value; absent: default."""
    unused: tuple[UnusedSetting, ...] = ()
    """Configured kubelet settings that have no effect; each is logged once at start with its consequence."""

    @property
    def socket_path(self) -> Path:
        """Path of the admin socket."""
        return self.root_dir / "kubeletx.sock"

    @property
    def runtimes_directory(self) -> Path:
        """Directory of the runtimes' drop-in files, which ``kubeletx runtime add`` or an operator writes."""
        return self.root_dir / "runtimes.d"

    @property
    def applied_directory(self) -> Path:
        """Directory with one file for each pod that was created with ``kubeletx apply``."""
        return self.root_dir / "applied"
