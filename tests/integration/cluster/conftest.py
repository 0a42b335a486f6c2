"""The API server of a file, and a node of it for each test; files whose node or server is another one replace them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kubeletx_testing.lab import PrivateAgent
from tests.integration.support.clusters import (
    API_SERVERS,
    ApiServer,
    ClusterNode,
    cluster_agent,
    running_api,
)


@pytest.fixture(scope="module", params=API_SERVERS)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server for all tests of a file: the double and, where its binaries are, a real one."""
    yield from running_api(request.param, tmp_path_factory.mktemp("api"))


@pytest.fixture
def node(api: ApiServer, make_agent: Callable[..., PrivateAgent]) -> ClusterNode:
    """A node of its own for each test."""
    return cluster_agent(api, make_agent, manifest_dir=None)
