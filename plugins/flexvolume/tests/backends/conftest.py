"""Fixtures of the tests of the backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.flexvolume.tests.fake_programs import FakePrograms


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    """Fake programs instead of all that the agent runs."""
    return FakePrograms(tmp_path / "programs", monkeypatch)
