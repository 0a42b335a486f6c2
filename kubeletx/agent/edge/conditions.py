"""Node conditions and metrics of the guardian's verdict. Pure.

kubeletx.io/EdgeHealthy        no required check of the guardian fails
kubeletx.io/UpgradeTesting     an OS image is being tested; the message has the rest of its test window
kubeletx.io/MaintenanceMode    the node is in maintenance mode; the message has the reasons
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kubeletx.api.counting import Metric, gauge
from kubeletx.health.topics import HealthStatus
from kubeletx.kube.types.node import NodeCondition

EDGE_HEALTHY: Final = "kubeletx.io/EdgeHealthy"
UPGRADE_TESTING: Final = "kubeletx.io/UpgradeTesting"
MAINTENANCE_MODE: Final = "kubeletx.io/MaintenanceMode"
TYPES: Final = (EDGE_HEALTHY, UPGRADE_TESTING, MAINTENANCE_MODE)
_TESTED: Final = frozenset({"Testing", "Committing", "FallingBack"})
"""Phases of the guardian in which the verdict on an image is open or being carried out."""
_MAX_MESSAGE: Final = 1000


def edge_conditions(status: HealthStatus | None, silence: str = "") -> tuple[NodeCondition, ...]:
    """Return the conditions without their times. `silence`: why the guardian's status does not count; empty: it does."""
    if status is None or silence:
        message = "the guardian has not published its status" if status is None else silence
        return tuple(
            NodeCondition(type=type_, status="Unknown", reason="GuardianSilent", message=message)
            for type_ in TYPES
        )
    return (
        _healthy(status),
        _condition(UPGRADE_TESTING, status.phase in _TESTED, status.phase, _test_message(status)),
        _condition(
            MAINTENANCE_MODE,
            status.maintenance_mode,
            "Maintenance" if status.maintenance_mode else "NoMaintenance",
            ", ".join(status.maintenance_reasons),
        ),
    )


def _healthy(status: HealthStatus) -> NodeCondition:
    failed = [check for check in status.checks if check.ok is False]
    # Required checks come first, since the message may be cut.
    failed.sort(key=lambda check: check.level != "required")
    messages = [f"{check.name} ({check.level}): {check.message or 'failed'}" for check in failed]
    if status.operation:
        messages.insert(0, status.operation)
    reason = "ChecksPass" if status.is_healthy else "ChecksFail"
    return _condition(EDGE_HEALTHY, status.is_healthy, reason, "; ".join(messages))


def _test_message(status: HealthStatus) -> str:
    if status.phase not in _TESTED:
        return ""
    rest = f"{status.remaining_test_time} s of the test window remain"
    return f"{rest}; it does not count now: {status.held_by}" if status.held_by else rest


def _condition(type_: str, holds: bool, reason: str, message: str) -> NodeCondition:
    return NodeCondition(
        type=type_, status="True" if holds else "False", reason=reason, message=message[:_MAX_MESSAGE]
    )


def metrics(health: Callable[[], HealthStatus | None]) -> Iterator[Metric]:
    """Yield the metrics. `health`: returns the guardian's last status; without one, the metrics have no values."""

    def of(field: str) -> Callable[[], list[tuple[tuple[()], float]]]:
        def read() -> list[tuple[tuple[()], float]]:
            status = health()
            return [((), float(getattr(status, field)))] if status is not None else []

        return read

    def checks() -> list[tuple[tuple[str, str], float]]:
        status = health()
        known = [check for check in status.checks if check.ok is not None] if status is not None else []
        return [((check.name, check.level), float(bool(check.ok))) for check in known]

    yield gauge("kubeletx_edge_healthy", "1 while no required check of the guardian fails.", of("is_healthy"))
    text = "Result of each check of the guardian: 1 passed, 0 failed."
    yield gauge("kubeletx_edge_check", text, checks, "check", "level")
    text = "Seconds that remain of the test window of an OS image; 0: none is tested."
    yield gauge("kubeletx_edge_test_seconds", text, of("remaining_test_time"))
    text = "1 while the node is in maintenance mode."
    yield gauge("kubeletx_edge_maintenance", text, of("maintenance_mode"))
    text = "Seconds since the guardian last had contact with the controller."
    yield gauge("kubeletx_edge_silent_seconds", text, of("silent_seconds"))
