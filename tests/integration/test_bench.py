"""Every benchmark with real daemons runs, at sizes that say nothing about speed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "script"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["WITH_DAEMONS", "MACHINES", "CLUSTER", "STREAMS"])
def test_every_benchmark_runs(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import bench_lab
    import bench_main
    from bench_model import TINY, rows

    names = list(getattr(bench_main, kind))
    with TemporaryDirectory(prefix="kx-") as place:  # short: names of sockets have 107 bytes at most
        monkeypatch.setattr(bench_lab, "BASE", Path(place) / "lab")
        results = bench_main.run(names, TINY)
    assert list(results) == names
    assert len(rows(results)) > len(results)
