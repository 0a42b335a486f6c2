"""Converts `AgentConfig` to the settings objects of the agent's packages, one small function for each object."""

from __future__ import annotations

import sys

import kubeletx
from kubeletx.api import Clock
from kubeletx.kube.text.duration import parse_duration
from kubeletx.node.capacity import NodeResources
from kubeletx.node.info import kubelet_version
from kubeletx.node.readiness import Policy
from kubeletx.node.status import NodePlan, NodeReporter, node_labels
from kubeletx.node.thresholds import parse_thresholds
from kubeletx.pods import EvictionPolicy, NodeContext, RotationLimits
from kubeletx.pods.admission import AdmissionNode
from kubeletx.runtimes.cni.network import CniPodNetwork
from kubeletx.runtimes.handles.limits import Limits
from kubeletx.runtimes.images.provider_config import ProviderPlan, read_providers
from kubeletx.runtimes.images.settings import CollectionSettings, PullSettings
from kubeletx.runtimes.images.verification import VerificationSettings

from ..config.kubelet_words import EXTERNAL
from ..config.ports import declared_features, kubelet_port
from ..config.tree import AgentConfig
from ..host.readings import HostReadings


def call_limits(config: AgentConfig) -> Limits:
    """Return the deadlines and intervals of calls to runtimes, from the configuration."""
    sync = config.pods.sync_seconds
    return Limits(
        request_seconds=config.runtimes.request_timeout_seconds,
        health_grace_seconds=config.runtimes.health_grace_seconds,
        safety_relist_seconds=(sync, 5 * sync),
    )


def configured_pod_cidrs(config: AgentConfig) -> tuple[str, ...]:
    """Return the ranges of ``--pod-cidr``; none on a node of a cluster, which gives them with the Node."""
    text = config.network.pod_cidr
    return tuple(text.split(",")) if text is not None and config.cluster.kubeconfig is None else ()


def pull_settings(config: AgentConfig) -> PullSettings:
    """Return the settings of image pulls, from the configuration."""
    images = config.images
    return PullSettings(
        serialize=images.serialize_pulls,
        parallel=images.max_parallel_pulls,
        qps=images.pull_qps,
        burst=images.pull_burst,
        verification=VerificationSettings(
            policy=images.verification_policy, allowlist=images.verification_allowlist
        ),
    )


def provider_plan(config: AgentConfig) -> ProviderPlan:
    """Read the configured credential providers from their files; the plan is empty if none are configured.

    Raises InvalidConfig naming each mistake.
    """
    file, programs = config.images.credential_provider_config, config.images.credential_provider_bin_dir
    if file is None or programs is None:
        return ProviderPlan()
    return read_providers(file, programs)


def collection_settings(config: AgentConfig) -> CollectionSettings:
    """Return the settings of image garbage collection, from the configuration."""
    images = config.images
    return CollectionSettings(
        high_percent=images.gc_high_percent,
        low_percent=images.gc_low_percent,
        min_age_seconds=images.minimum_gc_age_seconds,
        max_age_seconds=images.maximum_gc_age_seconds,
    )


def rotation_limits(config: AgentConfig) -> RotationLimits:
    """Return the limits of container log rotation, from the configuration."""
    logs = config.logs
    return RotationLimits(
        max_size_bytes=logs.max_size_bytes if logs.max_size_bytes >= 0 else sys.maxsize,
        max_files=logs.max_files,
        interval_seconds=logs.monitor_interval_seconds,
    )


def eviction_policy(config: AgentConfig) -> EvictionPolicy:
    """Return the eviction thresholds, grace periods and limits, from the configuration."""
    eviction = config.eviction
    graces = {name: parse_duration(text) for name, text in eviction.soft_grace_periods.items()}
    return EvictionPolicy(
        thresholds=parse_thresholds(eviction.hard, eviction.soft, graces, eviction.minimum_reclaim),
        hold_seconds=eviction.pressure_transition_seconds,
        max_grace_seconds=eviction.max_pod_grace_seconds,
        local_limits=eviction.local_limits,
    )


