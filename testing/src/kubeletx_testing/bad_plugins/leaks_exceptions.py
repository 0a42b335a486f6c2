"""A runtime that does not translate the exceptions of its backend."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubeletx.api import UnitId, UnitStatus
from kubeletx.testing import FakeRuntime


class LeakingRuntime(FakeRuntime):
    """Lets FileNotFoundError of a file and ConnectionError of its backend out of its methods."""

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Raise FileNotFoundError."""
        return _read_status()

    async def start_unit(self, unit_id: UnitId) -> None:
        """Raise ConnectionResetError."""
        raise ConnectionResetError("the daemon closed the connection")


def _read_status() -> UnitStatus:
    return msgspec.json.decode(Path("/nonexistent/units/state.json").read_bytes(), type=UnitStatus)
