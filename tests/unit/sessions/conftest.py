"""Fixtures of the room of sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.sessions.room import Room, running_room


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with running_room(tmp_path / "state.db") as room:
        yield room
