"""Growth of image files."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_flexvolume.backends.expanding import grow_file

from kubeletx.api import NotFound, Unavailable
from plugins.flexvolume.tests.backends.backend_model import MIB, volume


def test_a_file_grows_sparsely_and_keeps_its_data(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"kept")
    assert grow_file(volume("loop"), str(path), 64 * MIB) == 64 * MIB
    assert path.stat().st_size == 64 * MIB
    assert path.stat().st_blocks * 512 < MIB
    with path.open("rb") as file:
        assert file.read(4) == b"kept"


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_file_never_shrinks(tmp_path: Path, size: int) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 100)
    assert grow_file(volume("loop"), str(path), size) == 100
    assert path.read_bytes() == b"x" * 100


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"volume pv-1: .*data does not exist"):
        grow_file(volume("loop"), str(tmp_path / "data"), MIB)
    assert list(tmp_path.iterdir()) == []


def test_a_link_or_a_directory_does_not_grow(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    (tmp_path / "link").symlink_to("outside")
    for name in ("link", "."):
        with pytest.raises(Unavailable, match="volume pv-1"):
            grow_file(volume("loop"), str(tmp_path / name), MIB)
    assert (tmp_path / "outside").read_bytes() == b"x"


def test_a_file_system_that_cannot_hold_the_size_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x")
    with pytest.raises(Unavailable, match=r"File too large|Invalid argument"):
        grow_file(volume("loop"), str(tmp_path / "data"), 1 << 62)
    assert (tmp_path / "data").read_bytes() == b"x"
