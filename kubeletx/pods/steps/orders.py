"""Read or drop what operators asked of a machine."""

from __future__ import annotations

from msgspec.structs import replace

from ..model import changes
from ..model.changes import Change
from ..model.machine_requests import Orders
from .context import StepContext


async def read_orders(step: StepContext) -> Change:
    """Take up what an earlier process wrote down."""
    await step.overrides.ensure_read(step.worker)
    return changes.nothing


async def drop_override(step: StepContext) -> Change:
    """Forget the power that a command asked for: the spec's power changed since."""
    await step.overrides.amend(step.worker, _without_power)
    return changes.nothing


def _without_power(orders: Orders) -> Orders:
    return replace(orders, power="", power_spec="")
