"""Checks of cgroups and swap at start: the cgroup version, and whether this user may make cgroups for pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from kubeletx.api import Blocking, EventSink, InvalidConfig, ObjectRef
from kubeletx.api.names import Event
from kubeletx.node.cgroups.pods import PodCgroupManager, make_driver
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.pods import NodeContext, pod_cgroup_resources

from ..config.tree import AgentConfig, CgroupSettings

log = structlog.get_logger(__name__)


def check_cgroup_version(settings: CgroupSettings, version: int, events: EventSink, node: ObjectRef) -> None:
    """Record a warning event on `node` if the machine has cgroup v1 (DECISIONS 28); do nothing for v2.

    Raises InvalidConfig instead if failCgroupV1 is true.
    """
    if version != 1:
        return
    if settings.fail_cgroup_v1:
        raise InvalidConfig(
            field="failCgroupV1",
            problem="this machine has cgroup v1",
            fix="boot it with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or set failCgroupV1 to false",
        )
    text = "The node runs cgroup v1; memory QoS and swap limits need v2"
    events.record(node, type="Warning", reason=Event.CGROUP_V1, message=text)


def check_swap(config: AgentConfig, version: int, *, is_on: bool) -> None:
    """Raise InvalidConfig if the machine's swap contradicts the configuration.

    This is so if swap is on and failSwapOn is true, or if pods are to use swap (LimitedSwap) on cgroup v1. `version`:
    the cgroup version. `is_on`: the machine has swap.
    """
    if config.node.fail_swap_on and is_on:
        raise InvalidConfig(
            field="failSwapOn",
            problem="this machine has swap, and failSwapOn is true",
            fix="turn it off (swapoff -a), or set failSwapOn to false: pods get none of it",
        )
    if config.pods.swap_behavior == "LimitedSwap" and version == 1:
        raise InvalidConfig(
            field="memorySwap.swapBehavior",
            problem="'LimitedSwap' needs cgroup v2, and this machine has cgroup v1",
            fix="boot it with cgroup v2, or set NoSwap",
        )


def has_swap(swaps: Path = Path("/proc/swaps")) -> bool:
    """Return True if the machine has swap: the swap table `swaps` has an entry.

    A kernel without support for swap has no such file.
    """
    try:
        return swaps.read_text().count("\n") > 1
    except FileNotFoundError:
        return False


def may_make_cgroups(settings: CgroupSettings, trees: CgroupTrees) -> bool:
    """Return True if the agent makes cgroups for pods: cgroupsPerQOS is true and this user has the right."""
    return settings.per_qos and trees.find_closed(settings.root.strip("/")) is None


def make_pod_cgroups(
    config: AgentConfig, context: NodeContext, files: Blocking, trees: CgroupTrees, driver: Callable[[], str]
) -> PodCgroupManager | None:
    """Make the manager of pods' cgroups; return None if pods get none, by configuration or for lack of rights.

    `driver`: returns cgroupfs or systemd; it is called when the first cgroup is made, since the runtimes report the
    driver. Raises InvalidConfig if cgroupsPerQOS is set explicitly and this user has no right to make cgroups.
    """
    settings = config.cgroups
    if not settings.per_qos:
        return None
    closed = trees.find_closed(settings.root.strip("/"))
    if closed is not None:
        problem = f"no right to make cgroups in {closed}"
        if "cgroups.per_qos" in config.origins:
            raise InvalidConfig(field="cgroupsPerQOS", problem=problem, fix="run as root, or set it to false")
        log.warning("Pods get no cgroups of their own", err=problem)
        return None
    return PodCgroupManager(
        lambda: make_driver(driver(), trees),
        limits_of=lambda pod: pod_cgroup_resources(pod, context),
        blocking=files,
        root=settings.root,
        per_qos=True,
    )
