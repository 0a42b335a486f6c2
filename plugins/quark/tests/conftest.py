"""A CRI server that claims to be containerd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from kubeletx_testing.cri_server import FakeCriServer


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeCriServer]:
    async with FakeCriServer(tmp_path, uuid="1234") as server:
        server.model.add_image("busybox")
        yield server
