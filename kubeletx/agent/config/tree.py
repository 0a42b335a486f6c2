"""The typed configuration of the agent: `AgentConfig`, read once, passed down as the part that is needed.

Fields that exist in the kubelet's configuration keep its name (in snake_case), meaning and default; kubeletx
adds fields of its own. `settings.SETTINGS` has for each field the key of the configuration file and
the flag that set it; `load.load_config` builds the tree from defaults, file, drop-in directory and
flags, in that order.

Units are in the names: seconds are floats, sizes are bytes. None means "not set"; each field documents what
follows from that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kubeletx.kube.types.node import Taint
from kubeletx.node.shutdown import ShutdownGroup
from kubeletx.runtimes.images.verification import NEVER_PRELOADED


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the configuration sections."""


class EndpointText(Section, frozen=True, kw_only=True):
    """An endpoint list as the operator wrote it, not parsed yet.

    `text`: one or more endpoints joined by ``;``. `origin`: file or flag, for error messages. `key`: field of
    the file; empty for a flag.
    """

    text: str
    origin: str
    key: str = ""

    @property
    def place(self) -> str:
        """File and field, for messages; empty for a flag."""
        return f"{self.origin}: {self.key}" if self.key else ""


class RuntimeSettings(Section, frozen=True, kw_only=True):
    """Settings of runtimes and calls to them."""

    endpoints: tuple[EndpointText, ...] = ()
    """Endpoints: of flags first, then the file, then drop-ins by file name. The first of a type is its default.

    Empty: the well-known CRI sockets are looked for.
    """
    image_endpoints: tuple[EndpointText, ...] = ()
    """Image endpoints, in the same syntax. A runtime without one keeps its images itself."""
    request_timeout_seconds: float = 120.0
    """Deadline of every call except pulls, logs, exec and attach (kubelet: 2m)."""
    health_grace_seconds: float = 10.0
    """Time without an answer to health calls after which a runtime is not ready (kubelet: 30s, fixed)."""
    classes: dict[str, str] = {}
    """RuntimeClass name → NAME or NAME--HANDLER: a runtime of this node and its handler."""
    plugins: dict[str, dict[str, Any]] = {}
    """Kind or registered name to the plugin's own settings, checked at start against what the plugin declares."""
    share_runtime: bool = False
    """Start even though a kubelet uses one of the CRI sockets."""


class PluginSettings(Section, frozen=True, kw_only=True):
    """Deadlines of calls to plugins; `RuntimeSettings` has those of runtimes."""

    health_check_seconds: float = 10.0
    admission_check_seconds: float = 5.0
    pod_source_sync_seconds: float = 60.0
    panel_seconds: float = 10.0


class SourceSettings(Section, frozen=True, kw_only=True):
    """Settings of static pod sources."""

    pod_manifest_path: Path | None = None
    """Directory or file of static pods; None: no file source."""
    manifest_url: str | None = None
    """URL of manifests; None: no URL source."""
    manifest_url_headers: dict[str, tuple[str, ...]] = {}
    """Extra request headers; values are never printed."""
    file_check_seconds: float = 20.0
    """Interval of re-listing, in addition to inotify (kubelet: 20s)."""
    http_check_seconds: float = 20.0
    """Interval of requests to the URL (kubelet: 20s)."""


class ClusterSettings(Section, frozen=True, kw_only=True):
    """Settings of the API server and the Node object there."""

    kubeconfig: Path | None = None
    """Kubeconfig of the node; None without a cluster."""
    bootstrap_kubeconfig: Path | None = None
    """Identity that requests the node's first certificate while `kubeconfig` is missing or its certificate expired."""
    rotate_certificates: bool = False
    """Renew the client certificate after 70 to 90 % of its life."""
    server_tls_bootstrap: bool = False
    """Request the certificate of the kubelet's API from the cluster too; it must be approved there."""
    taint_kubeconfig: Path | None = None
    """Kubeconfig of an identity that may change the node's taints, which a node may not; None: they stay as registered.
    """
    register_node: bool = True
    register_schedulable: bool = True
    """False: the node is registered as unschedulable until 'kubectl uncordon'."""
    register_with_taints: tuple[Taint, ...] = ()
    """Taints set at registration only; a node may not change its taints later."""
    report_seconds: float = 300.0
    """Interval of node status reports without a change (kubelet: 5m)."""
    lease_seconds: int = 40
    """Duration of the node's lease; it is renewed after a quarter of this."""
    qps: int = 50
    """Requests per second, except heartbeats and events; 0: no limit."""
    burst: int = 100
    event_qps: int = 50
    """Requests for events per second; 0: no limit."""
    event_burst: int = 100


