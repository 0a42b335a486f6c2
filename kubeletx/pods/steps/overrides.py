"""Loads the overrides file of a pod, and drops an outdated power request from it (see `workloads.overrides`)."""

from __future__ import annotations

from msgspec.structs import replace

from ..model import results
from ..model.results import Result
from ..workloads.overrides import PodOverrides
from .context import StepContext


async def read_overrides(step: StepContext) -> Result:
    """Load the pod's overrides file into the worker's facts, unless that was done."""
    await step.overrides.ensure_read(step.worker)
    return results.Nothing()


async def drop_override(step: StepContext) -> Result:
    """Remove an operator's power request from the pod's overrides, because the spec's power changed after it."""
    await step.overrides.amend(step.worker, _without_power)
    return results.Nothing()


def _without_power(overrides: PodOverrides) -> PodOverrides:
    return replace(overrides, power="", power_spec="")
