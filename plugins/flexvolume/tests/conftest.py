"""Fixtures of the tests of this distribution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx_testing.apiserver import ApiServerDouble
from plugins.flexvolume.tests.fake_programs import FakePrograms


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    """A started API server double."""
    with ApiServerDouble(tmp_path / "api") as double:
        yield double


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Fake programs instead of all that the agent runs."""
    return FakePrograms(tmp_path / "programs", monkeypatch)
