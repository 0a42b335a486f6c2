"""Files for the pod's group, in a volume where others are at work."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.volumes.files.ownership import set_group


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.mkdir()
    (path / "file").touch(mode=0o600)
    return path


def test_files_and_directories_get_the_group_and_links_lead_nowhere(volume: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch(mode=0o600)
    (volume / "link").symlink_to(outside)
    (volume / "dir").mkdir(mode=0o700)
    set_group(volume, os.getgid())
    assert mode(volume / "file") == 0o660
    assert mode(volume / "dir") == 0o2770
    assert mode(outside) == 0o600


def exchange_when_looked_at(monkeypatch: pytest.MonkeyPatch, exchange: Callable[[], None]) -> None:
    """Each change of an owner is followed by the exchange: what a pod may do between two calls of ours."""
    chown = os.chown

    def and_exchange(path: str, uid: int, gid: int, **options: object) -> None:
        chown(path, uid, gid, **options)  # type: ignore[arg-type]
        exchange()

    monkeypatch.setattr(os, "chown", and_exchange)


def test_a_file_that_becomes_a_link_meanwhile_opens_nothing_else(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.touch(mode=0o600)

    def exchange() -> None:
        if not (volume / "file").is_symlink():
            (volume / "file").unlink()
            (volume / "file").symlink_to(outside)

    exchange_when_looked_at(monkeypatch, exchange)
    set_group(volume, os.getgid())
    assert mode(outside) == 0o600


def test_a_file_that_vanishes_meanwhile_keeps_nothing_else_from_its_group(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (volume / "other").touch(mode=0o600)

    def exchange() -> None:
        for one in volume.iterdir():
            one.unlink()

    exchange_when_looked_at(monkeypatch, exchange)
    set_group(volume, os.getgid())
    assert mode(volume) & 0o2070 == 0o2070
