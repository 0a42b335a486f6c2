"""A cluster for remedies that act through the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble, Settings
from tests.unit.remedy.actions.remedy_cluster import RemedyCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RemedyCluster]:
    """A started double with one sick node."""
    with ApiServerDouble(tmp_path / "api", Settings(service_account_admission=False)) as api:
        made = RemedyCluster(api)
        yield made
        await made.close()
