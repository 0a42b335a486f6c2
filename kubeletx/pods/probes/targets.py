"""`targets_of`: finds the units (containers, or the machine) of a pod that must be probed now. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from kubeletx.api import UnitId, UnitState, UnitSummary
from kubeletx.kube.types.core import Container, Probe

from ..model.facts import DesiredPod, HookState, PodFacts, ProbeFacts
from ..model.frame import at_ns, is_of_unit, previous_of
from ..model.roles import regular_units, sidecars
from ..model.runs import boot_of, is_of_boot
from .outcome import ProbeKind


class ProbeTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One unit (container or machine) that is alive and has probes.

    `boot`: identifier of the machine's present boot (`runs.boot_of`), empty for containers and while unknown; after
    another boot its probes begin again. `delays_from_now`: the machine rebooted at an unknown time, so that initial delays
    count from now.
    `field`: path of the container in the pod, for events, such as spec.containers{web}. `is_resting`: the unit is not
    running, for example paused or suspended, so that probes wait. `is_held`: an action that may pause it is in flight,
    so that probes wait, too. `is_stopping`: only readiness is probed.
    `was_started`, `was_ready`: values that an earlier agent process reported for this unit; None if there are none.
    """

    container: Container
    unit_id: UnitId
    boot: str = ""
    delays_from_now: bool = False
    field: str = ""
    pod_ip: str = ""
    started_at: datetime | None = None
    is_resting: bool = False
    is_held: bool = False
    is_stopping: bool = False
    was_started: bool | None = None
    was_ready: bool | None = None
    known: ProbeFacts | None = None
    """Probe values that the pod's worker knows; if the values of the `ProbeSet` differ, it reports them again."""

    @property
    def name(self) -> str:
        return self.container.name

    def probe(self, kind: ProbeKind) -> Probe | None:
        """The container's probe of this kind; None if it has none."""
        match kind:
            case ProbeKind.READINESS:
                return self.container.readiness_probe
            case ProbeKind.LIVENESS:
                return self.container.liveness_probe
            case ProbeKind.STARTUP:
                return self.container.startup_probe


def has_probes(container: Container) -> bool:
    """Return True if the container has any probe."""
    return any((container.readiness_probe, container.liveness_probe, container.startup_probe))


def targets_of(desired: DesiredPod, facts: PodFacts, *, is_stopping: bool) -> tuple[ProbeTarget, ...]:
    """Return the units to probe: regular containers, sidecars or the machine, if they have probes and are alive.

    Units whose postStart hook is pending, running or failed are left out. `is_stopping`: the pod is ending, so that
    only readiness is probed (docs/kubelet-parity.md, row P3).
    """
    pod = desired.pod
    named = [("spec.initContainers", c) for c in sidecars(pod)]
    named += [("spec.containers", c) for c in regular_units(pod)]
    address = pod_ip(facts)
    targets = []
    for field, container in named:
        if not has_probes(container):
            continue
        place = f"{field}{{{container.name}}}"
        target = _seen(facts, container) if facts.snapshot is not None else _stored(facts, container)
        if target is not None:
            targets.append(
                replace(
                    target,
                    field=place,
                    pod_ip=address,
                    is_stopping=is_stopping or container.name in facts.stopping,
                    known=facts.unit(container.name).probes,
                )
            )
    return tuple(targets)


def _seen(facts: PodFacts, container: Container) -> ProbeTarget | None:
    """Return the target by the last snapshot; None if the unit is not alive or its postStart hook is not done."""
    unit = facts.newest(container.name)
    if unit is None or not unit.state.is_alive or _has_open_hook(facts, unit):
        return None
    status = facts.snapshot.status_of(unit.id) if facts.snapshot is not None else None
    if status is None and facts.own.reboots and facts.recovered:
        return _stored(facts, container)  # the query in progress shows whether it has rebooted
    previous = previous_of(facts.previous_status, container.name)
    is_known = facts.recovered and is_of_unit(previous, unit.id)
    has_rebooted = is_known and not is_of_boot(previous, facts, unit)
    is_known = is_known and not has_rebooted
    return ProbeTarget(
        container=container,
        unit_id=unit.id,
        boot=boot_of(facts, unit),
        delays_from_now=has_rebooted,
        started_at=at_ns(status.started_at_ns if status is not None else unit.created_at_ns),
        is_resting=unit.state is not UnitState.RUNNING,
        is_held=container.name in facts.probes_held,
        was_started=previous.started if is_known and previous is not None else None,
        was_ready=previous.ready if is_known and previous is not None else None,
    )


def _stored(facts: PodFacts, container: Container) -> ProbeTarget | None:
    """Return the target by the stored pod status; None if the container did not run according to it.

    Used as long as the runtime has not answered since the agent started.
    """
    previous = previous_of(facts.previous_status, container.name)
    if previous is None or previous.state.running is None or not previous.container_id:
        return None
    return ProbeTarget(
        container=container,
        unit_id=UnitId(previous.container_id.partition("://")[2]),
        started_at=previous.state.running.started_at,
        was_started=previous.started,
        was_ready=previous.ready,
    )


def _has_open_hook(facts: PodFacts, unit: UnitSummary) -> bool:
    known = facts.unit(unit.name)
    return known.hook_unit == unit.id and known.hook in (
        HookState.PENDING,
        HookState.RUNNING,
        HookState.FAILED,
    )


def pod_ip(facts: PodFacts) -> str:
    """Return the pod's first IP address, for network probes and hooks; empty if it has none.

    While the runtime reports no address, the address in the previous pod status is used.
    """
    seen = facts.snapshot.sandbox_status if facts.snapshot is not None else None
    if seen is not None and seen.ips:
        return seen.ips[0]
    previous = facts.previous_status
    return previous.pod_ip or "" if previous is not None else ""
