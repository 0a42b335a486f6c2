"""Results of actions for machines, and the change that each makes to the facts. See `model.results`."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kubeletx.api import NicStatus, UnitId

from ...model.backoff import SYNC, RetryPolicy
from ...model.facts import Now, PodFacts
from ...model.results import Result, apply, next_try
from .facts import machine_unit, with_machine_unit

NIC: Final = RetryPolicy(initial_seconds=1, cap_seconds=60, jitter=0.1)
"""Back-off for attaching and detaching a network interface of a machine."""


class PowerSet(Result, frozen=True):
    """The power state of machine `name` was changed."""

    name: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return with_machine_unit(replace(facts, changed_at=now.mono), self.name, power_failure=None)


class PowerFailed(Result, frozen=True):
    """Changing the power state of machine `name` failed or got no answer; it is retried with back-off."""

    name: str
    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(machine_unit(facts, self.name).power_failure, SYNC, self.reason, self.message, now)
        return with_machine_unit(
            replace(facts, changed_at=now.mono, look_wanted_at=now.mono), self.name, power_failure=failure
        )


class NicsSeen(Result, frozen=True):
    """The machine's network interfaces were listed; `nics` are the present ones."""

    name: str
    unit_id: UnitId
    nics: tuple[NicStatus, ...]

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return with_machine_unit(
            facts,
            self.name,
            nics=self.nics,
            nics_unit=self.unit_id,
            nics_at=now.mono,
            nics_stale=False,
            nic_failure=None,
        )


class NicsChanged(Result, frozen=True):
    """Interface `nic` of the machine was attached or detached; the interfaces are listed again."""

    name: str
    nic: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        facts = replace(facts, changed_at=now.mono)
        return with_machine_unit(
            apply(facts, NicRetried(self.name, self.nic), now), self.name, nics_stale=True, nic_failure=None
        )


class NicsUnlisted(Result, frozen=True):
    """Listing the machine's network interfaces failed; it is retried with back-off."""

    name: str
    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(machine_unit(facts, self.name).nic_failure, SYNC, self.reason, self.message, now)
        return with_machine_unit(facts, self.name, nics_stale=True, nic_failure=failure)


class NicFailed(Result, frozen=True):
    """Attaching or detaching interface `nic` of the machine failed; other interfaces are not affected.

    `may_heal` True: it is retried with back-off. False: it is retried only after the pod or the request changed.
    """

    name: str
    nic: str
    reason: str
    message: str
    may_heal: bool = True

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failures = machine_unit(facts, self.name).nic_failures
        failure = next_try(failures.get(self.nic), NIC, self.reason, self.message, now)
        if not self.may_heal:
            failure = replace(failure, retry_at=None)
        return with_machine_unit(
            facts, self.name, nics_stale=True, nic_failures={**failures, self.nic: failure}
        )


class NicRetried(Result, frozen=True):
    """The last failure of interface `nic` is dropped, so that attaching or detaching it can be tried at once."""

    name: str
    nic: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failures = machine_unit(facts, self.name).nic_failures
        kept = {known: failure for known, failure in failures.items() if known != self.nic}
        return with_machine_unit(facts, self.name, nic_failures=kept) if kept != failures else facts
