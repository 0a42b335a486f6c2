"""`KUBELET_OPTIONS`: the kubelet's settings that have no effect in kubeletx, in the order of the reference (`script.cli_reference`).

See `KubeletOption` for the treatment of their values.
"""

from __future__ import annotations

from typing import Final

from .kinds import Boolean, Choice, Duration, Integer, Pairs, SettingKind, Size, String
from .kinds_kubelet import Curves, Fraction, KubeletOption, Modules, Opaque, Switches
from .kubelet_legacy import LEGACY_OPTIONS

_TEXT: Final = String()
_BOOL: Final = Boolean()
_ANY_INT: Final = Integer(low=-(2**31))
_TIME: Final = Opaque(like=Duration())
_SIZE: Final = Opaque(like=Size(), numbers=True)
_BIT: Final = Integer(high=31)

_BOTH: Final = (True, False)
_PINS_NOTHING: Final = "kubeletx pins no CPUs, memory or devices to pods; leave it out"
_NO_RULES: Final = "kubeletx makes no iptables rules; the network plugin and kube-proxy make theirs"
_OWN_CGROUP: Final = "the agent manages only the cgroups of pods; systemd manages the cgroups of services"
_UNBUFFERED: Final = "each line of the log is written at once, to standard error"
_USAGE: Final = (
    "usage is read from the kernel and from the runtimes, not by cAdvisor; the option changes nothing"
)


def _option(
    field: str, flag: str, kind: SettingKind, words: str, *silent: object, refused: bool = False
) -> KubeletOption:
    return KubeletOption(field=field, flag=flag, kind=kind, silent=silent, words=words, refused=refused)


def _refused(field: str, flag: str, kind: SettingKind, words: str, *silent: object) -> KubeletOption:
    return _option(field, flag, kind, words, *silent, refused=True)


_MANAGERS: Final = (
    _refused("cpuManagerPolicy", "cpu-manager-policy", _TEXT, _PINS_NOTHING, "none"),
    _refused("cpuManagerPolicyOptions", "cpu-manager-policy-options", Pairs(), _PINS_NOTHING),
    _option("cpuManagerReconcilePeriod", "cpu-manager-reconcile-period", Opaque(like=Duration(zero_is_unset=True, nullable=False, forgives_negative=True)),
            "no CPUs are pinned, so nothing is reconciled", "0s", "10s"),
    _refused("memoryManagerPolicy", "memory-manager-policy", _TEXT, _PINS_NOTHING, "None"),
    _refused("reservedMemory", "reserved-memory", Opaque(),
             "kubeletx cannot reserve memory of single NUMA nodes; reserve memory with systemReserved"),
    _refused("reservedSystemCPUs", "reserved-cpus", _TEXT,
             "kubeletx cannot reserve single CPUs; reserve their number with systemReserved, as cpu: \"2\""),
    _refused("topologyManagerPolicy", "topology-manager-policy", _TEXT, _PINS_NOTHING, "none"),
    _refused("topologyManagerPolicyOptions", "topology-manager-policy-options", Pairs(), _PINS_NOTHING),
    _refused("topologyManagerScope", "topology-manager-scope", _TEXT, _PINS_NOTHING, "container"),
    _refused("qosReserved", "qos-reserved", Pairs(),
             "kubeletx cannot reserve memory for a QoS class; leave it out"),
)  # fmt: skip

_CGROUPS: Final = (
    _option("kubeletCgroups", "kubelet-cgroups", _TEXT, _OWN_CGROUP),
    _option("systemCgroups", "system-cgroups", _TEXT, _OWN_CGROUP),
    _option("", "runtime-cgroups", _TEXT, _OWN_CGROUP),
    _option("kubeReservedCgroup", "kube-reserved-cgroup", _TEXT,
            "that cgroup gets no limit; kubeReserved only lowers what pods may use"),
    _option("systemReservedCgroup", "system-reserved-cgroup", _TEXT,
            "that cgroup gets no limit; systemReserved only lowers what pods may use"),
    _refused("memoryReservationPolicy", "", Choice(("None", "TieredReservation")),
             "kubeletx sets no memory.min and memory.low of pods; leave it out", "None"),
    _option("memoryThrottlingFactor", "", Fraction(), "memory.high of containers is not set", 0.9),
    _option("userNamespaces.idsPerPod", "", Integer(low=2**16, high=2**32 - 1, step=2**16),
            "each pod with a user namespace gets 65536 ids",
            65536),
)  # fmt: skip

_NETWORK: Final = (
    _option("hairpinMode", "hairpin-mode", Choice(("promiscuous-bridge", "hairpin-veth", "none")),
            "the CNI configuration decides about hairpin traffic, as with a kubelet", "promiscuous-bridge", "none"),
    _option("makeIPTablesUtilChains", "make-iptables-util-chains", _BOOL, _NO_RULES, *_BOTH),
    _option("iptablesDropBit", "iptables-drop-bit", _BIT, _NO_RULES, 15),
    _option("iptablesMasqueradeBit", "iptables-masquerade-bit", _BIT, _NO_RULES, 14),
    _option("contentType", "kube-api-content-type", _TEXT,
            "requests to the API server are JSON", "application/json", "application/vnd.kubernetes.protobuf"),
    _option("tlsCurvePreferences", "", Curves(), "OpenSSL chooses the curves of --port"),
)  # fmt: skip

