"""The rest of the kubelet's settings: fields that are ignored by name, flags that are refused by name.

A KubeletConfiguration written for a stock kubelet is accepted: what has no meaning here is listed, so that
nobody believes it took effect. A flag is refused instead, since whoever types it wants its effect.
Source: kubelet v1.36, config/v1beta1/types.go and cmd/kubelet/app/options.
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> list[str]:
    return text.split()


IGNORED_FIELDS: Final = frozenset(
    _words("""
    tlsCurvePreferences imagePullCredentialsVerificationPolicy
    preloadedImagesVerificationAllowlist enableContentionProfiling oomScoreAdj
    kubeletCgroups systemCgroups
    cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod draManagerReconcilePeriod
    memoryManagerPolicy topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions qosReserved
    hairpinMode podCIDR runOnce nodeStatusMaxImages maxOpenFiles contentType
    enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains iptablesMasqueradeBit
    iptablesDropBit featureGates failSwapOn memorySwap containerLogMaxWorkers
    configMapAndSecretChangeDetectionStrategy reservedSystemCPUs showHiddenMetricsForVersion
    systemReservedCgroup kubeReservedCgroup volumePluginDir kernelMemcgNotification
    reservedMemory enableProfilingHandler memoryThrottlingFactor
    memoryReservationPolicy tracing enforceNodeAllocatable
    userNamespaces logging.flushFrequency logging.vmodule logging.options
    """)
)
"""Fields of KubeletConfiguration that are read and change nothing."""

_NO_API: Final = "kubeletx talks to no API server yet; give it manifests with --pod-manifest-path"
_NO_MANAGER: Final = "kubeletx pins no CPUs, memory or devices"
_DROPPED: Final = "it has no effect in present kubelets either; leave it out"

REFUSED_FLAGS: Final[dict[str, str]] = {
    **dict.fromkeys(
        _words(
            "kube-api-content-type register-schedulable node-lease-duration-seconds "
            "configmap-and-secret-change-detection-strategy "
            "enable-controller-attach-detach pod-cidr"
        ),
        _NO_API,
    ),
    **dict.fromkeys(
        _words(
            "cpu-manager-policy cpu-manager-policy-options cpu-manager-reconcile-period memory-manager-policy "
            "reserved-memory topology-manager-policy topology-manager-policy-options topology-manager-scope "
            "reserved-cpus qos-reserved"
        ),
        _NO_MANAGER,
    ),
    **dict.fromkeys(
        _words(
            "container-runtime pod-infra-container-image cloud-config network-plugin experimental-allocatable-ignore-"
            "eviction keep-terminated-pod-volumes minimum-container-ttl-duration maximum-dead-containers "
            "maximum-dead-containers-per-container iptables-masquerade-bit iptables-drop-bit hairpin-mode "
            "make-iptables-util-chains non-masquerade-cidr runonce really-crash-for-testing "
            "lock-file exit-on-lock-contention"
        ),
        _DROPPED,
    ),
    **dict.fromkeys(
        _words("system-reserved-cgroup kube-reserved-cgroup kubelet-cgroups system-cgroups runtime-cgroups"),
        "only the cgroup of pods is managed; set --cgroup-root if it must move",
    ),
    "contention-profiling": "Python has no such profile; use py-spy",
    "enforce-node-allocatable": "always pods: their cgroup is limited to what kubeReserved and systemReserved leave",
    "cloud-provider": "kubeletx knows no clouds; give --node-ip and --provider-id",
    "config-file": "the flag is --config",
    "feature-gates": "kubeletx has no feature gates",
    "fail-swap-on": "kubeletx starts with swap on and gives pods none of it",
    "oom-score-adj": "set OOMScoreAdjust= in the systemd unit",
    "max-open-files": "set LimitNOFILE= in the systemd unit",
    "protect-kernel-defaults": "kubeletx changes no kernel settings",
    "volume-plugin-dir": "FlexVolume drivers are not supported",
    "node-status-max-images": "all images are listed by 'kubeletx get images'",
    "kernel-memcg-notification": "memory pressure is learnt from the kernel's pressure files, where there are any",
    "vmodule": "use --v=4 for debug messages",
    "log-flush-frequency": "the log is never buffered",
    "log-json-info-buffer-size": "the log is never buffered",
    "log-json-split-stream": "the log goes to standard error",
    "log-text-info-buffer-size": "the log is never buffered",
    "log-text-split-stream": "the log goes to standard error",
}
"""Flag without dashes to what to do instead."""
