"""A runtime that returns None where a value is required."""

from __future__ import annotations

from typing import Any

from kubeletx.testing import FakeRuntime


class ForgetfulRuntime(FakeRuntime):
    """Returns None from `unit_status` and `create_sandbox`, as a function without a return statement does."""

    async def unit_status(self, unit_id: Any) -> Any:
        """Return None."""
        return

    async def create_sandbox(self, spec: Any) -> Any:
        """Return None."""
        return
