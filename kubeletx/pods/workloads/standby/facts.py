"""Facts that only pods have whose runtime can freeze and hibernate containers."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from ...model.facts import ActionFailure, PodFacts, WorkloadFacts


class StandbyFacts(WorkloadFacts, frozen=True, kw_only=True):
    """Facts of a pod that can be frozen: the last failed calls, by container name.

    An entry is removed when a call of the same kind succeeds.
    """

    rest_failures: dict[str, ActionFailure] = {}
    """Failures of freezing or hibernating; `retry_at` None if the runtime can never do it."""
    thaw_failures: dict[str, ActionFailure] = {}
    """Failures of thawing."""
    memory: dict[str, tuple[int, int]] = {}
    """Memory in bytes before and after the hibernation, of each hibernated container that was measured."""

    def edited(self) -> Self:
        """Return the facts without failures, so that calls that were not to be retried are tried again."""
        return replace(self, rest_failures={}, thaw_failures={})


_NONE = StandbyFacts()


def standby_of(facts: PodFacts) -> StandbyFacts:
    """Return the pod's failed freeze and thaw calls; an empty `StandbyFacts` if no call has failed."""
    return facts.of(StandbyFacts) or _NONE
