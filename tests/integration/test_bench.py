"""Every benchmark with real daemons runs, at sizes that say nothing about speed."""

from __future__ import annotations

from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "script"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["WITH_DAEMONS", "MACHINES", "CLUSTER"])
def test_every_benchmark_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import bench_lab
    import bench_main
    from bench_model import TINY, rows

    monkeypatch.setattr(bench_lab, "BASE", tmp_path / "lab")
    names = list(getattr(bench_main, kind))
    results = bench_main.run(names, TINY)
    assert list(results) == names
    assert len(rows(results)) > len(results)
