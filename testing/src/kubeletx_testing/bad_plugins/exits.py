"""A runtime that ends its process: `unit_status` calls `sys.exit`."""

from __future__ import annotations

import sys

from kubeletx.api import UnitId, UnitStatus
from kubeletx.testing import FakeRuntime


class ExitingRuntime(FakeRuntime):
    """Calls `sys.exit` in `unit_status`, as a program does that was not written to be imported."""

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Raise SystemExit."""
        sys.exit(3)
