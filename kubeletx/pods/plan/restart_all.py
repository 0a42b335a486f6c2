"""Restart rules with action RestartAllContainers (docs/kubelet-parity.md, row L7).

If a container exits with a code that matches such a rule, all containers of the pod are restarted in the same
sandbox.

Each unit has a generation number, which is stored in an annotation when it is created. The first generation is 0.
An exit that matches a rule makes the next generation due:

    unit of generation g exits, rule matches ─► generation g + 1 is due
      ├─ living units of earlier generations are stopped; the sandbox and the volumes are kept
      ├─ then all containers start as in a new pod: init containers in order, then the others
      └─ the new units have generation g + 1, so that the old exit causes no further restart

Only annotations and exit codes are used, so that a new agent process can continue an unfinished restart. The
status is as with the kubelet: until the first container starts again, condition AllContainersRestarting is True
and ended containers wait with reason RestartingAllContainers; their last run is shown with exit code 137 and
this reason. Source: KEP-5532; kubelet, kubelet_pods.go (convertToAPIContainerStatuses) and status/generate.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletx.api import UnitState, UnitSummary
from kubeletx.api.names import RESTART_GENERATION
from kubeletx.kube.text.numbers import whole_number
from kubeletx.kube.types.core import Container, ContainerStateTerminated

from ..model.facts import DesiredPod, PodFacts
from ..model.restart_policy import LOST_EXIT_CODE, RESTART_ALL, rule_for
from ..model.roles import init_units, regular_units
from ..model.runs import exit_code_of
from .sandbox import current_sandbox

RESTARTING_ALL = "RestartingAllContainers"
MESSAGE = "The container is removed because RestartAllContainers in place"


def generation_of(unit: UnitSummary) -> int:
    """Return the generation number in the unit's annotation; 0 if it has none."""
    return whole_number(unit.annotations.get(RESTART_GENERATION)) or 0


def due_generation(desired: DesiredPod, facts: PodFacts) -> int:
    """Return the generation number that all units of the current sandbox should have.

    It is 0 if the pod has no rule with action RestartAllContainers.
    """
    if not has_rule(desired):
        return 0
    return max((_asks_for(container, unit, facts) for container, unit in _newest(desired, facts)), default=0)


def is_outdated(desired: DesiredPod, facts: PodFacts, unit: UnitSummary | None) -> bool:
    """Return True if the unit is in the current sandbox and must be replaced: its generation is below the due one."""
    if unit is None:
        return False
    sandbox = current_sandbox(facts)
    if sandbox is None or unit.sandbox_id != sandbox.id:
        return False
    return generation_of(unit) < due_generation(desired, facts)


def has_rule(desired: DesiredPod) -> bool:
    """Return True if a container of the pod has a rule with action RestartAllContainers."""
    for container in _containers(desired):
        for rule in container.restart_policy_rules:
            if rule.action == RESTART_ALL:
                return True
    return False


def is_restarting(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True during a restart of all containers: an old unit is still alive, or no new unit exists yet."""
    due = due_generation(desired, facts)
    if due == 0:
        return False
    units = [unit for _, unit in _newest(desired, facts)]
    lives = any(unit.state.is_alive and generation_of(unit) < due for unit in units)
    return lives or all(generation_of(unit) < due for unit in units)


def end_by_restart() -> ContainerStateTerminated:
    """Build the terminated state that is reported for a container ended by a restart of all containers."""
    return ContainerStateTerminated(exit_code=LOST_EXIT_CODE, reason=RESTARTING_ALL, message=MESSAGE)


def outdated_units(desired: DesiredPod, facts: PodFacts) -> list[tuple[Container, UnitSummary]]:
    """Return each container whose newest unit is of an earlier generation, with this unit; last container first."""
    due = due_generation(desired, facts)
    if due == 0:
        return []
    outdated = [(container, unit) for container, unit in _newest(desired, facts) if generation_of(unit) < due]
    return outdated[::-1]


def _asks_for(container: Container, unit: UnitSummary, facts: PodFacts) -> int:
    own = generation_of(unit)
    if unit.state is not UnitState.EXITED:
        return own
    code = exit_code_of(facts, unit)
    rule = rule_for(container, code) if code is not None else None
    return own + 1 if rule is not None and rule.action == RESTART_ALL else own


def _newest(desired: DesiredPod, facts: PodFacts) -> Iterator[tuple[Container, UnitSummary]]:
    """Yield each container whose newest unit is in the current sandbox, with this unit."""
    sandbox = current_sandbox(facts)
    if sandbox is None or facts.snapshot is None:
        return
    newest: dict[str, UnitSummary] = {}
    for unit in facts.snapshot.units:
        newest.setdefault(unit.name, unit)
    for container in _containers(desired):
        newest_unit = newest.get(container.name)
        if newest_unit is not None and newest_unit.sandbox_id == sandbox.id:
            yield container, newest_unit


def _containers(desired: DesiredPod) -> tuple[Container, ...]:
    return (*init_units(desired.pod), *regular_units(desired.pod))