class NodeSettings(Section, frozen=True, kw_only=True):
    """Settings of the node and its reports."""

    hostname_override: str | None = None
    """The node's name; None: the host name in lower case."""
    node_ip: tuple[str, ...] = ()
    """At most one address per family; empty: taken from the default route."""
    labels: dict[str, str] = {}
    max_pods: int = 110
    pods_per_core: int = 0
    """Limit of pods per CPU core; 0: no limit."""
    readiness_policy: str = "partial"
    """partial: one ready runtime is enough. all: every uncordoned one. primary: the first listed."""
    status_update_seconds: float = 10.0
    """Interval of node status computations (kubelet: 10s)."""
    system_reserved: dict[str, str] = {}
    """Resource → quantity that pods may not use."""
    kube_reserved: dict[str, str] = {}
    """Resource → quantity that pods may not use."""
    provider_id: str | None = None
    cloud_provider: str | None = None
    """external: a cloud controller sets the node's addresses and removes its taint."""
    max_images: int = 50
    """Number of images in the node's status, largest first; -1 for all (kubelet: 50)."""
    fail_swap_on: bool = False
    """Refuse to start with swap on. False by default, unlike the kubelet: pods get no swap, whatever the machine has.
    """


class PodSettings(Section, frozen=True, kw_only=True):
    """Settings of pods."""

    sync_seconds: float = 60.0
    """Runtimes with events are also listed every one to five times this, as a safety net (kubelet: 1m)."""
    max_restart_period_seconds: float = 300.0
    """Cap of the crash-loop back-off, 1 to 300 (kubelet: 5m)."""
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    """Names of sysctls, or prefixes ending in ``*``."""
    seccomp_default: bool = False
    """True: containers without a profile get the runtime's default one."""
    pids_limit: int = -1
    """Maximum processes per pod; -1: no limit."""
    swap_behavior: str | None = None
    """LimitedSwap: burstable pods get a share of the machine's swap, on cgroup v2. None, NoSwap: no pod gets swap."""


class NetworkSettings(Section, frozen=True, kw_only=True):
    """Settings of DNS, and of the pod network for runtimes that do not call CNI themselves."""

    cni_conf_dir: Path | None = None
    """Directory of CNI configurations; None: plugins get no pod network from the host."""
    cni_bin_dirs: tuple[Path, ...] = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
    """Directories searched for CNI programs, in order; the second is Debian's."""
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    resolv_conf: Path | None = Path("/etc/resolv.conf")
    """Resolver file of the host; None (an empty string in the file): pods get none of its name servers."""


class ImageSettings(Section, frozen=True, kw_only=True):
    """Settings of pulls and garbage collection of images, which are done per store."""

    serialize_pulls: bool = True
    max_parallel_pulls: int | None = None
    """Limit of parallel pulls, if pulls are parallel; None: no limit."""
    pull_qps: int = 5
    """Pulls per second; 0: no limit."""
    pull_burst: int = 10
    gc_high_percent: int = 85
    gc_low_percent: int = 80
    minimum_gc_age_seconds: float = 120.0
    maximum_gc_age_seconds: float = 0.0
    """Age at which unused images are removed; 0: never for age alone."""
    verification_policy: str = NEVER_PRELOADED
    """Policy that selects the images on the node for which a pod must prove its right of use."""
    verification_allowlist: tuple[str, ...] = ()
    """Images that need no proof, with policy NeverVerifyAllowlistedImages only."""
    credential_provider_config: Path | None = None
    """A CredentialProviderConfig, or a directory of them; None: no credential providers."""
    credential_provider_bin_dir: Path | None = None
    """Directory of the providers' programs."""


class LogSettings(Section, frozen=True, kw_only=True):
    """Settings of container logs and of the agent's own log."""

    pod_logs_dir: Path = Path("/var/log/pods")
    max_size_bytes: int = 10 * 1024 * 1024
    max_files: int = 5
    monitor_interval_seconds: float = 10.0
    format: str = "text"
    """Format of the agent's log: text or json."""
    verbosity: int = 0
    """Log verbosity; 4 and more shows debug messages."""


class CgroupSettings(Section, frozen=True, kw_only=True):
    """Settings of pods' cgroups."""

    per_qos: bool = True
    driver: str | None = None
    """cgroupfs or systemd, as the runtimes use; None: cgroupfs."""
    root: str = ""
    """Cgroup below which pods' cgroups are made; empty: the root of the tree."""
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period_seconds: float = 0.1
    single_process_oom_kill: bool | None = None
    """Kill single processes on OOM; None means False on cgroup v2."""
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
    """Settings of eviction. Hard thresholds are subtracted from the node's allocatable resources."""

    hard: dict[str, str] = msgspec.field(default_factory=DEFAULT_EVICTION_HARD.copy)
    """Signal → quantity or percentage.

    If any is set, the defaults of the other signals are dropped, unless `merge_defaults`.
    """
    merge_defaults: bool = False
    soft: dict[str, str] = {}
    """Signal → quantity or percentage of thresholds that act after a grace period."""
    soft_grace_periods: dict[str, str] = {}
    """Signal → duration; each soft threshold has one."""
    minimum_reclaim: dict[str, str] = {}
    """Signal → quantity or percentage above the threshold that must be available again before the pressure ends."""
    pressure_transition_seconds: float = 300.0
    """Time for which a pressure is reported after it was last seen (kubelet: 5m)."""
    max_pod_grace_seconds: int = 0
    """Upper bound of the grace period of soft evictions; at least 1 s is used."""
    local_limits: bool = True
    """Evict pods that exceed their own disk limits."""
    volume_stats_seconds: float = 60.0
    """Interval of disk measurements of pods (kubelet: 1m); pods with limits are measured every ten seconds."""


