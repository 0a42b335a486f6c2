"""Nodes of the storage tests: with drivers of third parties and the host that calls them, and with a storage agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kubeletx_flexvolume.host.volumes import FlexVolumes

from tests.integration.storage.flex_drivers import StorageNode
from tests.integration.storage.storage_agent import AgentNode


@pytest.fixture
def flex_node(tmp_path: Path) -> Iterator[StorageNode]:
    """A node without drivers; the test fails if it leaves a mount or a device."""
    made = StorageNode(tmp_path)
    try:
        yield made
        left = [*made.mounts(), *made.devices()]
    finally:
        made.clean_up()
    assert left == []


@pytest_asyncio.fixture
async def flex_volumes(flex_node: StorageNode) -> AsyncIterator[FlexVolumes]:
    """An open volume driver of the node."""
    made = flex_node.make()
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentNode]:
    """A node with a storage agent for all tests of a file."""
    made = AgentNode(tmp_path_factory.mktemp("node"))
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture
def nothing_is_left(node: AgentNode) -> Iterator[None]:
    """The test fails unless it ends with a clean node."""
    yield
    node.becomes_clean()
