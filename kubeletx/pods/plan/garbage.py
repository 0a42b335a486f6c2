"""Selects dead containers and sandboxes of a running pod for removal (docs/kubelet-parity.md, row I7). Pure.

    a unit is removed if      it is dead, is not its container's newest dead unit, and not its newest unit
    a sandbox is removed if   it is not ready, is not the newest of its pod, and has no unit left in it

The newest dead unit is kept for `logs --previous`. A container's newest unit is never removed here, because the
runtime shows it as dead between create and start. `plan.stop` removes everything of ending pods.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeletx.api import SandboxState, SandboxSummary, UnitState, UnitSummary

KEPT_DEAD_UNITS = 1
"""Number of dead units kept for each container, whether or not it also has a living one."""


class Garbage(msgspec.Struct, frozen=True, kw_only=True):
    """Dead units (containers or machines) and sandboxes of one pod that may be removed now, each oldest first.

    All units must be removed before the sandboxes.
    """

    units: tuple[UnitSummary, ...] = ()
    sandboxes: tuple[SandboxSummary, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.units and not self.sandboxes


def dead_objects(sandboxes: Sequence[SandboxSummary], units: Sequence[UnitSummary]) -> Garbage:
    """Select the sandboxes and units of one pod that may be removed, by the rules of this module."""
    going = _dead_units(units)
    removed = {unit.id for unit in going}
    used = {unit.sandbox_id for unit in units if unit.id not in removed}
    newest = max(sandboxes, key=_age, default=None)
    unused = [
        sandbox
        for sandbox in sandboxes
        if sandbox.state is SandboxState.NOT_READY and sandbox.id not in used and sandbox is not newest
    ]
    return Garbage(units=tuple(sorted(going, key=_age)), sandboxes=tuple(sorted(unused, key=_age)))


def _dead_units(units: Sequence[UnitSummary]) -> list[UnitSummary]:
    """Return the dead units to remove: not a container's newest `KEPT_DEAD_UNITS` dead ones, nor its newest unit."""
    by_container: dict[str, list[UnitSummary]] = {}
    for unit in sorted(units, key=_age, reverse=True):
        by_container.setdefault(unit.name, []).append(unit)
    going: list[UnitSummary] = []
    for named in by_container.values():
        dead = [unit for unit in named if unit.state in (UnitState.EXITED, UnitState.CREATED)]
        going += [unit for unit in dead[KEPT_DEAD_UNITS:] if unit is not named[0]]
    return going


def _age(thing: UnitSummary | SandboxSummary) -> tuple[int, int]:
    """Return a sort key: the attempt, then the time of creation; a newer object has the larger key."""
    return (thing.attempt, thing.created_at_ns)
