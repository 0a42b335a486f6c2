"""`SETTINGS`: the table of all settings that have an effect.

Each setting has a path in `AgentConfig`, a key in the file, a flag, a kind of value, and a help text. The flags,
`kubeletx config view`, the checks of the configuration file and docs/cli.md all come from this table. A key that
begins with ``kubeletx.`` exists only in kubeletx; any other key is a field of KubeletConfiguration
(kubelet.config.k8s.io/v1beta1) with the same meaning. A setting with an empty key has only the flag, one with an
empty flag has only the key.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubeletx.runtimes.images.verification import POLICIES

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

PORT: Final = Integer(low=0, high=65535)
PERCENT: Final = Integer(low=0, high=100)


def _period(default: float) -> Duration:
    """Return the kind of a duration of the kubelet that has this default, in seconds, for zero and negative values."""
    return Duration(zero_means=default, nullable=False, forgives_negative=True)


class Setting(msgspec.Struct, frozen=True):
    """A setting of the agent: where it is in the configuration, how it is set, and which values it has.

    `path`: its field in `AgentConfig`, such as ``node.max_pods``. `key`: its key in the configuration file, empty if it
    has none. `flag`: its flag without dashes, empty if it has none. `kind`: parses and formats its values.
    """

    path: str
    key: str
    flag: str
    kind: SettingKind
    help: str
    short: str = ""
    """One-letter form of the flag; empty if there is none."""


ENDPOINTS: Final = "runtimes.endpoints"
IMAGE_ENDPOINTS: Final = "runtimes.image_endpoints"
ENDPOINT_KEYS: Final = {
    ENDPOINTS: ("kubeletx.containerRuntimeEndpoints", "containerRuntimeEndpoint"),
    IMAGE_ENDPOINTS: ("kubeletx.imageServiceEndpoints", "imageServiceEndpoint"),
}
"""Path in `AgentConfig` → kubeletx's key for a list of endpoints, and the kubelet's key for a single endpoint.

