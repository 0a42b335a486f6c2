"""Resources that a pod on standby does not use. Pure."""

from __future__ import annotations

from typing import Final

from ..model.facts import DesiredPod, PodFacts
from .power import Power, strongest
from .table import workload_of

_SPARED: Final = {Power.STANDBY: ("cpu",), Power.HIBERNATED: ("cpu", "memory")}


def spared_resources(desired: DesiredPod, facts: PodFacts) -> tuple[str, ...]:
    """Return the resources that a frozen pod does not use: CPU, and memory if it is hibernated; empty if it runs.

    Empty too from the moment when the pod should run again, before the first container is thawed.
    """
    workload = workload_of(facts)
    if desired.is_ending or not workload.can_standby(facts):
        return ()
    return _SPARED.get(
        strongest((workload.rest_of(desired, facts), workload.wanted_power(desired, facts))), ()
    )
