"""Fixtures of the tests of the backends."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.pools import Pool, Pools
from kubeletx_flexvolume.commands import Commands

from plugins.flexvolume.tests.fake_programs import FakePrograms


@pytest.fixture
def commands(programs: FakePrograms, tmp_path: Path) -> Commands:
    """Runs the fake programs; a program over its deadline is interrupted, and killed 0.2 s later."""
    (tmp_path / "locks").mkdir()
    return Commands(tmp_path / "locks", grace_seconds=0.2)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Directory of the pools ``default`` and ``shared``."""
    made = tmp_path / "pool"
    made.mkdir()
    return made


@pytest.fixture
def pools(pool: Path) -> Pools:
    """Two pools in one directory."""
    shared = Pool(name="shared", directory=str(pool), is_shared=True)
    return Pools({"default": Pool(name="default", directory=str(pool)), "shared": shared})
