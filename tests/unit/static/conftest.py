"""The directory of manifests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "manifests"
    made.mkdir()
    return made
