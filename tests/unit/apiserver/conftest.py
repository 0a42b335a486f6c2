"""An API server for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    """A started double."""
    with ApiServerDouble(tmp_path / "api") as double:
        yield double
