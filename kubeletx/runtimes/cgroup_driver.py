"""Chooses the driver of pods' cgroups: the one that the runtimes use (see docs/kubelet-parity.md, row R4).

The agent creates a pod's cgroup and the runtime puts the containers below it, so both must use the same driver. As in
the kubelet, the driver that the runtimes report (`Traits.cgroup_driver`) overrides ``--cgroup-driver``, which is for
runtimes that report none. If runtimes report different drivers, the flag decides, or without a flag the first listed
runtime; runtimes with another driver are not ready and have a condition that says so. The choice is made when the first
cgroup is created, and does not change until the agent restarts.
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
    """Chooses the node's cgroup driver and compares the runtimes' drivers with it.

    `configured`: value of ``--cgroup-driver``; empty if not set; None if pods get no cgroups, so that every driver is
    accepted. `reported`: returns the driver that each connected runtime reports, in the configured order; an empty string
    for a runtime that reports none.
    """

    def __init__(self, configured: str | None, reported: Callable[[], Iterable[str]]) -> None:
        self._configured = configured
        self._reported = reported
        self._in_use: str | None = None

    def use(self) -> str:
        """Return the node's driver. The first call chooses it; later calls return the same one."""
        if self._in_use is None:
            self._in_use = choose(self._configured or "", self._reported())
            if self._configured and self._configured != self._in_use:
                log.warning(
                    "Took the cgroup driver of the runtimes instead of --cgroup-driver",
                    driver=self._in_use,
                    configured=self._configured,
                )
        return self._in_use

    def judge(self, health: RuntimeHealth, reported: str) -> RuntimeHealth:
        """Return the health of a runtime that reports the driver `reported`.

        It is `health`, changed to not ready with a condition if the driver differs from the node's. `reported` empty: the
        runtime reports none, which is accepted.
        """
        if self._configured is None or not reported:
            return health
        driver = self._in_use or choose(self._configured, self._reported())
        if reported == driver:
            return health
        condition = RuntimeCondition(
            type=CONDITION,
            ok=False,
            reason=MISMATCH,
            message=f"this runtime uses cgroup driver {reported}, the node {driver}; configure the runtime for {driver}, "
            "or all runtimes alike and start kubeletx again",
        )
        return msgspec.structs.replace(
            health, runtime_ready=False, conditions=(*health.conditions, condition)
        )


def choose(configured: str, reported: Iterable[str]) -> str:
    """Choose the cgroup driver: the one that all runtimes report.

    If they report none or different ones: `configured`, or the first reported one if it is empty, or cgroupfs.
    """
    drivers = list(dict.fromkeys(driver for driver in reported if driver))
    if len(drivers) == 1:
        return drivers[0]
    return configured or next(iter(drivers), CGROUPFS)
