"""Every benchmark with real daemons runs, at sizes that say nothing about speed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from script.benchmarks import lab, main
from script.benchmarks.model import TINY, rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["WITH_DAEMONS", "MACHINES", "CLUSTER", "STREAMS"])
def test_every_benchmark_runs(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    names = list(getattr(main, kind))
    with TemporaryDirectory(prefix="kx-") as place:  # short: names of sockets have 107 bytes at most
        monkeypatch.setattr(lab, "BASE", Path(place) / "lab")
        results = main.run(names, TINY)
    assert list(results) == names
    assert len(rows(results)) > len(results)
