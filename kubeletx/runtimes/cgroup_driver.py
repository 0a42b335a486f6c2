"""Driver of pods' cgroups: the one the runtimes use (R4 of the parity table).

The host creates a pod's cgroup and the runtime puts the pod's units below it, so both must use the same driver.
As in the kubelet, the runtimes' answer (`Traits.cgroup_driver`) counts more than
``--cgroup-driver``, which is for runtimes without an answer. If they disagree the flag decides, without one
the first listed; the others are not ready, with a condition that says so. The choice is made with the first
cgroup and then stays until the agent restarts, since cgroups exist by then.
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
    """`configured` None: pods get no cgroups of their own, so that nothing has to agree; empty: not set.

    `told`: what each runtime that was reached told, in the order listed; empty for those that do not tell.
    """

    def __init__(self, configured: str | None, told: Callable[[], Iterable[str]]) -> None:
        self._configured = configured
        self._told = told
        self._in_use: str | None = None

    def use(self) -> str:
        """The driver, fixed from now on."""
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
        """The health of a runtime that told this: not ready if it does not go with the node's driver."""
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
    """The driver that the runtimes agree on, else the configured one, else the first told, else cgroupfs."""
    drivers = list(dict.fromkeys(driver for driver in told if driver))
    if len(drivers) == 1:
        return drivers[0]
    return configured or next(iter(drivers), CGROUPFS)
