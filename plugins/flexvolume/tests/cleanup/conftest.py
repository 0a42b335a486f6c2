"""Fixtures of the tests of this distribution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    """A started API server double."""
    with ApiServerDouble(tmp_path / "api") as double:
        yield double