_STORAGE: Final = (
    _option("enableControllerAttachDetach", "enable-controller-attach-detach", _BOOL,
            "volumes are always attached by the node itself", *_BOTH),
    _option("", "experimental-mounter-path", _TEXT, "volumes are mounted by the system's own mount helpers"),
    _option("", "experimental-allocatable-ignore-eviction", _BOOL,
            "hard eviction thresholds are still subtracted from Allocatable", False),
    _option("configMapAndSecretChangeDetectionStrategy", "", Choice(("Watch", "Cache", "Get")),
            "config maps and secrets are always watched", "Watch"),
    _option("", "minimum-container-ttl-duration", _TIME,
            "the last ended container of each name is kept, older ones are removed at once", "0s"),
    _option("", "maximum-dead-containers-per-container", _ANY_INT,
            "the last ended container of each name is kept, older ones are removed at once", 1),
    _option("", "maximum-dead-containers", _ANY_INT,
            "the last ended container of each name is kept, without a limit on their number", -1),
    _option("containerLogMaxWorkers", "", Integer(low=1), "logs are rotated one after the other", 1),
)  # fmt: skip

_PROCESS: Final = (
    _refused("runOnce", "runonce", _BOOL, "kubeletx runs until it is stopped; leave it out", False),
    _option("protectKernelDefaults", "protect-kernel-defaults", _BOOL,
            "kernel settings are neither checked nor changed", False),
    _option("kernelMemcgNotification", "kernel-memcg-notification", _BOOL,
            "memory is checked every ten seconds, and when the kernel reports pressure", False),
    _option("featureGates", "feature-gates", Switches(),
            "kubeletx has no feature gates; docs/kubelet-parity.md lists its features"),
    _option("", "lock-file", _TEXT, "the agent locks its root directory instead"),
    _option("", "exit-on-lock-contention", _BOOL, "the agent keeps running if another process opens the lock file", False),
    _option("enableContentionProfiling", "contention-profiling", _BOOL,
            "there are no profiles of locks; py-spy shows where the agent spends its time", False),
    _option("enableProfilingHandler", "", _BOOL, "there is no /debug/pprof", *_BOTH),
    _option("showHiddenMetricsForVersion", "", Choice(("1.35",)), "no metric is hidden"),
    _option("logging.flushFrequency", "log-flush-frequency", Opaque(like=Duration(), numbers=True), _UNBUFFERED, 0, "0s", "5s", 5_000_000_000),
    _option("logging.vmodule", "vmodule", Modules(), "--v holds for every module; 4 means debug messages"),
    _option("logging.options.json.infoBufferSize", "log-json-info-buffer-size", _SIZE, _UNBUFFERED, 0, "0"),
    _option("logging.options.json.splitStream", "log-json-split-stream", _BOOL, _UNBUFFERED, False),
    _option("logging.options.text.infoBufferSize", "log-text-info-buffer-size", _SIZE, _UNBUFFERED, 0, "0"),
    _option("logging.options.text.splitStream", "log-text-split-stream", _BOOL, _UNBUFFERED, False),
)  # fmt: skip

_CADVISOR: Final = (
    _option("", "enable-load-reader", _BOOL, _USAGE, False),
    _option("", "log-cadvisor-usage", _BOOL, _USAGE, False),
    _option("", "storage-driver-secure", _BOOL, _USAGE, False),
    *(_option("", flag, Opaque(), _USAGE, *silent)
    for flag, *silent in (
        ("application-metrics-count-limit", "100"),
        ("boot-id-file", "/proc/sys/kernel/random/boot_id"),
        ("container-hints", "/etc/cadvisor/container_hints.json"),
        ("containerd", "/run/containerd/containerd.sock"),
        ("containerd-namespace", "k8s.io"),
        ("event-storage-age-limit", "default=0"),
        ("event-storage-event-limit", "default=0"),
        ("global-housekeeping-interval", "1m0s", "1m"),
        ("housekeeping-interval", "10s"),
        ("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id"),
        ("max-housekeeping-interval", "15s"),
        ("storage-driver-buffer-duration", "1m0s", "1m"),
        ("storage-driver-db", "cadvisor"),
        ("storage-driver-host", "localhost:8086"),
        ("storage-driver-password", "root"),
        ("storage-driver-table", "stats"),
        ("storage-driver-user", "root"),
    )),
)  # fmt: skip

KUBELET_OPTIONS: Final = (
    *_MANAGERS, *_CGROUPS, *_NETWORK, *_STORAGE, *_PROCESS, *_CADVISOR,
)  # fmt: skip

OPTION_BY_FIELD: Final = {option.field: option for option in KUBELET_OPTIONS if option.field}
OPTION_BY_FLAG: Final = {option.flag: option for option in (*KUBELET_OPTIONS, *LEGACY_OPTIONS) if option.flag}
