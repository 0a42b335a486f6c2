"""Read or drop what operators asked of a pod."""

from __future__ import annotations

from msgspec.structs import replace

from ..model import results
from ..model.results import Result
from ..workloads.overrides import PodOverrides
from .context import StepContext


async def read_overrides(step: StepContext) -> Result:
    """Read what an earlier agent process stored."""
    await step.overrides.ensure_read(step.worker)
    return results.Nothing()


async def drop_override(step: StepContext) -> Result:
    """Drop the power requested by a command: the spec's power has changed since."""
    await step.overrides.amend(step.worker, _without_power)
    return results.Nothing()


def _without_power(overrides: PodOverrides) -> PodOverrides:
    return replace(overrides, power="", power_spec="")
