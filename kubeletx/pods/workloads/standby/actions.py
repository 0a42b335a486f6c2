"""Action that freezes, hibernates or thaws one container or machine. It extends the actions in `model.actions`."""

from __future__ import annotations

import enum
from typing import ClassVar

from kubeletx.api import UnitId

from ...model.actions import Action
from ...model.facts import ActionFailure, PodFacts
from .facts import standby_of


class StandbyStep(enum.Enum):
    """Call of protocol `SupportsStandby` that changes the state of a container or machine."""

    FREEZE = "freeze"
    HIBERNATE = "hibernate"
    THAW = "thaw"


class SetStandby(Action, frozen=True, kw_only=True):
    """Freeze, hibernate or thaw the unit of container or machine `name`. `step`: a value of `StandbyStep`."""

    name: str
    unit_id: UnitId
    step: str
    is_machine: bool = False
    subject: ClassVar[str] = "unit"
    doing: ClassVar[str] = "changing the standby state of"

    @property
    def target(self) -> str:
        return self.step

    @property
    def holds_probes(self) -> bool:
        """True for a freeze and a hibernation: even an attempt that fails may stop some threads for seconds."""
        return self.step != StandbyStep.THAW.value

    @property
    def revocable(self) -> bool:
        """True for the hibernation of a container, which takes seconds; freezes and thaws take milliseconds.

        False for a machine: hypervisors such as libvirt save its memory in a job that goes on when its caller is
        cancelled, so that a wake has to wait for its end.
        """
        return self.step == StandbyStep.HIBERNATE.value and not self.is_machine

    def failure(self, facts: PodFacts) -> ActionFailure | None:
        known = standby_of(facts)
        failures = known.thaw_failures if self.step == StandbyStep.THAW.value else known.rest_failures
        return failures.get(self.name)
