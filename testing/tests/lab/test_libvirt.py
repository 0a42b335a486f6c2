"""libvirt's embedded driver: paths that sockets can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx_testing.lab import libvirt, sweep


def test_a_root_with_a_long_path_is_reached_by_a_short_one_until_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SHORT_DIRECTORY", tmp_path / "s")
    base = tmp_path / ("long" * 20)
    url = libvirt.embedded_url(base / "v", cache_dir=tmp_path / "cache" / "images")
    link = Path(url.partition("root=")[2])
    assert link.parent == tmp_path / "s"
    assert link.readlink() == base / "v"
    assert (
        link / "cache" / "qemu" / "capabilities"
    ).readlink() == tmp_path / "cache" / "libvirt-capabilities"
    sweep.remove_short_paths(base)
    assert not link.is_symlink()


def test_a_root_with_a_short_path_is_used_as_it_is() -> None:
    assert libvirt._short(Path("/x/v")) == Path("/x/v")
