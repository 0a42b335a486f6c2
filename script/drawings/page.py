"""The text of docs/states.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import health, remedy, states

_HEAD: Final = """\
# States

Generated from the code, by calling its pure functions with every state and cause. Do not edit this page: run
`.venv/bin/python -m script.drawings`. A test compares the page with the code.
"""

_SECTIONS: Final[tuple[tuple[str, str, Callable[[], str]], ...]] = (
    (
        "Phase of a pod",
        "A pod with one init container and one container, by restart policy (`pods/model/phase.py`). An arrow without a\n"
        "policy applies to all policies. While a container waits for its restart, the pod stays Running. Deleted pods and\n"
        "sidecars are not shown.",
        states.phases,
    ),
    (
        "Goal of a plan",
        "The goal is derived from the facts for each plan and never stored (`goal_of` in `pods/plan/pod.py`). RUN starts units.\n"
        "END stops them and keeps what status and logs need. DELETE removes everything, the binding last.",
        states.goals,
    ),
    (
        "States of a unit",
        "A runtime reports these states (`UnitState` in `api/observed.py`). The Kubernetes API has no state for paused or\n"
        "suspended units: it shows them as running, and condition `kubeletx.io/UnitsRunning` names the true state.",
        states.units,
    ),
    (
        "Actions",
        "The actions that a plan may start (`pods/model/actions.py`), each with the file below `kubeletx/pods` that contains its\n"
        "step, and the result that the worker applies if the step has a bug (`pods/steps/dispatch.py`). For each unit, at most\n"
        "one action per value of column *changes* runs at a time. After a call that timed out, a look shows its effect.",
        states.actions,
    ),
    (
        "Node under a FornaxCore",
        "The table of a node that FornaxCores manage (`fornax/node_machine.py`). A node without cores has no such state. A\n"
        "configuration that arrives while the node is Ready is applied without leaving that state.",
        states.fornax_node,
    ),
    (
        "States of a session",
        "The table of an application session (`sessions/model.py`). *Reports* are messages of the application in the instance\n"
        "(pod). A client that joins or leaves while others remain changes nothing. A session on a pod without the annotation\n"
        "`kubeletx.io/sessions` needs no reports: it opens and closes at once.",
        states.sessions,
    ),
    (
        "Pod of a FornaxCore",
        "The table of a pod that a core created (`fornax/pods/machine.py`). The first cause of a state that holds counts, and\n"
        "several changes may follow at once. LivenessChecking is reported as Creating, Hibernating as Running. Left out:\n"
        "*nothing is left of it* leads from every state to Terminated.",
        states.fornax_pods,
    ),
    (
        "Health of a runtime",
        f"The state after each probe of the runtime (`step` in `runtimes/handles/health.py`), with a grace period of {states.GRACE_SECONDS:g} s. NotReady is a runtime\n"
        "that answers and reports itself or its network not ready. One failed probe within the grace period changes\n"
        "nothing.",
        states.health,
    ),
    (
        "Readiness of the node",
        "Conditions of a node with two runtimes, by `--node-readiness-policy` (`node/readiness.py`). Policy `all`\n"
        "does not require a cordoned runtime to be ready.",
        states.readiness,
    ),
    (
        "Upgrade of the OS image",
        "The table of the guardian (`health/validation.py`), with the numbers T1 to T14 of EVE. The phase follows from the slots\n"
        "at each tick: a guardian that was killed finds it again.",
        health.upgrade,
    ),
    (
        "Reboot, shutdown and poweroff",
        "The table of an operation of the guardian (`health/operations.py`). One that the guardian itself decides begins at\n"
        "Announced.",
        health.operations,
    ),
    (
        "Drain before an operation or an update",
        "The table of the guardian's wait for a drain of the node (`health/drain.py`). Drained and Skipped let the operation or\n"
        "the update begin.",
        health.drain,
    ),
    (
        "Maintenance mode",
        "The mode, by everything that decides about it (`decide` in `health/maintenance.py`).",
        health.maintenance,
    ),
    (
        "Flow of node remedy",
        "A node with one remedy (`advance` and `after` in `remedy/automaton.py`). *The time*: the threshold's period, or the\n"
        "setting of this status. Not shown: further remedies, policy, pauses and stops.",
        remedy.flow,
    ),
)


def page() -> str:
    """Text of the whole page."""
    parts = [_HEAD, *(f"## {title}\n\n{text}\n\n{draw()}\n" for title, text, draw in _SECTIONS)]
    return "\n".join(parts)
