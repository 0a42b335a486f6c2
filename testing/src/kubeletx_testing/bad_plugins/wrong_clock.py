"""A runtime whose clock is a year ahead."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import UnitId, UnitStatus
from kubeletx.testing import FakeRuntime

YEAR_NS = 365 * 24 * 3600 * 10**9


class WrongClockRuntime(FakeRuntime):
    """Reports the start of every unit a year ahead of the node's clock."""

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Return the status with a start in the future."""
        status = await super().unit_status(unit_id)
        return replace(status, started_at_ns=status.started_at_ns + YEAR_NS)
