"""Archives that the kernel unpacks, and the order of its modules."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubeletx_testing.lab import find_tool
from kubeletx_testing.lab.cpio import CpioArchive
from kubeletx_testing.lab.machine_parts import module_files


def test_an_archive_is_unpacked_with_its_modes_and_links(tmp_path: Path) -> None:
    busybox = find_tool("busybox")
    if busybox is None:
        pytest.skip("there is no busybox to unpack it")
    archive = CpioArchive()
    for _ in range(2):  # a second one of the same name is passed over
        archive.directory("bin")
    archive.file("bin/init", b"#!/bin/sh\n", 0o755)
    archive.file("bin/init", b"other", 0o600)
    archive.link("bin/sh", "/bin/init")
    subprocess.run(
        [busybox, "cpio", "-i"], input=archive.finish(), cwd=tmp_path, check=True, capture_output=True
    )
    assert (tmp_path / "bin/init").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "bin/init").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "bin/sh").readlink() == Path("/bin/init")
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == ["init", "sh"]


def test_modules_come_after_those_that_they_need_and_unknown_ones_are_passed_over(tmp_path: Path) -> None:
    for name, needs in (
        ("bridge", "stp"),
        ("stp", "llc"),
        ("llc", ""),
        ("virtio-rng", "virtio"),
        ("virtio", ""),
    ):
        (tmp_path / f"{name}.ko").write_bytes(b"\x7fELF\0depends=" + needs.encode() + b"\0")
    found = module_files(tmp_path, ["bridge", "ext4", "virtio_rng", "llc"])
    assert [path.stem for path in found] == ["llc", "stp", "bridge", "virtio", "virtio-rng"]
