"""What counts as blank, and the program that reads a device's bytes."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletx.linux import blank_probe
from kubeletx.linux.blank import (
    DeviceContent,
    parse_signature,
    problem_with_signature,
    problem_with_wipefs,
)
from kubeletx.linux.blank_probe import CHUNK_BYTES, data_at, words_of


def test_a_signature_of_wipefs_or_its_failure_is_enough_to_refuse() -> None:
    assert problem_with_wipefs(0, "\n") == ""
    assert problem_with_wipefs(1, "") == "wipefs failed with exit status 1"
    found = problem_with_wipefs(0, "DEVICE OFFSET TYPE\nx 0x0 dos\n")
    assert found == "wipefs finds a signature: DEVICE OFFSET TYPE x 0x0 dos"


def test_content_is_compared_with_the_file_system_that_is_asked_for() -> None:
    assert problem_with_signature(DeviceContent(fs_type="ext4"), "ext4") == ""
    assert "it contains xfs, and fsType is ext4" in problem_with_signature(
        DeviceContent(fs_type="xfs"), "ext4"
    )
    assert "a partition table (gpt)" in problem_with_signature(DeviceContent(partitions="gpt"), "ext4")
    both = DeviceContent(fs_type="ext4", partitions="dos")
    assert "a partition table (dos)" in problem_with_signature(both, "ext4")
    assert "unknown type" in problem_with_signature(DeviceContent(), "ext4")


def test_the_output_of_blkid_is_read() -> None:
    output = "DEVNAME=/dev/loop0\nTYPE=ext4\nPTTYPE=dos\n\n"
    assert parse_signature(output) == DeviceContent(fs_type="ext4", partitions="dos")
    assert parse_signature("") == DeviceContent()


def image(tmp_path: Path, size: int, *, data_at: int | None = None) -> Path:
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(size)
        if data_at is not None:
            file.seek(data_at)
            file.write(b"x")
    return path


@pytest.mark.parametrize("size", [CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES])
def test_data_is_found_at_both_ends(tmp_path: Path, size: int) -> None:
    for place, problem in ((None, ""), (0, "byte 0 is not zero"), (size - 1, f"byte {size - 1} is not zero")):
        with image(tmp_path, size, data_at=place).open("rb") as file:
            assert data_at(file.fileno(), size).endswith(problem)
            assert bool(data_at(file.fileno(), size)) == bool(problem)


def test_the_probe_runs_as_a_program_without_other_modules(tmp_path: Path) -> None:
    for path, problem in (
        (image(tmp_path, 4096), "it is not a block device"),
        (tmp_path / "none", "No such file"),
    ):
        command = [sys.executable, "-IS", blank_probe.__file__, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, done.stderr) == (1, "")
        assert problem in done.stdout


def test_a_device_that_ends_before_its_size_is_not_blank(tmp_path: Path) -> None:
    with (
        image(tmp_path, CHUNK_BYTES).open("rb") as file,
        pytest.raises(OSError, match="it ends early") as error,
    ):
        data_at(file.fileno(), CHUNK_BYTES + 1)
    assert words_of(error.value) == "it cannot be read: it ends early"
    assert words_of(OSError(errno.EBUSY, "busy")) == "it is in use"
