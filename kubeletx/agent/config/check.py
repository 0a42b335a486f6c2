"""Checks of the whole configuration: relations between settings, and formats that `kinds` does not check."""

from __future__ import annotations

import importlib.util
import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Final

from kubeletx.api import InvalidConfig
from kubeletx.kube.text import quantity
from kubeletx.kube.text.duration import parse_duration
from kubeletx.node.thresholds import SIGNALS
from kubeletx.pods.admission import is_namespaced
from kubeletx.runtimes.images.verification import NEVER_ALLOWLISTED, check_pattern
from kubeletx.server.access.ciphers import CIPHERS, TLS13_CIPHERS

from .ports import kubelet_port, split_address
from .tree import BY_PATH, AgentConfig, UnusedSetting

_RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")
_SIGNALS_FIX: Final = f"use one of {', '.join(sorted(SIGNALS))}"
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LEVELS: Final = (
    "none",
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
)
"""Values of enforceNodeAllocatable; only the first two take effect."""
_RESERVED_CGROUPS: Final = {
    "system-reserved": ("systemReservedCgroup", "--system-reserved-cgroup"),
    "kube-reserved": ("kubeReservedCgroup", "--kube-reserved-cgroup"),
}
_OWN_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN_LABELS: Final = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_GRPC_SCHEMES: Final = ("dns", "unix", "unix-abstract")
_OTLP: Final = "exporter.otlp.proto.grpc"
_OFF: Final = ("0%", "100%")
_PERCENTAGE: Final = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?%")
_SYSCTL: Final = re.compile(r"([a-z0-9]([a-z0-9_-]*[a-z0-9])?[./])*([a-z0-9][a-z0-9_-]*)?[a-z0-9*]")
_NODE_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")


def check(config: AgentConfig) -> Iterator[InvalidConfig]:
    """Yield an error for each invalid setting, in the order of `_RULES`."""
    for rule in _RULES:
        yield from rule(config)


def _error(config: AgentConfig, path: str, problem: str, fix: str) -> InvalidConfig:
    setting = BY_PATH[path]
    origin = config.origins.get(path, "default")
    if _is_flag(config, path):
        return InvalidConfig(field=f"--{setting.flag}", problem=problem, fix=fix)
    return InvalidConfig(obj=origin, field=setting.key, problem=problem, fix=fix)


def _sources(config: AgentConfig) -> Iterator[InvalidConfig]:
    url = config.sources.manifest_url
    if url is not None and not url.startswith(("http://", "https://")):
        yield _error(
            config, "sources.manifest_url", f"{url!r} is not an http or https URL", "write http://..."
        )


def _cluster(config: AgentConfig) -> Iterator[InvalidConfig]:
    cluster = config.cluster
    if cluster.bootstrap_kubeconfig is not None and cluster.kubeconfig is None:
        yield _error(
            config,
            "cluster.bootstrap_kubeconfig",
            "is set without a kubeconfig to write",
            "set --kubeconfig too",
        )
    for taint in cluster.register_with_taints:
        if not is_label(taint.key, taint.value or ""):
            problem = f"{taint.key}={taint.value or ''} is not a taint"
            yield _error(config, "cluster.register_with_taints", problem, "see the syntax of labels")
    if cluster.taint_kubeconfig is not None and cluster.kubeconfig is None:
        problem = "is set without a kubeconfig of the node"
        yield _error(config, "cluster.taint_kubeconfig", problem, "set --kubeconfig too")


def _node(config: AgentConfig) -> Iterator[InvalidConfig]:
    node = config.node
    name = node.hostname_override
    if name is not None and not (_NODE_NAME.fullmatch(name.strip().lower()) and len(name) <= 253):
        problem = f"{name!r} is not a node name"
        yield _error(config, "node.hostname_override", problem, "use lower-case letters, digits, '-' and '.'")
    yield from _addresses(config, "node.node_ip", node.node_ip)
    families = [ipaddress.ip_address(ip).version for ip in node.node_ip if _is_address(ip)]
    if len(families) != len(set(families)):
        yield _error(config, "node.node_ip", "names two addresses of one family", "give one for each family")
    for key, value in node.labels.items():
        if not is_label(key, value):
            yield _error(config, "node.labels", f"{key}={value} is not a label", "see the syntax of labels")
        elif config.cluster.kubeconfig is not None and not _may_label(key):
            problem = f"{key} is not a label that a node may give itself"
            fix = (
                f"leave it to 'kubectl label node', or use {', '.join(_OWN_DOMAINS)} or a domain of your own"
            )
            yield _error(config, "node.labels", problem, fix)
    for path, reserved in (
        ("node.system_reserved", node.system_reserved),
        ("node.kube_reserved", node.kube_reserved),
    ):
        yield from _reserved(config, path, reserved)