class ShutdownSettings(Section, frozen=True, kw_only=True):
    """Settings of host shutdowns, signalled by systemd-logind. Stopping only the agent ends no pod."""

    grace_seconds: float = 0.0
    """Total time for which a shutdown waits for pods; 0: shutdowns are not watched."""
    critical_grace_seconds: float = 0.0
    """Part of `grace_seconds` that is reserved for critical pods, which end last."""
    by_priority: tuple[ShutdownGroup, ...] = ()
    """Used instead of the two settings above: the time to end pods, by priority."""


class ServerSettings(Section, frozen=True, kw_only=True):
    """Settings of the agent's servers other than the admin socket."""

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
    """Port of the kubelet's API; served with a kubeconfig, or if the port was set. 0: off."""
    cert_dir: Path | None = None
    """Directory of certificates; None means ``pki`` below the root directory."""
    tls_cert_file: Path | None = None
    """Serving certificate; None: a self-signed pair in `cert_dir`."""
    tls_key_file: Path | None = None
    tls_cipher_suites: tuple[str, ...] = ()
    """IANA names of cipher suites for TLS 1.2; empty: OpenSSL's strong ones."""
    tls_min_version: str = "VersionTLS12"
    debugging_handlers: bool = True
    """False: the kubelet's API serves no logs, commands, port-forward and running pods."""
    system_log_handler: bool = True
    """False: the node's own logs are not served."""
    system_log_query: bool = False
    """True: the journal's logs of services can be queried."""
    debug_flags_handler: bool = True
    """False: the log verbosity cannot be changed over the kubelet's API."""
    stream_idle_seconds: float = 4 * 3600.0
    """A forwarded stream without data for this long is closed (kubelet: 4h)."""


class AuthSettings(Section, frozen=True, kw_only=True):
    """Settings of access to the kubelet's API."""

    client_ca_file: Path | None = None
    """CA of client certificates; None: client certificates are refused."""
    webhook: bool = True
    """True: tokens are reviewed by the API server."""
    webhook_cache_seconds: float = 120.0
    anonymous: bool = False
    """True: a request without credentials is from user system:anonymous."""
    mode: str = "Webhook"
    """Webhook: the API server authorizes each request. AlwaysAllow: every authenticated user may do everything."""
    allow_cache_seconds: float = 300.0
    deny_cache_seconds: float = 30.0


class ProcessSettings(Section, frozen=True, kw_only=True):
    """Settings of the agent's own process. None: the value with which the service manager started it."""

    oom_score_adj: int | None = None
    """OOM score, -1000 to 1000; child processes inherit it."""
    max_open_files: int | None = None
    """Limit of open files, if the kernel allows raising it."""


class UnusedSetting(Section, frozen=True, kw_only=True):
    """A kubelet setting without effect, since it asks for a feature that kubeletx does not have.

    `consequence`: what happens instead, for the log.
    """

    name: str
    """The field, or the flag with its dashes."""
    origin: str
    value: object = None
    consequence: str = ""


KUBELET_PROCESS = ProcessSettings(oom_score_adj=-999, max_open_files=1_000_000)
"""Settings a kubelet applies to its own process; its systemd unit does not set them."""


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration of the agent."""

    root_dir: Path = Path("/var/lib/kubeletx")
    runtimes: RuntimeSettings = RuntimeSettings()
    plugins: PluginSettings = PluginSettings()
    sources: SourceSettings = SourceSettings()
    cluster: ClusterSettings = ClusterSettings()
    node: NodeSettings = NodeSettings()
    pods: PodSettings = PodSettings()
    network: NetworkSettings = NetworkSettings()
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
    """Settings without effect; each is logged once at start with its consequence."""

    @property
    def socket_path(self) -> Path:
        """Path of the admin socket."""
        return self.root_dir / "kubeletx.sock"

    @property
    def runtimes_directory(self) -> Path:
        """Directory of runtimes' drop-in files, which ``runtime add`` or an operator writes."""
        return self.root_dir / "runtimes.d"

    @property
    def applied_directory(self) -> Path:
        """Directory with one file for each pod of ``kubeletx apply``."""
        return self.root_dir / "applied"
