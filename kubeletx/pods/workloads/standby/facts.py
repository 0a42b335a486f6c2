"""Facts of pods whose runtime can freeze and hibernate their units (containers or machines)."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from kubeletx.api import names
from kubeletx.kube.types.core import PodCondition, PodStatus

from ...model.facts import ActionFailure, Fact, PodFacts, WorkloadFacts
from ...model.frame import find_condition


class StandbyChange(Fact, frozen=True, kw_only=True):
    """Freeze, hibernation or thaw of a whole pod: the calls for all its containers.

    `step`: a value of `StandbyStep`. `began_at`: monotonic start of the first call. `ended_at`: monotonic end of the
    last call that has ended.
    """

    step: str
    began_at: float
    ended_at: float

    @property
    def seconds(self) -> float:
        return self.ended_at - self.began_at


class StandbyFacts(WorkloadFacts, frozen=True, kw_only=True):
    """Facts of a pod of containers that can be frozen: failed calls, memory by container name, and last changes.

    `MachineFacts` extend them. The entry of a failed call is removed when a call of the same kind succeeds.
    """

    rest_failures: dict[str, ActionFailure] = {}
    """Failures of freezing or hibernating; `retry_at` None if the runtime can never do it."""
    thaw_failures: dict[str, ActionFailure] = {}
    """Failures of thawing."""
    memory: dict[str, tuple[int, int]] = {}
    """Memory in bytes before and after the hibernation, of each hibernated container that was measured."""
    under_way: StandbyChange | None = None
    """Change of the pod of which some containers have the new state; None if there is none."""
    last: StandbyChange | None = None
    """Last change that all containers took part in; None if there was none since the agent started."""

    @property
    def last_step(self) -> str:
        """The last successful call of this agent process, a value of `StandbyStep`; empty if there was none."""
        change = self.under_way or self.last
        return change.step if change is not None else ""

    def edited(self) -> Self:
        return replace(self, rest_failures={}, thaw_failures={})


_NONE = StandbyFacts()


def standby_of(facts: PodFacts) -> StandbyFacts:
    """Return the pod's facts on standby, also of a machine; empty facts if the pod cannot be frozen."""
    return facts.of(StandbyFacts) or _NONE


def find_standby(status: PodStatus | None) -> PodCondition | None:
    """Return condition `names.STANDBY_CONDITION` of the status; None if there is none."""
    return find_condition(status, names.STANDBY_CONDITION)


def memory_of(known: StandbyFacts) -> tuple[int, int] | None:
    """Return the memory in bytes of all measured units before and after the hibernation; None without one."""
    if not known.memory:
        return None
    return sum(memory[0] for memory in known.memory.values()), sum(
        memory[1] for memory in known.memory.values()
    )
