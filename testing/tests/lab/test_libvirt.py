"""libvirt's embedded driver: paths that sockets can have."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kubeletx_testing.lab import libvirt, sweep


def test_a_root_with_a_long_path_is_reached_by_a_short_one_until_the_sweep(tmp_path: Path) -> None:
    base, short = tmp_path / ("long" * 20), tmp_path / "s"
    url = libvirt.embedded_url(base / "v", cache_dir=tmp_path / "cache" / "images", short_directory=short)
    link = Path(url.partition("root=")[2])
    assert link.parent == short
    assert link.readlink() == base / "v"
    assert (
        link / "cache" / "qemu" / "capabilities"
    ).readlink() == tmp_path / "cache" / "libvirt-capabilities"
    sweep.remove_short_paths(base, short)
    assert not link.is_symlink()


def test_a_root_with_a_short_path_is_used_as_it_is(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="v", dir="/tmp") as root:
        assert libvirt.embedded_url(Path(root), cache_dir=tmp_path / "i") == f"qemu:///embed?root={root}"
