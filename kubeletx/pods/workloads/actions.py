"""The table of the actions that only some workloads have: the step that carries each one out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..model.actions import Action
from .machine.steps import ROWS as MACHINE_ROWS
from .rows import OwnRow
from .standby.steps import ROWS as STANDBY_ROWS

OWN_ROWS: Final[Mapping[type[Action], OwnRow]] = {**MACHINE_ROWS, **STANDBY_ROWS}
"""Rows of all workloads; `steps.dispatch` adds them to its own."""
