"""What counts as blank, and the program that reads a device's bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kubeletx_flexvolume.agent import zero_probe
from kubeletx_flexvolume.agent.blank import (
    Signature,
    parse_signature,
    problem_with_blank,
    problem_with_signature,
)
from kubeletx_flexvolume.agent.zero_probe import CHUNK_BYTES, probe

ZEROS = (0, "all bytes are zero")


def test_only_three_agreeing_looks_prove_that_a_device_is_blank() -> None:
    assert problem_with_blank(blkid_output="", wipefs=(0, ""), zeros=ZEROS) == ""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"blkid_output": "LABEL=x\n"}, "blkid found 'LABEL=x'"),
        ({"wipefs": (1, "")}, "wipefs failed with exit status 1"),
        ({"wipefs": (0, "DEVICE OFFSET TYPE\nx 0x0 dos\n")}, "wipefs found 'DEVICE OFFSET TYPE x 0x0 dos'"),
        ({"zeros": (1, "byte 7 is not zero")}, "byte 7 is not zero"),
        ({"zeros": (2, "cannot read the device: Input/output error")}, "cannot read the device"),
        ({"zeros": (-9, "")}, "failed with exit status -9"),
    ],
)
def test_one_disagreeing_look_is_enough_to_refuse(changes: dict[str, object], problem: str) -> None:
    looks: dict[str, object] = {"blkid_output": "", "wipefs": (0, ""), "zeros": ZEROS} | changes
    assert problem in problem_with_blank(**looks)  # type: ignore[arg-type]


def test_content_is_compared_with_the_file_system_that_is_asked_for() -> None:
    assert problem_with_signature(Signature(fs_type="ext4"), "ext4") == ""
    assert "it contains xfs, and fsType is ext4" in problem_with_signature(Signature(fs_type="xfs"), "ext4")
    assert "a partition table (gpt)" in problem_with_signature(Signature(partitions="gpt"), "ext4")
    both = Signature(fs_type="ext4", partitions="dos")
    assert "a partition table (dos)" in problem_with_signature(both, "ext4")
    assert "unknown type" in problem_with_signature(Signature(), "ext4")


def test_the_output_of_blkid_is_read() -> None:
    output = "DEVNAME=/dev/loop0\nTYPE=ext4\nPTTYPE=dos\n\n"
    assert parse_signature(output) == Signature(fs_type="ext4", partitions="dos")
    assert parse_signature("") == Signature()


def image(tmp_path: Path, size: int, *, data_at: int | None = None) -> Path:
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(size)
        if data_at is not None:
            file.seek(data_at)
            file.write(b"x")
    return path


@pytest.mark.parametrize("size", [1, 4096, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES])
def test_zeros_are_found_in_devices_of_any_size(tmp_path: Path, size: int) -> None:
    assert probe(str(image(tmp_path, size))) == ZEROS
    assert probe(str(image(tmp_path, size, data_at=size - 1))) == (1, f"byte {size - 1} is not zero")
    assert probe(str(image(tmp_path, size, data_at=0))) == (1, "byte 0 is not zero")


def test_a_device_that_cannot_be_read_is_not_zero(tmp_path: Path) -> None:
    assert probe(str(tmp_path / "missing")) == (2, "cannot read the device: No such file or directory")
    assert probe(str(image(tmp_path, 0))) == (2, "the device has no size")
    assert probe(str(tmp_path))[0] == 2


def test_the_probe_runs_as_a_program_without_the_agents_modules(tmp_path: Path) -> None:
    command = [sys.executable, "-IS", zero_probe.__file__, str(image(tmp_path, 4096, data_at=9))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (1, "byte 9 is not zero", "")
