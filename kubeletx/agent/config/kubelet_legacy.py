"""`LEGACY_OPTIONS`: flags of kubelets v1.15 to v1.35 that v1.36 no longer has.

With an old command line the agent either starts, or refuses to start and gives the reason. A removed flag whose field
v1.36 still has is in `kubelet_options`, not here. An old flag that has an effect, such as --register-schedulable, is in
`tree`.

Source: kubelet v1.15 to v1.35, cmd/kubelet/app/options; kubernetes CHANGELOG-1.15 to 1.35.
"""

from __future__ import annotations

from typing import Final

from .kinds import Boolean, Integer, Items, SettingKind, String
from .kinds_kubelet import KubeletOption, Opaque

_TEXT: Final = String()
_BOOL: Final = Boolean()
_ANY_INT: Final = Integer(low=-(2**31))

_NO_DOCKERSHIM: Final = "there is no dockershim; --container-runtime-endpoint names the runtime"
_NETWORK: Final = "the container runtime sets up the network of containers, by its own CNI configuration"
_LOG: Final = "the agent logs to standard error, where the service manager collects it"
_NO_CLOUD: Final = "clouds have their own controllers; write --cloud-provider=external and leave it out"


def _legacy(flag: str, kind: SettingKind, words: str, *silent: object) -> KubeletOption:
    return KubeletOption(flag=flag, kind=kind, words=words, silent=silent)


def _refused(flag: str, kind: SettingKind, words: str, *silent: object) -> KubeletOption:
    return KubeletOption(flag=flag, kind=kind, words=words, silent=silent, refused=True)


_RUNTIME: Final = (
    KubeletOption(
        flag="container-runtime",
        kind=_TEXT,
        words="every runtime is remote; --container-runtime-endpoint names the runtimes",
        refused=True,
        accepted=("remote",),
        fix="kubeletx has remote runtimes only; write remote, and name them with --container-runtime-endpoint",
    ),
    _legacy("pod-infra-container-image", _TEXT,
            "the runtime's own configuration names its sandbox image (containerd: sandbox_image); it is never "
            "collected"),
    _legacy("docker-endpoint", _TEXT, _NO_DOCKERSHIM, "unix:///var/run/docker.sock"),
    _legacy("experimental-dockershim", _BOOL, _NO_DOCKERSHIM, False),
    _legacy("experimental-dockershim-root-directory", _TEXT, _NO_DOCKERSHIM, "/var/lib/dockershim"),
    _legacy("image-pull-progress-deadline", Opaque(), "the container runtime decides when a pull has failed",
            "1m0s", "1m"),
    _legacy("redirect-container-streaming", _BOOL, "streams pass through the agent", False),
    _refused("azure-container-registry-config", _TEXT,
             "credentials of registries come from programs; write --image-credential-provider-config"),
)  # fmt: skip

_NETWORK_FLAGS: Final = (
    KubeletOption(
        flag="network-plugin",
        kind=_TEXT,
        words=_NETWORK,
        refused=True,
        accepted=("cni",),
        fix="kubeletx has no network plugins of its own; write cni, and configure CNI in the container runtime",
    ),
    _legacy("network-plugin-mtu", _ANY_INT, _NETWORK, 0),
    _legacy("cni-cache-dir", _TEXT, _NETWORK, "/var/lib/cni/cache"),
    _legacy("non-masquerade-cidr", _TEXT, "kubeletx makes no iptables rules", "10.0.0.0/8"),
)  # fmt: skip

_PODS: Final = (
    _refused("allow-privileged", _BOOL,
             "an admission policy of the cluster decides which pods may be privileged; leave it out", True),
    *(_refused(flag, Items(), "an admission policy of the cluster controls the use of host namespaces; leave it out",
               ("*",))
      for flag in ("host-network-sources", "host-pid-sources", "host-ipc-sources")),
    _refused("seccomp-profile-root", _TEXT,
             "profiles are read from seccomp below the root directory; move them there and leave it out"),
    _refused("keep-terminated-pod-volumes", _BOOL, "volumes of ended pods are always released; leave it out", False),
    _refused("master-service-namespace", _TEXT,
             "variables of the kubernetes service come from namespace default; leave it out", "default"),
    _legacy("experimental-check-node-capabilities-before-mount", _BOOL,
            "a mount that needs a missing program fails by name", False),
)  # fmt: skip

_PROCESS: Final = (
    _refused("cloud-config", _TEXT, _NO_CLOUD),
    _refused("dynamic-config-dir", _TEXT, "configuration comes from a file; write --config"),
    _refused("experimental-bootstrap-kubeconfig", _TEXT, "write --bootstrap-kubeconfig"),
    _refused("config-file", _TEXT, "write --config"),
    _legacy("bootstrap-checkpoint-path", _TEXT, "the agent finds running pods by its own records"),
    _legacy("containerized", _BOOL, "the agent runs in the mount namespace in which it was started", False),
    _legacy("really-crash-for-testing", _BOOL, "an error of a part restarts this part and not the agent", False),
    _legacy("chaos-chance", Opaque(), "the agent's requests are not disturbed", "0", "0.0"),
    _legacy("experimental-kernel-memcg-notification", _BOOL,
            "memory is checked every ten seconds, and when the kernel reports pressure", False),
    _legacy("enable-cadvisor-json-endpoints", _BOOL, "/spec is not served, and /stats/summary always is", False),
)  # fmt: skip

_LOGS: Final = (
    _legacy("logtostderr", _BOOL, _LOG, True),
    _legacy("alsologtostderr", _BOOL, _LOG, True, False),
    _legacy("stderrthreshold", Opaque(), _LOG, "0", "1", "2", "INFO", "WARNING", "ERROR"),
    _legacy("log-dir", _TEXT, _LOG),
    _legacy("log-file", _TEXT, _LOG),
    _legacy("log-file-max-size", _ANY_INT, _LOG, 1800),
    _legacy("one-output", _BOOL, _LOG, False),
    _legacy("add-dir-header", _BOOL, "lines of the log name no source file", False),
    _legacy("skip-headers", _BOOL, "each line of the log has its time and level", False),
    _legacy("skip-log-headers", _BOOL, _LOG, False),
    _legacy("log-backtrace-at", _TEXT, "an unexpected error is logged with its traceback", ":0"),
    _legacy("experimental-logging-sanitization", _BOOL, "the agent logs no values of secrets", False),
)  # fmt: skip

_DOCKER: Final = (
    _legacy("docker-only", _BOOL, _NO_DOCKERSHIM, False),
    _legacy("docker-tls", _BOOL, _NO_DOCKERSHIM, False),
    *(_legacy(flag, _TEXT, _NO_DOCKERSHIM, *silent)
    for flag, *silent in (
        ("docker", "unix:///var/run/docker.sock"),
        ("docker-env-metadata-whitelist",),
        ("docker-root", "/var/lib/docker"),
        ("docker-tls-ca", "ca.pem"),
        ("docker-tls-cert", "cert.pem"),
        ("docker-tls-key", "key.pem"),
    )),
)  # fmt: skip

LEGACY_OPTIONS: Final = (*_RUNTIME, *_NETWORK_FLAGS, *_PODS, *_PROCESS, *_LOGS, *_DOCKER)
