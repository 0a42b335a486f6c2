"""Table of the actions that only some kinds of workloads have, with the step that carries out each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..model.actions import Action
from .machine.steps import ROWS as MACHINE_ROWS
from .rows import OwnRow
from .standby.steps import ROWS as STANDBY_ROWS

OWN_ROWS: Final[Mapping[type[Action], OwnRow]] = {**MACHINE_ROWS, **STANDBY_ROWS}
"""Table entries of all kinds of workloads; `steps.dispatch` adds them to its table."""