If the flag is given, the endpoint of the kubelet's key is ignored.
"""

SETTINGS: Final[tuple[Setting, ...]] = (
    # runtimes
    Setting(ENDPOINTS, "kubeletx.containerRuntimeEndpoints", "container-runtime-endpoint", Items(),
            "Runtimes as type:name:url joined by ';' (repeatable); the first of a type is its default. "
            "Default: the first well-known CRI socket that exists."),
    Setting(IMAGE_ENDPOINTS, "kubeletx.imageServiceEndpoints", "image-service-endpoint", Items(),
            "Image services that are not on the socket of their runtime, in the same form (repeatable)."),
    Setting("runtimes.request_timeout_seconds", "runtimeRequestTimeout", "runtime-request-timeout",
            _period(120.0),
            "Deadline of runtime calls, except pulls, logs, exec and attach."),
    Setting("runtimes.health_grace_seconds", "kubeletx.runtimeHealthGracePeriod", "runtime-health-grace-period",
            Duration(), "How long a runtime may fail to answer before it is unreachable and not ready."),
    Setting("runtimes.classes", "kubeletx.runtimeClasses", "", Pairs(),
            "RuntimeClass name to NAME or NAME--HANDLER of a runtime."),
    Setting("runtimes.plugins", "kubeletx.plugins", "", Tables(), "Settings of plugins, by kind or registered name."),
    Setting("runtimes.plugin_isolation", "kubeletx.pluginIsolation", "", Pairs(),
            "Name that a plugin registers to process (own process) or none (agent's process); isolation= in the URL overrides it."),
    Setting("runtimes.share_runtime", "kubeletx.shareRuntime", "share-runtime", Boolean(),
            "Start even if a kubelet uses one of the CRI sockets. That kubelet removes pods that it did not start."),
    # plugins
    Setting("plugins.disabled", "kubeletx.disabledPlugins", "disable-plugin", Items(word="NAME"),
            "Plugins that are not imported, by name of the plugin or of its distribution (repeatable)."),
    Setting("plugins.variables", "kubeletx.pluginEnvironment", "", Items(),
            "Environment variables that plugin processes inherit in addition to PATH, HOME, LANG, TZ and proxy settings."),
    Setting("plugins.health_check_seconds", "kubeletx.pluginHealthCheckTimeout", "", Duration(zero_means=10.0),
            "Deadline of one health check of a plugin."),
    Setting("plugins.admission_check_seconds", "kubeletx.pluginAdmissionCheckTimeout", "", Duration(zero_means=5.0),
            "Deadline of one plugin's review of a new pod."),
    Setting("plugins.pod_source_sync_seconds", "kubeletx.pluginPodSourceSyncTimeout", "", Duration(zero_means=60.0),
            "How long a plugin's pod source may take to set all its pods before it counts as degraded."),
    Setting("plugins.panel_seconds", "kubeletx.pluginPanelTimeout", "", Duration(zero_means=10.0),
            "Deadline of one panel of a plugin."),
    Setting("plugins.volume_seconds", "kubeletx.pluginVolumeTimeout", "", Duration(zero_means=120.0),
            "Deadline of a volume driver's preparation, release or expansion of one volume."),
    Setting("plugins.stall_seconds", "kubeletx.pluginStallTimeout", "", Duration(zero_means=30.0),
            "How long the plugin of a runtime may block the agent before pluginStallAction is taken."),
    Setting("plugins.stall_action", "kubeletx.pluginStallAction", "", Choice(("restart", "log")),
            "restart: end the agent; its next start runs that plugin in a process of its own. log: only log and dump."),
    Setting("plugins.memory_limit_bytes", "kubeletx.pluginMemoryLimit", "", Size(),
            "Memory of the process of one distribution's plugins, except runtimes, with everything that it starts."),
    Setting("plugins.process_limit", "kubeletx.pluginProcessLimit", "", Integer(low=16),
            "Most processes and threads of the process of one distribution's plugins, with everything that it starts."),
    Setting("plugins.cpu_weight", "kubeletx.pluginCPUWeight", "", Integer(low=1, high=10_000),
            "CPU weight of the process of one distribution's plugins, as in cgroup v2; 100 is the weight of other services."),
    # sources
    Setting("sources.pod_manifest_path", "staticPodPath", "pod-manifest-path", PathKind(),
            "Directory of static pod manifests, or one file."),
    Setting("sources.manifest_url", "staticPodURL", "manifest-url", String(optional=True),
            "URL of a static pod manifest."),
    Setting("sources.manifest_url_headers", "staticPodURLHeader", "manifest-url-header", HeaderMap(),
            "HTTP header for --manifest-url, as Name:value (repeatable)."),
    Setting("sources.file_check_seconds", "fileCheckFrequency", "file-check-frequency", _period(20.0),
            "How often manifests are listed; changes are also noticed at once by inotify."),
    Setting("sources.http_check_seconds", "httpCheckFrequency", "http-check-frequency", _period(20.0),
            "How often --manifest-url is requested."),
    # cluster
    Setting("cluster.kubeconfig", "kubeletx.kubeconfig", "kubeconfig", PathKind(),
            "Address of the API server and credentials of the node. Without it the node belongs to no cluster."),
    Setting("cluster.bootstrap_kubeconfig", "kubeletx.bootstrapKubeconfig", "bootstrap-kubeconfig", PathKind(),
            "Used to request the node's certificate if --kubeconfig does not exist; that file is then written."),
    Setting("cluster.rotate_certificates", "rotateCertificates", "rotate-certificates", Boolean(),
            "Request a new client certificate from the cluster before the current one expires."),
    Setting("cluster.server_tls_bootstrap", "serverTLSBootstrap", "rotate-server-certificates", Boolean(),
            "Request the certificate of --port from the cluster and renew it; each request must be approved."),
    Setting("cluster.register_node", "registerNode", "register-node", Boolean(),
            "Create the Node object in the API server; false: it must exist."),
    Setting("cluster.register_deleted_node", "kubeletx.registerDeletedNode", "register-deleted-node", Boolean(),
            "Register a Node again at once when it is deleted; false: at the next start."),
    Setting("cluster.register_schedulable", "kubeletx.registerSchedulable", "register-schedulable", Boolean(),
            "Register the node so that pods may be scheduled to it at once."),
    Setting("cluster.register_with_taints", "registerWithTaints", "register-with-taints", Taints(),
            "Taints that the Node gets when it is registered, as key=value:effect,..."),
    Setting("cluster.taint_kubeconfig", "kubeletx.taintKubeconfig", "taint-kubeconfig", PathKind(),
            "Credentials for taints of workload types that have no ready runtime (deploy/taints.yaml)."),
    Setting("cluster.report_seconds", "nodeStatusReportFrequency", "node-status-report-frequency",
            _period(300.0), "How often node status is sent when nothing changes."),
    Setting("cluster.lease_seconds", "nodeLeaseDurationSeconds", "", Integer(low=1, zero_is_unset=True),
            "Duration of the node's lease in seconds; it is renewed after a quarter of that."),
    Setting("cluster.qps", "kubeAPIQPS", "kube-api-qps", Integer(), "Requests a second to the API server; 0: no limit."),
    Setting("cluster.burst", "kubeAPIBurst", "kube-api-burst", Integer(zero_is_unset=True), "Requests allowed in a burst above --kube-api-qps."),
    Setting("cluster.event_qps", "eventRecordQPS", "event-qps", Integer(),
            "Events a second to the API server; 0: no limit."),
    Setting("cluster.event_burst", "eventBurst", "event-burst", Integer(zero_is_unset=True), "Events allowed in a burst above --event-qps."),
    # node
    Setting("node.hostname_override", "kubeletx.hostnameOverride", "hostname-override", String(optional=True),
            "The node's name, instead of the host's name."),
    Setting("node.node_ip", "kubeletx.nodeIP", "node-ip", Items(),
            "The node's address, or one for each IP family joined by a comma. Default, or 0.0.0.0: an address of "
            "the default route, preferably IPv4; '::': preferably IPv6."),
    Setting("node.labels", "kubeletx.nodeLabels", "node-labels", Pairs(), "Labels of the node, as a=1,b=2."),
    Setting("node.max_pods", "maxPods", "max-pods", Integer(low=1, zero_is_unset=True), "The largest number of pods on this node."),
    Setting("node.pods_per_core", "podsPerCore", "pods-per-core", Integer(),
            "The largest number of pods for each core; 0: no such limit."),
    Setting("node.readiness_policy", "kubeletx.nodeReadinessPolicy", "node-readiness-policy",
            Choice(("partial", "all", "primary")),
            "Which runtimes must be ready for the node to be Ready: at least one, all, or the first listed."),
    Setting("node.status_update_seconds", "nodeStatusUpdateFrequency", "node-status-update-frequency",
            _period(10.0), "How often node status is computed."),
    Setting("node.system_reserved", "systemReserved", "system-reserved", Pairs(),
            "Resources kept for the system, as cpu=200m,memory=1Gi."),
    Setting("node.kube_reserved", "kubeReserved", "kube-reserved", Pairs(),
            "Resources kept for the node's agents, as cpu=200m,memory=1Gi."),
    Setting("node.provider_id", "providerID", "provider-id", String(optional=True),
            "ID of the machine at its cloud provider."),
    Setting("node.cloud_provider", "kubeletx.cloudProvider", "cloud-provider", Choice((EXTERNAL,), optional=True),
            "external: register with the taint that a cloud controller removes; the controller sets the addresses."),
    Setting("node.max_images", "nodeStatusMaxImages", "node-status-max-images", Integer(low=-1),
            "How many images the node's status lists, largest first; -1: all."),
    Setting("node.fail_swap_on", "failSwapOn", "fail-swap-on", Boolean(),
            "Refuse to start while the machine has swap (the kubelet's default is true)."),
    # pods
    Setting("pods.sync_seconds", "syncFrequency", "sync-frequency", Duration(zero_means=60.0, nullable=False),
            "Runtimes with events are also listed completely, after one to five times this period."),
    Setting("pods.max_restart_period_seconds", "crashLoopBackOff.maxContainerRestartPeriod", "",
            Duration(low=1.0, high=300.0), "Cap of the crash-loop back-off."),
    Setting("pods.allowed_unsafe_sysctls", "allowedUnsafeSysctls", "allowed-unsafe-sysctls", Items(text=False),
            "Unsafe sysctls that pods may set; a name may end in *."),
    Setting("pods.seccomp_default", "seccompDefault", "seccomp-default", Boolean(),
            "Give containers without a seccomp profile the runtime's default one."),
    Setting("pods.pids_limit", "podPidsLimit", "pod-max-pids", Integer(low=-(2**63), high=2**63 - 1),
            "The largest number of processes in a pod; -1: no limit per pod."),
    Setting("pods.swap_behavior", "memorySwap.swapBehavior", "", Choice(("NoSwap", "LimitedSwap"), optional=True),
            "LimitedSwap: burstable pods get a share of the machine's swap (cgroup v2). Default: NoSwap."),
    Setting("pods.standby_streams", "kubeletx.standbyStreams", "", Choice(("thaw", "refuse")),
            "thaw: exec, attach and each forwarded connection wake a frozen pod. refuse: they fail, and it stays frozen."),
    Setting("pods.standby_delay_seconds", "kubeletx.standbyDelay", "", Duration(),
            "Time for which a woken pod runs on after its last exec, attach or forwarded connection."),
    Setting("pods.standby_requests_percent", "kubeletx.standbyRequestsPercent", "", PERCENT,
            "Share of requests that counts at admission: CPU of frozen pods, CPU and memory of hibernated ones."),
    # network
    Setting("network.cni_conf_dir", "kubeletx.cniConfDir", "cni-conf-dir", PathKind(),
            "CNI configuration for runtimes that do not call CNI themselves."),
    Setting("network.cni_bin_dirs", "kubeletx.cniBinDir", "cni-bin-dir", Items(paths=True),
            "Directories of CNI plugins, searched in order."),
    Setting("network.cluster_dns", "clusterDNS", "cluster-dns", Items(text=False), "Addresses of the cluster's DNS servers."),
    Setting("network.cluster_domain", "clusterDomain", "cluster-domain", String(), "The cluster's DNS domain."),
    Setting("network.resolv_conf", "resolvConf", "resolv-conf", PathKind(),
            "Resolver file of the node on which the resolver files of pods are based; empty: none."),
    # volumes
    Setting("volumes.plugin_dir", "volumePluginDir", "volume-plugin-dir", PathKind(empty_means=VOLUME_PLUGIN_DIR),
            "Directory of executable FlexVolume drivers, for the plugin kubeletx-flexvolume."),
    # images
    Setting("images.serialize_pulls", "serializeImagePulls", "serialize-image-pulls", Boolean(),
            "Pull one image at a time for each store."),
    Setting("images.max_parallel_pulls", "maxParallelImagePulls", "max-parallel-image-pulls",
            Integer(low=1), "How many pulls run at once when they are not serialised."),
    Setting("images.pull_qps", "registryPullQPS", "registry-qps", Integer(), "Pulls a second; 0: no limit."),
    Setting("images.pull_burst", "registryBurst", "registry-burst", Integer(zero_is_unset=True), "Pulls allowed in a burst above --registry-qps."),
    Setting("images.gc_high_percent", "imageGCHighThresholdPercent", "image-gc-high-threshold", PERCENT,
            "Disk usage in percent above which unused images are removed."),
    Setting("images.gc_low_percent", "imageGCLowThresholdPercent", "image-gc-low-threshold", PERCENT,
            "Disk usage in percent at which the removal of images stops."),
    Setting("images.minimum_gc_age_seconds", "imageMinimumGCAge", "minimum-image-ttl-duration",
            Duration(zero_means=120.0, nullable=False), "Unused images younger than this are kept."),
    Setting("images.maximum_gc_age_seconds", "imageMaximumGCAge", "", Duration(nullable=False),
            "Images unused for longer are removed regardless of disk usage; 0s: never."),
    Setting("images.verification_policy", "imagePullCredentialsVerificationPolicy", "", Choice(POLICIES),
            "Images for which a pod needs pull credentials even if they are present on the node."),
    Setting("images.verification_allowlist", "preloadedImagesVerificationAllowlist", "", Items(text=False),
            "Images, or prefixes ending in /*, that need no credentials with policy NeverVerifyAllowlistedImages."),
    Setting("images.credential_provider_config", "kubeletx.imageCredentialProviderConfig",
            "image-credential-provider-config", PathKind(),
            "CredentialProviderConfig file with the programs that supply registry credentials, or a directory of such files."),
    Setting("images.credential_provider_bin_dir", "kubeletx.imageCredentialProviderBinDir",
            "image-credential-provider-bin-dir", PathKind(),
            "Directory of the programs in --image-credential-provider-config."),
    # logs
    Setting("logs.pod_logs_dir", "podLogsDir", "pod-logs-dir", PathKind(exact=True), "Directory of container logs."),
    Setting("logs.max_size_bytes", "containerLogMaxSize", "container-log-max-size", Size(),
            "Size at which a container's log is rotated; negative: logs are not rotated."),
    Setting("logs.max_files", "containerLogMaxFiles", "container-log-max-files", Integer(low=2),
            "Log files kept for each container."),
    Setting("logs.monitor_interval_seconds", "containerLogMonitorInterval", "", Duration(low=3.0),
            "How often log sizes are checked."),
    Setting("logs.format", "logging.format", "logging-format", Choice(("text", "json")),
            "Format of the agent's own log."),
    Setting("logs.verbosity", "logging.verbosity", "v", Integer(), "Verbosity of the agent's own log; 4: debug.",
            short="v"),
    # cgroups
    Setting("cgroups.per_qos", "cgroupsPerQOS", "cgroups-per-qos", Boolean(), "Group pods' cgroups by QoS class."),
    Setting("cgroups.driver", "cgroupDriver", "cgroup-driver", Choice(("cgroupfs", "systemd"), optional=True),
            "Cgroup driver if the runtimes report none or different ones. Default: cgroupfs."),
    Setting("cgroups.root", "cgroupRoot", "cgroup-root", String(), "The parent cgroup of all pods' cgroups."),
    Setting("cgroups.cpu_cfs_quota", "cpuCFSQuota", "cpu-cfs-quota", Boolean(), "Enforce CPU limits with a quota."),
    Setting("cgroups.cpu_cfs_quota_period_seconds", "cpuCFSQuotaPeriod", "cpu-cfs-quota-period",
            Duration(low=0.001, high=1.0), "Period of the CPU quota."),
    Setting("cgroups.single_process_oom_kill", "singleProcessOOMKill", "", Boolean(),
            "Let the kernel kill one process instead of the whole container when memory runs out."),
    Setting("cgroups.enforce_allocatable", "enforceNodeAllocatable", "enforce-node-allocatable", Items(text=False),
            "pods: limit all pods together to what kubeReserved and systemReserved leave; none: no limit."),
    Setting("cgroups.fail_cgroup_v1", "failCgroupV1", "fail-cgroupv1", Boolean(),
            "Refuse to start on cgroup v1 (the kubelet's default is true)."),
    # eviction
    Setting("eviction.hard", "evictionHard", "eviction-hard", Pairs(separator="<"),
            "Thresholds, as memory.available<100Mi,nodefs.available<10%."),
    Setting("eviction.merge_defaults", "mergeDefaultEvictionSettings", "", Boolean(),
            "Use the default thresholds for signals that evictionHard does not name."),
    Setting("eviction.soft", "evictionSoft", "eviction-soft", Pairs(separator="<"),
            "Thresholds that act after their grace period, as memory.available<1.5Gi."),
    Setting("eviction.soft_grace_periods", "evictionSoftGracePeriod", "eviction-soft-grace-period", Pairs(),
            "Grace period of each soft threshold, as memory.available=1m30s."),
    Setting("eviction.minimum_reclaim", "evictionMinimumReclaim", "eviction-minimum-reclaim", Pairs(),
            "Amount above the threshold at which a pressure ends, as nodefs.available=500Mi."),
    Setting("eviction.pressure_transition_seconds", "evictionPressureTransitionPeriod",
            "eviction-pressure-transition-period", _period(300.0),
            "How long a pressure is reported after it was last seen."),
    Setting("eviction.max_pod_grace_seconds", "evictionMaxPodGracePeriod", "eviction-max-pod-grace-period",
            Integer(low=-(2**31)), "Longest grace period in seconds of pods that are evicted by a soft threshold."),
    Setting("eviction.local_limits", "localStorageCapacityIsolation", "local-storage-capacity-isolation", Boolean(),
            "Evict pods that exceed the sizeLimit of an emptyDir or their limits of ephemeral storage."),
    Setting("eviction.volume_stats_seconds", "volumeStatsAggPeriod", "volume-stats-agg-period",
            _period(60.0), "How often the disk usage of pods is measured."),
    # shutdown
    Setting("shutdown.grace_seconds", "shutdownGracePeriod", "", Duration(nullable=False),
            "How long a shutdown of the host waits for pods to end; 0s: it does not wait."),
    Setting("shutdown.critical_grace_seconds", "shutdownGracePeriodCriticalPods", "", Duration(nullable=False),
            "The part of shutdownGracePeriod reserved for critical pods, which end last."),
    Setting("shutdown.by_priority", "shutdownGracePeriodByPodPriority", "", PriorityGraces(),
            "Replaces shutdownGracePeriod and shutdownGracePeriodCriticalPods: a list of priority and shutdownGracePeriodSeconds."),
    # server
    Setting("server.healthz_bind_address", "healthzBindAddress", "healthz-bind-address", String(empty_is_unset=True),
            "Address of the health endpoint."),
    Setting("server.healthz_port", "healthzPort", "healthz-port", PORT, "Port of the health endpoint; 0: off."),
    Setting("server.read_only_port", "readOnlyPort", "read-only-port", PORT,
            "Port that serves pods and metrics without authentication; 0: off."),
    Setting("server.address", "address", "address", String(empty_is_unset=True), "Address of --port and --read-only-port."),
    Setting("server.enabled", "enableServer", "enable-server", Boolean(), "Serve the kubelet's API on --port."),
    Setting("server.port", "port", "port", PORT,
            "Port of the kubelet's API, served when there is a --kubeconfig or when this is set; 0: off."),
    Setting("server.cert_dir", "", "cert-dir", PathKind(),
            "Directory of certificates. Default: pki below the root directory."),
    Setting("server.tls_cert_file", "tlsCertFile", "tls-cert-file", PathKind(),
            "Certificate of --port with its chain, reloaded when the file changes. Default: one created in --cert-dir."),
    Setting("server.tls_key_file", "tlsPrivateKeyFile", "tls-private-key-file", PathKind(),
            "Key of --tls-cert-file."),
    Setting("server.tls_cipher_suites", "tlsCipherSuites", "tls-cipher-suites", Items(text=False),
            "Ciphers of TLS 1.2 by their IANA names. Default: strong ones."),
    Setting("server.tls_min_version", "tlsMinVersion", "tls-min-version", Choice(("VersionTLS12", "VersionTLS13")),
            "Oldest TLS version accepted on --port."),
    Setting("server.debugging_handlers", "enableDebuggingHandlers", "enable-debugging-handlers", Boolean(),
            "Serve logs, commands, port-forward and running pods on --port."),
    Setting("server.system_log_handler", "enableSystemLogHandler", "", Boolean(),
            "Serve the files below /var/log on --port to users with access to nodes/log."),
    Setting("server.system_log_query", "enableSystemLogQuery", "", Boolean(),
            "With enableSystemLogHandler: let /logs/?query=SERVICE read the journal by journalctl."),
    Setting("server.debug_flags_handler", "enableDebugFlagsHandler", "", Boolean(),
            "Allow changing --v while the agent runs, by PUT to /debug/flags/v on --port."),
    Setting("server.stream_idle_seconds", "streamingConnectionIdleTimeout", "streaming-connection-idle-timeout",
            _period(14400.0), "A stream without data for this time is closed."),
    # auth
    Setting("auth.client_ca_file", "authentication.x509.clientCAFile", "client-ca-file", PathKind(),
            "Certificate authorities whose client certificates are accepted on --port (CN is the user, O the groups)."),
    Setting("auth.webhook", "authentication.webhook.enabled", "authentication-token-webhook", Boolean(),
            "Let the API server review bearer tokens."),
    Setting("auth.webhook_cache_seconds", "authentication.webhook.cacheTTL", "authentication-token-webhook-cache-ttl",
            _period(120.0), "How long the review of a token is cached."),
    Setting("auth.anonymous", "authentication.anonymous.enabled", "anonymous-auth", Boolean(),
            "Treat requests without credentials as those of user system:anonymous."),
    Setting("auth.mode", "authorization.mode", "authorization-mode", Choice(("Webhook", "AlwaysAllow")),
            "Webhook: the API server authorizes each request. AlwaysAllow: every authenticated request is allowed."),
    Setting("auth.allow_cache_seconds", "authorization.webhook.cacheAuthorizedTTL",
            "authorization-webhook-cache-authorized-ttl", _period(300.0),
            "How long the answer that a request is allowed is cached."),
    Setting("auth.deny_cache_seconds", "authorization.webhook.cacheUnauthorizedTTL",
            "authorization-webhook-cache-unauthorized-ttl", _period(30.0),
            "How long the answer that a request is denied is cached."),
    # process
    Setting("process.oom_score_adj", "oomScoreAdj", "oom-score-adj",
            Integer(low=-1000, high=1000),
            "oom_score_adj of the agent. Default: unchanged; -999 when it runs as the kubelet."),
    Setting("process.stop_seconds", "kubeletx.stopTimeout", "", Duration(zero_means=30.0),
            "How long the agent may take to end after SIGTERM; after that it writes a dump and exits with code 4."),
    Setting("process.max_open_files", "maxOpenFiles", "max-open-files", Integer(high=2**63 - 1, zero_is_unset=True),
            "Limit of open files of the agent. Default: the hard limit; 1000000 when it runs as the kubelet."),
)  # fmt: skip

BY_KEY: Final = {setting.key: setting for setting in SETTINGS if setting.key}
BY_FLAG: Final = {setting.flag: setting for setting in SETTINGS if setting.flag}
BY_PATH: Final = {setting.path: setting for setting in SETTINGS}
