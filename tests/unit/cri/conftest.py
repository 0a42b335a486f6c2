"""A fake CRI server and runtimes on it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from kubeletx.cri import CriClient, CriRuntime
from kubeletx.testing import FakeClock, FakeHost, endpoint
from kubeletx_testing.cri_server import FakeCriServer


@pytest.fixture
def socket_directory() -> Iterator[Path]:
    """Short enough for a socket's path."""
    with tempfile.TemporaryDirectory(prefix="cri-") as name:
        yield Path(name)


@pytest_asyncio.fixture
async def server(socket_directory: Path) -> AsyncIterator[FakeCriServer]:
    async with FakeCriServer(socket_directory) as server:
        yield server


@pytest_asyncio.fixture
async def client(server: FakeCriServer) -> AsyncIterator[CriClient]:
    client = CriClient(server.url)
    yield client
    await client.close()


@pytest.fixture
def make_runtime(server: FakeCriServer, tmp_path: Path) -> Callable[..., CriRuntime]:
    def make(parameters: str = "", kind: type[CriRuntime] = CriRuntime) -> CriRuntime:
        return kind(endpoint(server.url + parameters), None, FakeHost(tmp_path, clock=FakeClock()))

    return make


@pytest_asyncio.fixture
async def runtime(make_runtime: Callable[..., CriRuntime]) -> AsyncIterator[CriRuntime]:
    """Open, on the fake server."""
    runtime = make_runtime()
    await runtime.open()
    yield runtime
    await runtime.close()
