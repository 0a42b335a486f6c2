"""Benchmarks with real daemons run, at sizes that say nothing about speed: the quickest of each kind, and all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from script.benchmarks import lab, main
from script.benchmarks.model import TINY, rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


KINDS = ("WITH_DAEMONS", "MACHINES", "CLUSTER", "STREAMS", "STANDBY", "SESSIONS", "STORAGE")
QUICKEST = ("one-pod", "machine-list", "api-pod", "stream-logs", "standby-wake", "cold-open", "storage-mount")


def run(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run benchmarks in one lab; each must have results."""
    with TemporaryDirectory(prefix="kx-") as place:  # short: names of sockets have 107 bytes at most
        monkeypatch.setattr(lab, "BASE", Path(place) / "lab")
        results = main.run(names, TINY)
    assert list(results) == names
    assert len(rows(results)) > len(results)


def test_the_quickest_benchmark_of_each_kind_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(name in getattr(main, kind) for kind, name in zip(KINDS, QUICKEST, strict=True))
    run(list(QUICKEST), monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_benchmark_runs(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    run(list(getattr(main, kind)), monkeypatch)


@pytest.mark.long
def test_a_kubelet_is_measured_like_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent itself stands in for a kubelet: it reads the same configuration file."""
    program = Path(sys.executable).with_name("kubeletx")
    with TemporaryDirectory(prefix="kx-") as place:
        monkeypatch.setattr(lab, "BASE", Path(place) / "lab")
        results = main.run(["outside"], msgspec.structs.replace(TINY, kubelet=program))
    against = [one.label for one in results["outside"].figures if "against a kubelet" in one.label]
    assert "2 pods from outside, against a kubelet" in against
    assert results["outside"].series["kubelet 2"][0] > 0