def is_label(key: str, value: str) -> bool:
    """Return True if label `key` with this value is valid by the syntax rules of Kubernetes."""
    prefix, slash, name = key.rpartition("/")
    if slash and not _LABEL_PREFIX.fullmatch(prefix):
        return False
    return bool(_LABEL_NAME.fullmatch(name)) and (not value or bool(_LABEL_NAME.fullmatch(value)))


def _may_label(key: str) -> bool:
    """Return True if admission plugin NodeRestriction lets a node set this label on itself.

    The registration of a node with a label that it may not set fails. Source: kubelet, cmd/kubelet/app/options
    ValidateKubeletFlags; k8s.io/kubelet, pkg/apis/well_known_labels.go.
    """
    domain = key.rpartition("/")[0]
    if key in _OWN_LABELS or not _is_below(domain, ("kubernetes.io", "k8s.io")):
        return True
    return _is_below(domain, _OWN_DOMAINS)


def _is_below(domain: str, others: tuple[str, ...]) -> bool:
    return any(domain == zone or domain.endswith(f".{zone}") for zone in others)


def _reserved(config: AgentConfig, path: str, reserved: dict[str, str]) -> Iterator[InvalidConfig]:
    for resource, text in reserved.items():
        if resource not in _RESERVABLE:
            yield _error(config, path, f"{resource!r} cannot be reserved", f"use {', '.join(_RESERVABLE)}")
        elif not _is_quantity(text):
            yield _error(config, path, f"{resource}: {text!r} is not a quantity", "write it like 200m or 1Gi")


def _network(config: AgentConfig) -> Iterator[InvalidConfig]:
    if config.network.pod_cidr is None or config.cluster.kubeconfig is not None:
        return
    for text in config.network.pod_cidr.split(","):
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            fix = "write it like 10.0.0.0/24"
            yield _error(config, "network.pod_cidr", f"{text!r} is not a range of addresses", fix)


def _pods(config: AgentConfig) -> Iterator[InvalidConfig]:
    for pattern in config.pods.allowed_unsafe_sysctls:
        if not _SYSCTL.fullmatch(pattern) or not is_namespaced(pattern):
            fix = "name sysctls of the network or IPC namespace, such as net.core.somaxconn or kernel.msg*"
            path = "pods.allowed_unsafe_sysctls"
            yield _error(config, path, f"{pattern!r} is not a sysctl that a pod can have", fix)


def _images(config: AgentConfig) -> Iterator[InvalidConfig]:
    images = config.images
    if images.gc_low_percent >= images.gc_high_percent:
        problem = f"{images.gc_low_percent} is not below the high threshold {images.gc_high_percent}"
        yield _error(config, "images.gc_low_percent", problem, "lower it, or raise the high threshold")
    if images.serialize_pulls and (images.max_parallel_pulls or 1) > 1:
        problem = f"{images.max_parallel_pulls} contradicts serialised pulls"
        yield _error(config, "images.max_parallel_pulls", problem, "set serializeImagePulls to false")
    if 0 < images.maximum_gc_age_seconds <= images.minimum_gc_age_seconds:
        problem = "is not longer than the minimum age"
        yield _error(config, "images.maximum_gc_age_seconds", problem, "raise it, or set it to 0s")
    if images.verification_allowlist and images.verification_policy != NEVER_ALLOWLISTED:
        problem = f"policy {images.verification_policy} knows no list"
        fix = f"set imagePullCredentialsVerificationPolicy to {NEVER_ALLOWLISTED}, or remove the list"
        yield _error(config, "images.verification_allowlist", problem, fix)
    for pattern in images.verification_allowlist:
        if (problem_of := check_pattern(pattern)) is not None:
            fix = "write REGISTRY/PATH without tag and digest, or a beginning that ends in /*"
            yield _error(config, "images.verification_allowlist", f"{pattern!r}: {problem_of}", fix)
    pair = ("images.credential_provider_config", "images.credential_provider_bin_dir")
    if (images.credential_provider_config is None) != (images.credential_provider_bin_dir is None):
        is_set, missing = pair if images.credential_provider_config is not None else pair[::-1]
        yield _error(config, is_set, "is set alone", f"set --{BY_PATH[missing].flag} too")


