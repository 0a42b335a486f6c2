"""`OwnRow`: the step of one action that only one workload has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..model.results import Result
from .step import WorkloadStep


class OwnRow(msgspec.Struct, frozen=True):
    """One action: `step` carries it out; `failure` makes its result after a bug, from action, reason and message."""

    step: Callable[[WorkloadStep, Any], Awaitable[Result]]
    failure: Callable[[Any, str, str], Result]
