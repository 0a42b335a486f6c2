"""A stranger's distribution that registers something for every hook, and the agent's side of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.plugins.isolated.services_model import ServicesModel


@pytest.fixture
async def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServicesModel]:
    """The services of the distribution, made when a test first uses them."""
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    made = ServicesModel(tmp_path)
    yield made
    await made.close()