def _cgroups(config: AgentConfig) -> Iterator[InvalidConfig]:
    root = config.cgroups.root
    if root and (not root.startswith("/") or ".." in root.split("/")):
        yield _error(config, "cgroups.root", f"{root!r} is not an absolute cgroup", "start it with '/'")
    levels = config.cgroups.enforce_allocatable
    for level in levels:
        if level not in _LEVELS:
            fix = f"use some of {', '.join(_LEVELS)}"
            yield _error(config, "cgroups.enforce_allocatable", f"{level!r} is not known", fix)
    for level in dict.fromkeys(levels):
        if levels.count(level) > 1 or f"{level}-compressible" in levels:
            fix = "keep one of them"
            yield _error(config, "cgroups.enforce_allocatable", f"contains {level} twice", fix)
        cgroup = level.removesuffix("-compressible")
        if cgroup in _RESERVED_CGROUPS and _unused_value(config, *_RESERVED_CGROUPS[cgroup]) is None:
            fix = f"set {_RESERVED_CGROUPS[cgroup][0]}, or leave {level} out"
            yield _error(config, "cgroups.enforce_allocatable", f"{level!r} has no cgroup", fix)
    if not config.cgroups.per_qos and any(level != "none" for level in levels):
        fix = "write enforceNodeAllocatable: [none]"
        yield _error(config, "cgroups.per_qos", "is false, which excludes enforceNodeAllocatable", fix)
    if not root and (place := _unused_value(config, "systemCgroups", "--system-cgroups")) is not None:
        yield InvalidConfig(
            obj=place.origin, field=place.name, problem="is set without cgroupRoot", fix="set both"
        )
    if "none" in levels and len(levels) > 1:
        fix = "leave out the others"
        yield _error(config, "cgroups.enforce_allocatable", "'none' excludes other values", fix)


def _unused_value(config: AgentConfig, *names: str) -> UnusedSetting | None:
    """Return the configured setting without effect that has one of these names."""
    return next((setting for setting in config.unused if setting.name in names and setting.value), None)


def dropped_servers(config: AgentConfig) -> Iterator[UnusedSetting]:
    """Yield an `UnusedSetting` for each item of clusterDNS that is not an address; pods do not get it, as in a kubelet."""
    for text in config.network.cluster_dns:
        if "%" in text or not _is_address(text):  # a pod has other interfaces than the node
            yield UnusedSetting(
                name="clusterDNS",
                origin=config.origins.get("network.cluster_dns", "default"),
                value=text,
                consequence="it is not an IP address; pods get only the other servers",
            )


def unenforced(config: AgentConfig) -> Iterator[UnusedSetting]:
    """Yield an `UnusedSetting` for each configured level of enforceNodeAllocatable that has no effect in kubeletx."""
    for level in config.cgroups.enforce_allocatable:
        if level in _LEVELS[2:]:
            yield UnusedSetting(
                name="enforceNodeAllocatable",
                origin=config.origins.get("cgroups.enforce_allocatable", "default"),
                value=level,
                consequence="the cgroups of the system and of the node's agents get no limits",
            )


def _eviction(config: AgentConfig) -> Iterator[InvalidConfig]:
    eviction = config.eviction
    for path, thresholds in (
        ("eviction.hard", eviction.hard),
        ("eviction.soft", eviction.soft),
        ("eviction.minimum_reclaim", eviction.minimum_reclaim),
    ):
        yield from _thresholds(config, path, thresholds)
    path = "eviction.soft_grace_periods"
    for signal, text in eviction.soft_grace_periods.items():
        if signal not in SIGNALS:
            yield _error(config, path, f"{signal!r} is not a signal", _SIGNALS_FIX)
        elif not _is_duration(text):
            yield _error(config, path, f"{signal}: {text!r} is not a duration", "write it like 1m30s")
    for signal in eviction.soft.keys() - eviction.soft_grace_periods.keys():
        if eviction.soft[signal] in _OFF:
            continue
        problem = f"{signal} has no grace period"
        yield _error(config, "eviction.soft", problem, "set one with evictionSoftGracePeriod")


