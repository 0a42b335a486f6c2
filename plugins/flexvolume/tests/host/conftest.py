"""Fixtures of the tests of the FlexVolume host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from plugins.flexvolume.tests.host.flex_model import FlexNode


@pytest_asyncio.fixture
async def flex(tmp_path: Path) -> AsyncIterator[FlexNode]:
    """A node without drivers; what it opens is closed after the test."""
    made = FlexNode(tmp_path.resolve())
    yield made
    await made.close()
