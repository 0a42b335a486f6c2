"""A runtime that returns the status of another unit than the requested one, and ids of other pods."""

from __future__ import annotations

from kubeletx.api import SandboxId, SandboxSpec, UnitId, UnitStatus
from kubeletx.testing import FakeRuntime


class ConfusedRuntime(FakeRuntime):
    """Returns the status of its first unit for every id, and the id of its first sandbox for every new sandbox."""

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Return the id of the first sandbox."""
        return next(iter(self.backend.sandboxes), None) or await super().create_sandbox(spec)

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Return the status of the first unit."""
        return self.backend.unit_status(next(iter(self.backend.units)))