def _shutdown(config: AgentConfig) -> Iterator[InvalidConfig]:
    """Check the shutdown settings by the kubelet's rules; yield an error for each invalid one."""
    shutdown = config.shutdown
    for path, seconds in (
        ("shutdown.grace_seconds", shutdown.grace_seconds),
        ("shutdown.critical_grace_seconds", shutdown.critical_grace_seconds),
    ):
        if 0 < seconds < 1:
            yield _error(config, path, "is shorter than a second", "write 1s or more, or 0s")
    if shutdown.critical_grace_seconds > shutdown.grace_seconds:
        problem = "is longer than shutdownGracePeriod, of which it is a part"
        yield _error(config, "shutdown.critical_grace_seconds", problem, "shorten it")
    if shutdown.by_priority and shutdown.grace_seconds:
        problem = "is set together with shutdownGracePeriod"
        yield _error(config, "shutdown.by_priority", problem, "leave out one of the two")


def _thresholds(config: AgentConfig, path: str, thresholds: dict[str, str]) -> Iterator[InvalidConfig]:
    for signal, text in thresholds.items():
        if signal not in SIGNALS:
            yield _error(config, path, f"{signal!r} is not a signal", _SIGNALS_FIX)
        elif not (_is_percentage(text) or _is_quantity(text)) or _is_out_of_range(path, text):
            yield _error(config, path, f"{signal}: {text!r} is not a threshold", "write it like 100Mi or 10%")


def _is_out_of_range(path: str, text: str) -> bool:
    """Return True for more than 100 %, for a threshold of zero that is not a percentage, and for a reclaim of 0 %.

    Source: kubelet, pkg/kubelet/eviction/helpers.go.
    """
    is_reclaim = path == "eviction.minimum_reclaim"
    if _is_percentage(text):
        percent = float(text[:-1])
        return percent > 100 or (is_reclaim and percent == 0)
    return not is_reclaim and quantity.parse(text).nanos == 0


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text) >= 0
    except ValueError:
        return False


def _logging(config: AgentConfig) -> Iterator[InvalidConfig]:
    gates = _unused_value(config, "featureGates", "--feature-gates")
    if gates is not None and isinstance(gates.value, dict) and gates.value.get("LoggingAlphaOptions"):
        return
    for setting in config.unused:
        if setting.name.startswith(("logging.options.", "--log-json-", "--log-text-")):
            problem = "needs the feature gate LoggingAlphaOptions"
            yield InvalidConfig(obj=setting.origin, field=setting.name, problem=problem, fix="leave it out")


def _tracing(config: AgentConfig) -> Iterator[InvalidConfig]:
    endpoint = config.tracing.endpoint
    scheme, is_url, rest = endpoint.partition("://")
    if (scheme not in _GRPC_SCHEMES if is_url else "//" in endpoint) or " " in (rest or endpoint):
        fix = f"write HOST:PORT or a URL with {', '.join(_GRPC_SCHEMES)}"
        yield _error(config, "tracing.endpoint", f"{endpoint!r} is not a gRPC target", fix)
    if config.tracing.sampling_rate_per_million and not _has_opentelemetry():
        problem, fix = "needs OpenTelemetry, which is not installed", "pip install 'kubeletx[tracing]'"
        yield _error(config, "tracing.sampling_rate_per_million", problem, fix)


def _has_opentelemetry() -> bool:
    try:
        return all(importlib.util.find_spec(f"opentelemetry.{name}") for name in ("sdk.trace", _OTLP))
    except ModuleNotFoundError:
        return False


