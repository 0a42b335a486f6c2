"""Computes the node's taints for workload types without a ready runtime (DECISIONS 27). Pure.

A taint repels every pod that does not tolerate it, whatever the pod's workload type. Therefore only the default type,
container, gets NoSchedule. Other types get PreferNoSchedule: a node that cannot run virtual machines still gets
containers. The RuntimeClasses that ``kubeletx runtime manifests`` prints select nodes by the runtime's label and
tolerate the taints of other types.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletx.api import CONTAINER, names
from kubeletx.kube.types.node import Taint

from .readiness import NEVER_ASKED, RuntimeFacts, types_without_runtime


def type_taint(workload_type: str) -> Taint:
    """Return the taint for a workload type that has no ready runtime."""
    effect = "NoSchedule" if workload_type == CONTAINER else "PreferNoSchedule"
    return Taint(key=names.WORKLOAD_TAINT_PREFIX + workload_type, value=names.NO_READY_RUNTIME, effect=effect)


def type_taints(runtimes: Iterable[RuntimeFacts]) -> tuple[Taint, ...]:
    """Return the taints for workload types without a ready runtime, in configured order.

    A type has no taint while one of its runtimes has not been asked for its state yet.
    """
    runtimes = tuple(runtimes)
    unknown = {one.workload_type for one in runtimes if one.state.reason == NEVER_ASKED}
    return tuple(type_taint(type_) for type_ in types_without_runtime(runtimes) if type_ not in unknown)
