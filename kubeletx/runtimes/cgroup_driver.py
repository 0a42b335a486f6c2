"""Driver of pods' cgroups: the one the runtimes use (R4 of the parity table).

The host creates a pod's cgroup and the runtime puts the pod's units below it, so both must use the same driver. As in
the kubelet, the runtimes' answer (`Traits.cgroup_driver`) overrides ``--cgroup-driver``, which is for runtimes without
an answer. If they disagree the flag decides, without one the first listed; the others are not ready, with a condition
that says so. The choice is made with the first cgroup and stays until the agent restarts, since cgroups exist by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import structlog

from kubeletx.api import RuntimeCondition, RuntimeHealth

log = structlog.get_logger(__name__)

CGROUPFS = "cgroupfs"
CONDITION = "CgroupDriverAgrees"
MISMATCH = "CgroupDriverMismatch"


class NodeCgroupDriver:
    """The node's cgroup driver. `configured`: empty if not set; None if pods get no cgroups, so any driver fits.

    `told`: returns the driver of each connected runtime, in the order listed; empty for those that report none.
    """

    def __init__(self, configured: str | None, told: Callable[[], Iterable[str]]) -> None:
        self._configured = configured
        self._told = told
        self._in_use: str | None = None

    def use(self) -> str:
        """Return the driver; the first call makes the choice, which then stays until the agent restarts."""
        if self._in_use is None:
            self._in_use = choose(self._configured or "", self._told())
            if self._configured and self._configured != self._in_use:
                log.warning(
                    "Took the cgroup driver of the runtimes instead of --cgroup-driver",
                    driver=self._in_use,
                    configured=self._configured,
                )
        return self._in_use

    def judge(self, health: RuntimeHealth, told: str) -> RuntimeHealth:
        """Health of a runtime that reports driver `told`: not ready if it differs from the node's driver."""
        if self._configured is None or not told:
            return health
        driver = self._in_use or choose(self._configured, self._told())
        if told == driver:
            return health
        condition = RuntimeCondition(
            type=CONDITION,
            ok=False,
            reason=MISMATCH,
            message=f"this runtime uses cgroup driver {told}, the node {driver}; configure the runtime for {driver}, "
            "or all runtimes alike and start kubeletx again",
        )
        return msgspec.structs.replace(
            health, runtime_ready=False, conditions=(*health.conditions, condition)
        )


def choose(configured: str, told: Iterable[str]) -> str:
    """The driver that all runtimes report, else the configured one, else the first reported one, else cgroupfs."""
    drivers = list(dict.fromkeys(driver for driver in told if driver))
    if len(drivers) == 1:
        return drivers[0]
    return configured or next(iter(drivers), CGROUPFS)
