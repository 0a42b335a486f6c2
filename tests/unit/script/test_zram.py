"""Which swap areas the benchmarks remove as their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubeletx_testing.lab import find_tool
from script.benchmarks.zram import LABEL, has_label


@pytest.mark.parametrize(
    ("options", "is_ours"), [(["-L", LABEL], True), (["-L", f"{LABEL}s"], False), ([], False)]
)
def test_only_a_swap_area_with_the_label_is_ours(tmp_path: Path, options: list[str], is_ours: bool) -> None:
    mkswap = find_tool("mkswap")
    if mkswap is None:
        pytest.skip("there is no mkswap to make one")
    area = tmp_path / "area"
    area.write_bytes(bytes(1 << 16))
    area.chmod(0o600)
    subprocess.run([mkswap, "-q", *options, area], check=True, capture_output=True)
    assert has_label(area) is is_ours


def test_a_device_that_cannot_be_read_is_not_ours(tmp_path: Path) -> None:
    assert not has_label(tmp_path / "zram7")
