"""Resources that a pod on standby does not use. Pure."""

from __future__ import annotations

from typing import Final

from kubeletx.kube.types.core import PodStatus

from ..model.facts import DesiredPod, PodFacts
from .power import Power, strongest
from .standby.facts import find_standby
from .standby.status import HIBERNATED, STANDBY
from .table import workload_of

_UNUSED: Final = {Power.STANDBY: ("cpu",), Power.HIBERNATED: ("cpu", "memory")}
_OF_REASON: Final = {STANDBY: _UNUSED[Power.STANDBY], HIBERNATED: _UNUSED[Power.HIBERNATED]}


def unused_resources(desired: DesiredPod, facts: PodFacts) -> tuple[str, ...]:
    """Return the resources that a frozen pod does not use: CPU, and memory if it is hibernated; empty if it runs.

    Also empty once the pod should run again, before the first container is thawed.
    """
    if desired.is_ending:
        return ()
    if facts.snapshot is None:
        return unused_by(facts.previous_status)
    workload = workload_of(facts)
    if not workload.can_standby(facts):
        return ()
    rests = workload.rest_of(desired, facts)
    is_unread = facts.overrides is None and facts.recovered  # the stored request is not known yet
    return _UNUSED.get(rests if is_unread else strongest((rests, workload.wanted_power(desired, facts))), ())


def unused_by(status: PodStatus | None) -> tuple[str, ...]:
    """Return `unused_resources` from a stored status; used after a restart until the runtime has listed the pod."""
    condition = find_standby(status)
    if condition is None or condition.status != "True":
        return ()
    return _OF_REASON.get(condition.reason or "", ())
