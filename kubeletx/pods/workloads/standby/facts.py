"""Facts of a pod whose runtime can freeze and hibernate its units."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from ...model.facts import ActionFailure, PodFacts, WorkloadFacts


class StandbyFacts(WorkloadFacts, frozen=True, kw_only=True):
    """Facts of a pod that can be frozen: failed calls by container.

    A later success of the same kind drops the entry.
    """

    rest_failures: dict[str, ActionFailure] = {}
    """Failures of a freeze or hibernation; `retry_at` None if the runtime can never do it."""
    thaw_failures: dict[str, ActionFailure] = {}

    def edited(self) -> Self:
        """Return the facts without failures, so that calls which excluded a retry are tried again."""
        return replace(self, rest_failures={}, thaw_failures={})


_NONE = StandbyFacts()


def standby_of(facts: PodFacts) -> StandbyFacts:
    """The pod's standby facts; empty ones if it has none."""
    return facts.of(StandbyFacts) or _NONE