def pod_network_of(config: AgentConfig, agent_id: str, clock: Clock) -> CniPodNetwork | None:
    """Make the pod network for runtimes that do not call CNI themselves.

    Returns None if no directory of CNI configurations is configured. `agent_id`: prefix of the container ids that CNI
    plugins get, so that they are unique among several agents.
    """
    if config.network.cni_conf_dir is None:
        return None
    return CniPodNetwork(
        conf_dir=config.network.cni_conf_dir,
        bin_dirs=config.network.cni_bin_dirs,
        state_dir=config.root_dir / "pod-network",
        owner=agent_id,
        clock=clock,
    )


def node_plan(config: AgentConfig) -> NodePlan:
    """Return the settings of `NodeReporter`: name, addresses, labels, limits and reserved resources of the node."""
    node = config.node
    return NodePlan(
        root_dir=config.root_dir,
        version=kubelet_version(kubeletx.__version__),
        hostname_override=node.hostname_override,
        node_ips=node.node_ip,
        labels=node.labels,
        provider_id=node.provider_id,
        max_pods=node.max_pods,
        pods_per_core=node.pods_per_core,
        kube_reserved=node.kube_reserved,
        system_reserved=node.system_reserved,
        hard_eviction=config.eviction.hard,
        policy=Policy(node.readiness_policy),
        port=kubelet_port(config),
        max_images=node.max_images,
        external_cloud=node.cloud_provider == EXTERNAL,
        declared_features=declared_features(config),
    )


def node_context(
    config: AgentConfig, agent_id: str, reporter: NodeReporter, host: HostReadings
) -> NodeContext:
    """Return the data of the node that the specs of sandboxes and containers need.

    They come from the configuration, from `reporter` (name, addresses, resources) and from the machine's kernel
    (`host`).
    """
    facts = host.facts
    return NodeContext(
        agent_id=agent_id,
        node_name=reporter.name,
        root_dir=config.root_dir,
        pod_logs_dir=config.logs.pod_logs_dir,
        host_ips=reporter.ips,
        in_cluster=config.cluster.kubeconfig is not None,
        cluster_dns=config.network.cluster_dns,
        cluster_domain=config.network.cluster_domain,
        resolv_conf=config.network.resolv_conf,
        allocatable=_amounts(reporter.allocatable),
        memory_capacity_bytes=reporter.capacity.memory_bytes,
        cgroup_version=host.trees.version,
        cgroup_root=config.cgroups.root,
        cpu_cfs_quota=config.cgroups.cpu_cfs_quota,
        cpu_cfs_quota_period_us=round(config.cgroups.cpu_cfs_quota_period_seconds * 1_000_000),
        single_process_oom_kill=bool(config.cgroups.single_process_oom_kill),
        hugepage_sizes=facts.hugepage_sizes,
        swap_capacity_bytes=facts.swap_capacity_bytes,
        swap_controller=facts.swap_controller,
        memory_swap=config.pods.swap_behavior or "NoSwap",
        recursive_read_only=facts.recursive_read_only,
        pod_pids_limit=config.pods.pids_limit,
        seccomp_default=config.pods.seccomp_default,
        allowed_unsafe_sysctls=config.pods.allowed_unsafe_sysctls,
    )


def admission_node(
    config: AgentConfig, context: NodeContext, reporter: NodeReporter, host: HostReadings
) -> AdmissionNode:
    """Return the data of the node with which admission compares a pod, such as its labels and allocatable resources."""
    return AdmissionNode(
        name=reporter.name,
        allocatable=context.allocatable,
        max_pods=reporter.capacity.pods,
        labels=node_labels(reporter.name, config.node.labels),
        allowed_unsafe_sysctls=config.pods.allowed_unsafe_sysctls,
        has_apparmor=host.has_apparmor,
    )


def _amounts(resources: NodeResources) -> dict[str, int]:
    return {
        "cpu": resources.cpu_millicores,
        "memory": resources.memory_bytes,
        "ephemeral-storage": resources.ephemeral_storage_bytes,
    }