def _server(config: AgentConfig) -> Iterator[InvalidConfig]:
    server = config.server
    for path, address in (
        ("server.healthz_bind_address", server.healthz_bind_address),
        ("server.address", server.address),
    ):
        yield from _addresses(config, path, (address,))
    ports = {"server.healthz_port": server.healthz_port, "server.read_only_port": server.read_only_port}
    if ports["server.healthz_port"] and ports["server.healthz_port"] == ports["server.read_only_port"]:
        yield _error(config, "server.read_only_port", "is the health endpoint's port", "choose another one")
    if kubelet_port(config) in ports.values():
        yield _error(config, "server.port", "is the port of another endpoint", "choose another one")
    if (server.tls_cert_file is None) != (server.tls_key_file is None):
        yield _error(
            config, "server.tls_cert_file", "and its key belong together", "give both of them or none"
        )
    if server.system_log_query and not server.system_log_handler:
        yield _error(config, "server.system_log_query", "needs enableSystemLogHandler", "set both to true")
    known = CIPHERS.keys() | TLS13_CIPHERS
    for name in server.tls_cipher_suites:
        if name not in known:
            fix = f"use some of {', '.join(sorted(CIPHERS))}"
            yield _error(config, "server.tls_cipher_suites", f"{name!r} is not a known cipher", fix)


def _sessions(config: AgentConfig) -> Iterator[InvalidConfig]:
    address = config.sessions.address
    if address is None:
        return
    try:
        _, port = split_address(address)
    except ValueError:
        problem, fix = f"{address!r} is not an address with a port", "write it like 10.0.0.10:10260"
        yield _error(config, "sessions.address", problem, fix)
        return
    server = config.server
    if port in (server.healthz_port, server.read_only_port, kubelet_port(config)):
        yield _error(config, "sessions.address", "has the port of another endpoint", "choose another one")


def _fornax(config: AgentConfig) -> Iterator[InvalidConfig]:
    settings = config.fornax
    if not settings.cores:
        for name in ("ca_file", "cert_file", "key_file"):
            if getattr(settings, name) is not None:
                yield _error(
                    config, f"fornax.{name}", "has no effect without a core", "give a --fornaxcore-url"
                )
        return
    # Imported here: an agent without FornaxCores does not load the room.
    from kubeletx.fornax.cores import parse_address

    for text in settings.cores:
        try:
            parse_address(text, "address")
        except InvalidConfig as error:
            yield _error(config, "fornax.cores", error.problem, "write HOST:PORT")
    parts = (settings.identifier or "namespace/name").split("/")
    if len(parts) != 2 or not all(parts):
        problem = f"{settings.identifier!r} is not NAMESPACE/NAME"
        yield _error(config, "fornax.identifier", problem, "such as fornax.centaurusinfra.io/node-1")
    if (settings.cert_file is None) is not (settings.key_file is None):
        yield _error(config, "fornax.cert_file", "certificate and key belong together", "set both or none")
    elif settings.cert_file is not None and settings.ca_file is None:
        yield _error(config, "fornax.ca_file", "is missing", "name the authorities of the FornaxCores")


def _auth(config: AgentConfig) -> Iterator[InvalidConfig]:
    server = config.server
    if config.cluster.kubeconfig is not None or not (server.enabled and server.port):
        return
    if config.auth.mode == "Webhook" and _is_flag(config, "server.port"):
        fix = "give a --kubeconfig, or set --authorization-mode=AlwaysAllow and a --client-ca-file"
        yield _error(config, "server.port", "needs an API server that authorizes requests", fix)
    if config.auth.webhook and _is_flag(config, "auth.webhook"):
        yield _error(
            config, "auth.webhook", "needs an API server that reviews tokens", "give a --kubeconfig, or false"
        )


def _is_flag(config: AgentConfig, path: str) -> bool:
    return config.origins.get(path, "").startswith("flag")


def _addresses(config: AgentConfig, path: str, texts: tuple[str, ...]) -> Iterator[InvalidConfig]:
    for text in texts:
        if not _is_address(text):
            yield _error(config, path, f"{text!r} is not an IP address", "write it like 10.0.0.10")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_quantity(text: str) -> bool:
    try:
        return quantity.parse(text).nanos >= 0
    except ValueError:
        return False


def _is_percentage(text: str) -> bool:
    return bool(_PERCENTAGE.fullmatch(text))


_RULES: Final[tuple[Callable[[AgentConfig], Iterator[InvalidConfig]], ...]] = (
    _sources,
    _cluster,
    _node,
    _network,
    _pods,
    _images,
    _cgroups,
    _eviction,
    _shutdown,
    _logging,
    _tracing,
    _server,
    _sessions,
    _fornax,
    _auth,
)
