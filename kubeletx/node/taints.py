"""Taints for workload types without a ready runtime: a pure rule (DECISIONS 27).

A taint keeps away every pod that does not tolerate it, whatever its type. So only the default type, container, gets
NoSchedule; a node whose machines cannot run is merely avoided (PreferNoSchedule) and still takes containers. Printed
RuntimeClasses select nodes by the runtime's label, which is exact, and tolerate the taints of other types.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletx.api import CONTAINER, names
from kubeletx.kube.types.node import Taint

from .readiness import NEVER_ASKED, RuntimeFacts, types_without_runtime


def type_taint(workload_type: str) -> Taint:
    """The taint of a type without a ready runtime."""
    effect = "NoSchedule" if workload_type == CONTAINER else "PreferNoSchedule"
    return Taint(key=names.WORKLOAD_TAINT_PREFIX + workload_type, value=names.NO_READY_RUNTIME, effect=effect)


def type_taints(runtimes: Iterable[RuntimeFacts]) -> tuple[Taint, ...]:
    """Taints that are due, in the configured order; a type with a runtime not yet probed has none."""
    runtimes = tuple(runtimes)
    unknown = {one.workload_type for one in runtimes if one.state.reason == NEVER_ASKED}
    return tuple(type_taint(type_) for type_ in types_without_runtime(runtimes) if type_ not in unknown)
