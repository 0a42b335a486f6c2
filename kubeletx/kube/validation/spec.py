"""Rules for the pod as a whole. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from typing import Final

from ..types.core import PodDNSConfig, PodSpec
from . import words
from .containers import check_containers
from .machine import check_machine, check_nics
from .problems import Problems, show
from .resources import check_overhead, check_pod_resources
from .scheduling import check_scheduling
from .security import check_pod_security
from .volumes import check_volumes

MAX_SEARCHES: Final = 32
MAX_SEARCH_CHARACTERS: Final = 2048
MAX_NAMESERVERS: Final = 3
_DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def check_spec(spec: PodSpec, problems: Problems) -> None:
    """Check all fields of a pod's spec."""
    _check_workload(spec, problems)
    problems.one_of("spec.restartPolicy", spec.restart_policy, ("Always", "OnFailure", "Never"))
    problems.between("spec.activeDeadlineSeconds", spec.active_deadline_seconds, 1)
    problems.between("spec.priority", spec.priority, -(2**31))
    problems.word("spec.serviceAccountName", spec.service_account_name, words.dns_subdomain)
    problems.word("spec.priorityClassName", spec.priority_class_name, words.dns_subdomain)
    problems.one_of("spec.preemptionPolicy", spec.preemption_policy, ("PreemptLowerPriority", "Never"))
    if spec.runtime_class_name is not None:
        problems.name("spec.runtimeClassName", spec.runtime_class_name, words.dns_subdomain)
    if spec.scheduling_group is not None:
        group = spec.scheduling_group.pod_group_name
        problems.name("spec.schedulingGroup.podGroupName", group, words.dns_subdomain)
    problems.word("spec.runtimeServiceName", spec.runtime_service_name, words.runtime_name)
    if spec.os is not None:
        problems.one_of("spec.os.name", spec.os.name, ("linux", "windows"))
    for index, secret in enumerate(spec.image_pull_secrets):
        problems.name(f"spec.imagePullSecrets[{index}].name", secret.name, words.dns_subdomain)
    for index, gate in enumerate(spec.readiness_gates):
        problems.name(
            f"spec.readinessGates[{index}].conditionType", gate.condition_type, words.qualified_name
        )
    check_scheduling(spec, problems)
    _check_names(spec, problems)
    check_pod_security("spec.securityContext", spec, problems)
    check_pod_resources(spec, problems)
    check_overhead(spec.overhead, problems)
    check_volumes(spec.volumes, problems)
    check_containers(spec, problems)
    check_nics(spec, problems)
    if spec.virtual_machine is not None:
        check_machine(spec.virtual_machine, {volume.name for volume in spec.volumes}, problems)


def _check_workload(spec: PodSpec, problems: Problems) -> None:
    if spec.virtual_machine is None:
        if not spec.containers:
            problems.add("spec.containers", "is missing", "name at least one container or a virtualMachine")
        return
    for word, given in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        if given:
            problems.add(f"spec.{word}", "is set together with virtualMachine", "keep one of them")


def _check_names(spec: PodSpec, problems: Problems) -> None:
    """Check host name, subdomain, host aliases and DNS settings."""
    problems.word("spec.hostname", spec.hostname, words.dns_label)
    problems.word("spec.subdomain", spec.subdomain, words.dns_label)
    if spec.hostname_override is not None:
        problems.name("spec.hostnameOverride", spec.hostname_override, words.dns_subdomain)
        if spec.host_network:
            problems.add("spec.hostnameOverride", "is set together with hostNetwork", "keep one of them")
    for index, alias in enumerate(spec.host_aliases):
        problems.name(f"spec.hostAliases[{index}].ip", alias.ip, words.ip_address)
        for number, hostname in enumerate(alias.hostnames):
            problems.name(f"spec.hostAliases[{index}].hostnames[{number}]", hostname, words.dns_subdomain)
    problems.one_of("spec.dnsPolicy", spec.dns_policy, _DNS_POLICIES)
    config = spec.dns_config or PodDNSConfig()
    if spec.dns_policy == "None" and not config.nameservers:
        problems.add("spec.dnsConfig.nameservers", "is missing with dnsPolicy None", "name a server")
    _check_dns(config, problems)


def _check_dns(config: PodDNSConfig, problems: Problems) -> None:
    field = "spec.dnsConfig"
    if len(config.nameservers) > MAX_NAMESERVERS:
        problems.add(
            f"{field}.nameservers", f"has {len(config.nameservers)} servers", f"use at most {MAX_NAMESERVERS}"
        )
    for index, server in enumerate(config.nameservers):
        problems.name(f"{field}.nameservers[{index}]", server, words.ip_address)
    if len(config.searches) > MAX_SEARCHES:
        problems.add(
            f"{field}.searches", f"has {len(config.searches)} domains", f"use at most {MAX_SEARCHES}"
        )
    if (length := len(" ".join(config.searches))) > MAX_SEARCH_CHARACTERS:
        problems.add(
            f"{field}.searches", f"has {length} characters", f"use at most {MAX_SEARCH_CHARACTERS} in all"
        )
    for index, search in enumerate(config.searches):
        problems.name(f"{field}.searches[{index}]", search, words.search_domain)
    for index, option in enumerate(config.options):
        if problems.required(f"{field}.options[{index}].name", option.name) and any(
            c in "\r\n\0" for c in option.name + (option.value or "")
        ):
            problems.add(f"{field}.options[{index}]", f"{show(option.name)} holds a line break", "remove it")
