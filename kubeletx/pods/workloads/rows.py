"""`OwnRow`: table entry of an action that only one workload has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..model.results import Result
from .step import WorkloadStep


class OwnRow(msgspec.Struct, frozen=True):
    """Entry for one kind of action: `step` carries it out.

    `failure` makes the result if the step raised an unexpected error; it gets the action, a reason and a
    message.
    """

    step: Callable[[WorkloadStep, Any], Awaitable[Result]]
    failure: Callable[[Any, str, str], Result]
