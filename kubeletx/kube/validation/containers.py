"""Rules for containers: regular, init and ephemeral. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..requests import is_sidecar
from ..types.container import Container, ContainerPort
from ..types.core import PodSpec
from . import words
from .environment import check_environment, check_pod_size
from .handlers import check_lifecycle, check_probe
from .mounts import check_mounts
from .problems import Problems, show
from .resources import check_resources
from .security import check_container_security

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")


def check_containers(spec: PodSpec, problems: Problems) -> None:
    """Check the regular, init and ephemeral containers of the pod, whose names must all differ."""
    volumes = dict.fromkeys(volume.name for volume in spec.volumes)  # a dict keeps their order
    names: set[str] = set()
    host_ports: set[tuple[str, str, int]] = set()
    for index, container in enumerate(spec.init_containers):
        field = f"spec.initContainers[{index}]"
        _check_container(field, container, spec, volumes, names, problems)
        if is_sidecar(container):
            _check_host_ports(field, container.ports, host_ports, problems)
        else:
            _forbid(field, container, ("lifecycle", *_PROBES), "a regular init container", problems)
    for index, container in enumerate(spec.containers):
        field = f"spec.containers[{index}]"
        _check_container(field, container, spec, volumes, names, problems)
        _check_host_ports(field, container.ports, host_ports, problems)
    for index, ephemeral in enumerate(spec.ephemeral_containers):
        field = f"spec.ephemeralContainers[{index}]"
        _check_container(field, ephemeral, spec, volumes, names, problems)
        _forbid(field, ephemeral, ("lifecycle", "ports", *_PROBES), "an ephemeral container", problems)
        if ephemeral.restart_policy:
            problems.add(
                f"{field}.restartPolicy",
                f"{show(ephemeral.restart_policy)} on an ephemeral container",
                "remove it",
            )
        if ephemeral.resources.limits or ephemeral.resources.requests:
            problems.add(f"{field}.resources", "are set on an ephemeral container", "remove them")
    check_pod_size(spec, problems)


_PROBES: Final = {
    "livenessProbe": "liveness_probe",
    "readinessProbe": "readiness_probe",
    "startupProbe": "startup_probe",
}


def _check_container(
    field: str,
    container: Container,
    spec: PodSpec,
    volumes: Collection[str],
    names: set[str],
    problems: Problems,
) -> None:
    problems.name(f"{field}.name", container.name, words.dns_label)
    problems.unique(f"{field}.name", container.name, names, "container")
    if problems.required(f"{field}.image", container.image, "name an image"):
        problems.word(f"{field}.image", container.image, words.image, "remove the white space")
    problems.one_of(f"{field}.imagePullPolicy", container.image_pull_policy, PULL_POLICIES)
    problems.one_of(
        f"{field}.terminationMessagePolicy",
        container.termination_message_policy,
        ("File", "FallbackToLogsOnError"),
    )
    problems.word(f"{field}.terminationMessagePath", container.termination_message_path, words.no_nul)
    _check_restart(field, container, problems)
    _check_resizing(field, container, spec, problems)
    _check_ports(field, container.ports, spec.host_network, problems)
    check_environment(field, container, volumes, problems)
    check_resources(f"{field}.resources", container.resources, problems)
    claims = {claim.name for claim in spec.resource_claims}
    for index, claim in enumerate(container.resources.claims):
        if claim.name not in claims:
            where = f"{field}.resources.claims[{index}].name"
            problems.add(where, f"{show(claim.name)} is not in spec.resourceClaims", "name one of them")
    security = container.security_context
    check_mounts(
        field,
        container.volume_mounts,
        container.volume_devices,
        volumes,
        bool(security and security.privileged),
        problems,
    )
    if security is not None:
        check_container_security(f"{field}.securityContext", security, spec, problems)
    for kind, attribute in _PROBES.items():
        probe = getattr(container, attribute)
        if probe is not None:
            check_probe(f"{field}.{kind}", kind, probe, problems)
    if container.lifecycle is not None:
        grace = spec.termination_grace_period_seconds
        system = spec.os.name if spec.os is not None else None
        grace = 30 if grace is None else grace
        check_lifecycle(f"{field}.lifecycle", container.lifecycle, grace, system, problems)


def _check_restart(field: str, container: Container, problems: Problems) -> None:
    problems.one_of(f"{field}.restartPolicy", container.restart_policy, _RESTART_POLICIES)
    rules = container.restart_policy_rules
    if rules and not container.restart_policy:
        problems.add(f"{field}.restartPolicyRules", "are set without restartPolicy", "set restartPolicy")
    if len(rules) > 20:
        problems.add(f"{field}.restartPolicyRules", f"has {len(rules)} rules", "use at most 20")
    for index, rule in enumerate(rules):
        where = f"{field}.restartPolicyRules[{index}]"
        problems.one_of(f"{where}.action", rule.action, ("Restart", "RestartAllContainers"))
        if rule.exit_codes is None:
            problems.add(f"{where}.exitCodes", "is missing", "name the exit codes")
            continue
        problems.one_of(f"{where}.exitCodes.operator", rule.exit_codes.operator, ("In", "NotIn"))
        if len(rule.exit_codes.values) > 255:
            problems.add(
                f"{where}.exitCodes.values", f"has {len(rule.exit_codes.values)} values", "use at most 255"
            )
        for code in rule.exit_codes.values:
            problems.between(f"{where}.exitCodes.values", code, -(2**31))


def _check_resizing(field: str, container: Container, spec: PodSpec, problems: Problems) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(container.resize_policy):
        where = f"{field}.resizePolicy[{index}]"
        problems.one_of(f"{where}.resourceName", policy.resource_name, ("cpu", "memory"))
        problems.unique(f"{where}.resourceName", policy.resource_name, seen, "policy")
        never = spec.restart_policy == "Never"
        allowed = ("NotRequired",) if never else ("NotRequired", "RestartContainer")
        problems.one_of(f"{where}.restartPolicy", policy.restart_policy, allowed)


def _check_ports(
    field: str, ports: tuple[ContainerPort, ...], host_network: bool, problems: Problems
) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{field}.ports[{index}]"
        problems.word(f"{where}.name", port.name, words.port_name)
        if port.name:
            problems.unique(f"{where}.name", port.name, names, "port")
        if port.container_port == 0:
            problems.add(f"{where}.containerPort", "is missing", "use 1 to 65535")
        else:
            problems.between(f"{where}.containerPort", port.container_port, 1, 65535)
        problems.between(f"{where}.hostPort", port.host_port, 0, 65535)
        if host_network and port.host_port not in (None, 0, port.container_port):
            problems.add(
                f"{where}.hostPort",
                f"{port.host_port} differs from containerPort {port.container_port} with hostNetwork",
                "make them equal",
            )
        problems.one_of(f"{where}.protocol", port.protocol, ("TCP", "UDP", "SCTP"))
        problems.word(f"{where}.hostIP", port.host_ip, words.ip_address)


def _check_host_ports(
    field: str,
    ports: tuple[ContainerPort, ...],
    seen: set[tuple[str, str, int]],
    problems: Problems,
) -> None:
    for index, port in enumerate(ports):
        if not port.host_port:
            continue
        key = (port.protocol or "TCP", port.host_ip or "", port.host_port)
        if key in seen:
            problems.add(
                f"{field}.ports[{index}].hostPort", f"{port.host_port} is used twice", "choose another"
            )
        seen.add(key)


def _forbid(
    field: str, container: Container, forbidden: Collection[str], what: str, problems: Problems
) -> None:
    for word in forbidden:
        if getattr(container, _PROBES.get(word, word)):
            problems.add(f"{field}.{word}", f"is set on {what}", "remove it")
