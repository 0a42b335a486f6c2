"""Restart rules with action RestartAllContainers (L7 in docs/kubelet-parity.md).

One container's exit restarts all containers of the pod in the same sandbox.

Every unit belongs to a generation, 0 at first, written on it as an annotation when it is created. A unit that
ended with an exit code that matches such a rule of its container requests the generation after its own:

    unit exits, rule matches ─► generation g + 1 is due
      ├─ living units of earlier generations are stopped (the sandbox and the volumes stay)
      ├─ once none lives, all containers start again as at first: init containers in order, then the others
      └─ what they start carries g + 1, so that the old exit requests nothing more

Only annotations and exit codes decide, so that a new agent process continues a restart that it finds begun.
Users see what a kubelet shows: until the first container starts again, condition AllContainersRestarting is
True and ended containers wait with reason RestartingAllContainers; their last run ended with exit code 137
and that reason. Source: KEP-5532; kubelet, kubelet_pods.go (convertToAPIContainerStatuses) and
status/generate.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletx.api import UnitState, UnitSummary
from kubeletx.api.names import RESTART_GENERATION
from kubeletx.kube.text.numbers import whole_number
from kubeletx.kube.types.core import Container, ContainerStateTerminated

from ..model.exits import exit_code_of
from ..model.facts import DesiredPod, PodFacts
from ..model.restart_policy import LOST_EXIT_CODE, RESTART_ALL, rule_for
from ..model.roles import init_units, regular_units
from .sandbox import current_sandbox

RESTARTING_ALL = "RestartingAllContainers"
MESSAGE = "The container is removed because RestartAllContainers in place"


def generation_of(unit: UnitSummary) -> int:
    """The generation the unit was created for."""
    return whole_number(unit.annotations.get(RESTART_GENERATION)) or 0


def due_generation(desired: DesiredPod, facts: PodFacts) -> int:
    """The generation that all units of the current sandbox should have.

    0 if the pod has no rule that restarts all containers.
    """
    if not has_rule(desired):
        return 0
    return max((_asks_for(container, unit, facts) for container, unit in _newest(desired, facts)), default=0)


def is_outdated(desired: DesiredPod, facts: PodFacts, unit: UnitSummary | None) -> bool:
    """Return True if the unit is in the current sandbox and of an earlier generation than the due one."""
    if unit is None:
        return False
    sandbox = current_sandbox(facts)
    if sandbox is None or unit.sandbox_id != sandbox.id:
        return False
    return generation_of(unit) < due_generation(desired, facts)


def has_rule(desired: DesiredPod) -> bool:
    """Return True if a rule of the pod may restart all its containers."""
    return any(rule.action == RESTART_ALL for c in _containers(desired) for rule in c.restart_policy_rules)


def is_restarting(desired: DesiredPod, facts: PodFacts) -> bool:
    """Return True during a restart of all containers: an old unit still lives, or no new one exists yet."""
    due = due_generation(desired, facts)
    if due == 0:
        return False
    found = [unit for _, unit in _newest(desired, facts)]
    lives = any(unit.state.is_alive and generation_of(unit) < due for unit in found)
    return lives or all(generation_of(unit) < due for unit in found)


def end_by_restart() -> ContainerStateTerminated:
    """Terminated state of a container that was restarted with all others."""
    return ContainerStateTerminated(exit_code=LOST_EXIT_CODE, reason=RESTARTING_ALL, message=MESSAGE)


def outdated_units(desired: DesiredPod, facts: PodFacts) -> list[tuple[Container, UnitSummary]]:
    """Containers whose newest unit has an earlier generation, with that unit, last container first."""
    due = due_generation(desired, facts)
    if due == 0:
        return []
    found = [(container, unit) for container, unit in _newest(desired, facts) if generation_of(unit) < due]
    return found[::-1]


def _asks_for(container: Container, unit: UnitSummary, facts: PodFacts) -> int:
    own = generation_of(unit)
    if unit.state is not UnitState.EXITED:
        return own
    code = exit_code_of(facts, unit)
    rule = rule_for(container, code) if code is not None else None
    return own + 1 if rule is not None and rule.action == RESTART_ALL else own


def _newest(desired: DesiredPod, facts: PodFacts) -> Iterator[tuple[Container, UnitSummary]]:
    """Yield each container with its newest unit, if it is in the current sandbox."""
    sandbox = current_sandbox(facts)
    if sandbox is None or facts.snapshot is None:
        return
    newest: dict[str, UnitSummary] = {}
    for unit in facts.snapshot.units:
        newest.setdefault(unit.name, unit)
    for container in _containers(desired):
        found = newest.get(container.name)
        if found is not None and found.sandbox_id == sandbox.id:
            yield container, found


def _containers(desired: DesiredPod) -> tuple[Container, ...]:
    return (*init_units(desired.pod), *regular_units(desired.pod))
