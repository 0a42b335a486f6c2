"""Read the overrides file of a pod, or drop the power that an operator requested."""

from __future__ import annotations

from msgspec.structs import replace

from ..model import results
from ..model.results import Result
from ..workloads.overrides import PodOverrides
from .context import StepContext


async def read_overrides(step: StepContext) -> Result:
    """Read the pod's overrides file into the worker's facts."""
    await step.overrides.ensure_read(step.worker)
    return results.Nothing()


async def drop_override(step: StepContext) -> Result:
    """Remove a requested power state from the overrides: the spec's power has changed since."""
    await step.overrides.amend(step.worker, _without_power)
    return results.Nothing()


def _without_power(overrides: PodOverrides) -> PodOverrides:
    return replace(overrides, power="", power_spec="")
