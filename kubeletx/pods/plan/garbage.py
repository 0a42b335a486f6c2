"""Dead units and sandboxes of a living pod that may be removed (I7 in docs/kubelet-parity.md). Pure.

    unit       dead, and not the newest dead one of its container       → remove
    sandbox    not ready, not the newest of its pod, no unit left in it → remove

The kept units are for `logs --previous`. The newest unit of a container is never removed here: between create
and start a list of the runtime shows it as dead. `plan.stop` removes everything of ending pods.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeletx.api import SandboxState, SandboxSummary, UnitState, UnitSummary

KEPT_DEAD_UNITS = 1
"""Dead units kept for each container, with or without a living one."""


class Garbage(msgspec.Struct, frozen=True, kw_only=True):
    """Dead objects of one pod that may be removed now, each list oldest first.

    Units are removed before sandboxes.
    """

    units: tuple[UnitSummary, ...] = ()
    sandboxes: tuple[SandboxSummary, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing is to be removed."""
        return not self.units and not self.sandboxes


def dead_objects(sandboxes: Sequence[SandboxSummary], units: Sequence[UnitSummary]) -> Garbage:
    """Select the objects of one pod that may be removed, by the rules of this module."""
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
    """Dead units beyond the newest `KEPT_DEAD_UNITS` of each container, without its newest unit."""
    by_container: dict[str, list[UnitSummary]] = {}
    for unit in sorted(units, key=_age, reverse=True):
        by_container.setdefault(unit.name, []).append(unit)
    going: list[UnitSummary] = []
    for named in by_container.values():
        dead = [unit for unit in named if unit.state in (UnitState.EXITED, UnitState.CREATED)]
        going += [unit for unit in dead[KEPT_DEAD_UNITS:] if unit is not named[0]]
    return going


def _age(thing: UnitSummary | SandboxSummary) -> tuple[int, int]:
    """Sort key: the attempt, then the time of creation; a newer object has the larger key."""
    return (thing.attempt, thing.created_at_ns)
