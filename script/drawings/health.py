"""Sections of docs/states.md about the guardian of the node (kubeletx/health)."""

from __future__ import annotations

import itertools

from kubeletx.health import drain as drains
from kubeletx.health import operations as ends
from kubeletx.health import validation
from kubeletx.health.maintenance import MaintenanceReason, decide

from .text import Edge, drawing, table


def upgrade() -> str:
    """Drawing of the phases of an OS upgrade."""
    edges = [Edge(before, cause, after) for (before, cause), after in validation.TABLE.items()]
    return drawing(validation.Phase.NORMAL, edges)


def operations() -> str:
    """Drawing of the steps of a reboot, shutdown or poweroff."""
    edges = [Edge(before, cause, after) for (before, cause), after in ends.TABLE.items()]
    return drawing(ends.OperationStep.WAITING, edges, [ends.OperationStep.LATE, ends.OperationStep.HALTED])


def drain() -> str:
    """Drawing of the guardian's wait for a drain."""
    edges = [Edge(before, cause, after) for (before, cause), after in drains.TABLE.items()]
    return drawing(drains.DrainPhase.NONE, edges)


def maintenance() -> str:
    """Table of maintenance mode, by everything that decides about it."""
    rows = []
    for word, is_asked, reasons in itertools.product(
        ("enabled", "disabled", "none"),
        (True, False),
        (frozenset({MaintenanceReason.NO_DISK_SPACE}), frozenset[MaintenanceReason]()),
    ):
        mode = decide(word, is_asked, reasons)
        cells = (f"`{word}`", "yes" if is_asked else "no", ", ".join(reasons) or "none")
        rows.append([*cells, "on" if mode.is_on else "off", mode.decided_by])
    return table(
        ["`maintenance.mode`", "controller asks for it", "local reasons", "mode", "decided by"], rows
    )
