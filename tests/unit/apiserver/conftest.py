"""An API server for the tests that need one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble

sys.path.insert(0, str(Path(__file__).parent))  # for api_connections, which the tests share


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    """A started double."""
    with ApiServerDouble(tmp_path / "api") as double:
        yield double
