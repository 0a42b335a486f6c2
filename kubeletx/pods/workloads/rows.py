"""`OwnRow`: table entry for an action that only one kind of workload has, such as machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..model.results import Result
from .step import WorkloadStep


class OwnRow(msgspec.Struct, frozen=True):
    """Table entry for one class of actions. `step`: carries out an action.

    `failure`: makes the result if the step raised an unexpected error, from the action, a reason and a message.
    """

    step: Callable[[WorkloadStep, Any], Awaitable[Result]]
    failure: Callable[[Any, str, str], Result]
