"""The text of docs/states.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from . import states

_HEAD: Final = """\
# States

Generated from the code: its pure functions are called with every state and cause. Do not edit this page:
`.venv/bin/python -m script.drawings` writes it, and a test compares.
"""

_SECTIONS: Final[tuple[tuple[str, str, Callable[[], str]], ...]] = (
    (
        "Phase of a pod",
        "A pod with one init container and one container, by restart policy (`pods/model/phase.py`). An arrow without a\n"
        "policy holds for each. A container that will run again leaves the pod Running. Deleted pods and sidecars are not\n"
        "drawn.",
        states.phases,
    ),
    (
        "Goal of a plan",
        "Derived from the facts at each plan and never stored (`goal_of` in `pods/plan/pod.py`). RUN starts units, END stops\n"
        "them and keeps what status and logs need, DELETE removes everything and the binding last.",
        states.goals,
    ),
    (
        "States of a unit",
        "A runtime reports these (`UnitState` in `api/observed.py`). The Kubernetes API has no word for units that are\n"
        "paused or suspended: it shows them as running, and condition `kubeletx.io/UnitsRunning` names the true state.",
        states.units,
    ),
    (
        "Actions",
        "What a plan may start (`pods/model/actions.py`), the file below `kubeletx/pods` with its step, and the result that\n"
        "the worker applies if the step has a bug (`pods/steps/dispatch.py`). At most one action runs for each thing\n"
        "changed and unit. A look after a call that timed out shows whether it happened.",
        states.actions,
    ),
    (
        "Health of a runtime",
        f"After each probe (`step` in `runtimes/handles/health.py`), with a grace period of {states.GRACE_SECONDS:g} s. NotReady is a runtime\n"
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
)


def page() -> str:
    """Text of the whole page."""
    parts = [_HEAD, *(f"## {title}\n\n{text}\n\n{draw()}\n" for title, text, draw in _SECTIONS)]
    return "\n".join(parts)
