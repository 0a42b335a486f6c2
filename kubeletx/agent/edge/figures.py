"""Metrics of the guardian's verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubeletx.api.counting import Metric, gauge
from kubeletx.health.topics import HealthStatus


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
