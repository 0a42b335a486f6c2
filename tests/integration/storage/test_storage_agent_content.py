"""Which devices the storage agent formats: blank ones only. All others keep every byte."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.storage.storage_agent import MIB, READ_ONLY, XFS, AgentNode

pytestmark = pytest.mark.usefixtures("nothing_is_left")

SIZE = 16 * MIB


def make_image(path: Path, *parts: tuple[int, bytes], size: int = SIZE) -> None:
    """Make an image with zeros, and with data at some places; a negative one counts from the end."""
    with path.open("wb") as file:
        file.truncate(size)
        for offset, data in parts:
            file.seek(offset if offset >= 0 else size + offset)
            file.write(data)


def run(*command: str | Path, text: str = "") -> None:
    subprocess.run([str(one) for one in command], check=True, capture_output=True, input=text.encode())


def with_partitions(label: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        make_image(path)
        run("sfdisk", "--quiet", path, text=f"label: {label}\nsize=4MiB\n")

    return make


def with_luks(path: Path) -> None:
    header = struct.pack(
        ">6sH32s32s32sII20s32sI40s",
        b"LUKS\xba\xbe",
        1,
        b"aes",
        b"xts",
        b"sha256",
        4096,
        64,
        b"",
        b"",
        1,
        b"5f6a" * 10,
    )
    make_image(path, (0, header))


def with_swap(path: Path) -> None:
    make_image(path)
    path.chmod(0o600)
    run("mkswap", path)


def with_file_system(kind: str, *options: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        make_image(path, size=320 * MIB if kind == "xfs" else SIZE)
        run(f"mkfs.{kind}", *options, path)

    return make


def with_half_of_ext4(path: Path) -> None:
    """The superblock is lost; the inode tables after it are not."""
    with_file_system("ext4", "-q", "-E", "lazy_itable_init=0")(path)
    with path.open("r+b") as file:
        file.write(bytes(4096))


def with_two_kinds(path: Path) -> None:
    with_file_system("ext4", "-q")(path)
    with path.open("r+b") as file:  # the start of a superblock of btrfs
        file.seek(65536 + 64)
        file.write(b"_BHRfS_M")


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a table of MBR partitions": (with_partitions("dos"), "a partition table (dos)"),
    "a table of GPT partitions": (with_partitions("gpt"), "a partition table (gpt)"),
    "LUKS": (with_luks, "crypto_LUKS"),
    "swap": (with_swap, "it contains swap"),
    "another file system": (with_file_system("xfs", "-q"), "it contains xfs, and fsType is ext4"),
    "half of a file system": (with_half_of_ext4, "is not zero"),
    "two kinds of content": (with_two_kinds, "more than one kind of content"),
    "data in its first byte": (lambda path: make_image(path, (0, b"x")), "byte 0 is not zero"),
    "data within its first MiB": (lambda path: make_image(path, (MIB - 1, b"x")), "byte 1048575 is not zero"),
    "data in its last byte": (lambda path: make_image(path, (-1, b"x")), "byte 16777215 is not zero"),
    "data within its last MiB": (lambda path: make_image(path, (-MIB, b"x")), "byte 15728640 is not zero"),
}


@pytest.mark.parametrize(
    ("content", "backend"),
    [*((content, "loop") for content in REFUSED), ("LUKS", "fuse"), ("data in its last byte", "fuse")],
)
def test_a_device_with_other_content_is_refused_and_keeps_every_byte(
    node: AgentNode, content: str, backend: str
) -> None:
    make, problem = REFUSED[content]
    name = f"pv-{backend}-{sorted(REFUSED).index(content)}"
    make(node.pool / name)
    before = digest(node.pool / name)
    for _ in range(2):
        reply = node.mount("one", name, backend=backend)
        assert not reply.is_success
        assert problem in reply.message
    assert digest(node.pool / name) == before


def test_xfs_does_not_replace_a_file_system_of_another_kind(node: AgentNode) -> None:
    make_image(node.pool / "pv-xfs-over", size=320 * MIB)
    run("mkfs.ext4", "-q", node.pool / "pv-xfs-over")
    before = digest(node.pool / "pv-xfs-over")
    assert "it contains ext4, and fsType is xfs" in node.mount("one", "pv-xfs-over", **XFS).message
    assert digest(node.pool / "pv-xfs-over") == before


def test_a_blank_volume_that_is_only_read_is_not_formatted(node: AgentNode) -> None:
    make_image(node.pool / "pv-blank")
    reply = node.mount("one", "pv-blank", **READ_ONLY)
    assert "the pod only reads, so that it is not formatted" in reply.message
    reply = node.mount("one", "pv-blank", accessModes="ReadOnlyMany", **READ_ONLY)
    assert "the pod only reads, so that it is not formatted" in reply.message
    assert not any((node.pool / "pv-blank").read_bytes())


def test_a_read_only_device_is_never_formatted(node: AgentNode) -> None:
    make_image(node.pool / "pv-rodev")
    run("losetup", "--find", "--read-only", node.pool / "pv-rodev")
    reply = node.mount("one", "pv-rodev")
    assert "is read-only; pods that write must wait for its end" in reply.message
    assert not any((node.pool / "pv-rodev").read_bytes())


def test_a_device_that_is_tiny_or_that_another_process_has_is_never_formatted(node: AgentNode) -> None:
    make_image(node.pool / "pv-tiny", size=MIB // 2)
    assert "it has only 524288 bytes" in node.mount("one", "pv-tiny", size="").message
    make_image(node.pool / "pv-held")
    run("losetup", "--find", node.pool / "pv-held")
    (device,) = node.devices()
    held = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        assert "it is in use" in node.mount("one", "pv-held").message
    finally:
        os.close(held)
    for name in ("pv-tiny", "pv-held"):
        assert not any((node.pool / name).read_bytes())
    assert node.mount("one", "pv-held").is_success
    assert node.unmount("one", "pv-held").is_success


@pytest.mark.parametrize("is_formatted", [False, True])
def test_a_device_that_cannot_be_read_is_never_formatted(node: AgentNode, is_formatted: bool) -> None:
    """The image ends in the middle of its device: reads of the rest fail."""
    name = f"pv-short-{is_formatted}".lower()
    image = node.pool / name
    make_image(image)
    if is_formatted:
        run("mkfs.ext4", "-q", image)
        with image.open("r+b") as file:
            file.write(bytes(MIB))
    run("losetup", "--find", image)
    with image.open("r+b") as file:
        file.truncate(8 * MIB)
    before = digest(image)
    reply = node.mount("one", name, size="")
    assert "it cannot be read" in reply.message
    assert digest(image) == before


def test_a_file_system_with_errors_is_checked_and_keeps_its_data(node: AgentNode) -> None:
    assert node.mount("one", "pv-errors").is_success
    (node.inside("one", "pv-errors") / "file").write_text("kept")
    assert node.unmount("one", "pv-errors").is_success
    node.becomes_clean()
    run("debugfs", "-w", "-R", "set_super_value state 2", node.pool / "pv-errors")  # errors were found
    assert node.mount("one", "pv-errors").is_success
    assert (node.inside("one", "pv-errors") / "file").read_text() == "kept"
    assert "Repaired a file system" in node.agent.log_tail()
    assert node.unmount("one", "pv-errors").is_success


def test_a_file_system_that_fsck_does_not_repair_is_refused(node: AgentNode) -> None:
    image = node.pool / "pv-destroyed"
    make_image(image)
    run("mkfs.ext4", "-q", image)
    with image.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * MIB)
    reply = node.mount("one", "pv-destroyed")
    assert "fsck does not repair" in reply.message
    assert "Formatted" not in node.agent.log_tail(2)


def test_a_missing_image_without_a_size_is_not_made(node: AgentNode) -> None:
    reply = node.mount("one", "pv-missing", size="")
    assert "does not exist; make it, or give option size" in reply.message
    assert not (node.pool / "pv-missing").exists()


def test_an_image_that_is_a_link_is_refused(node: AgentNode, tmp_path: Path) -> None:
    make_image(tmp_path / "outside")
    (node.pool / "pv-linked").symlink_to(tmp_path / "outside")
    for backend in ("loop", "fuse"):
        assert "is not a regular file" in node.mount("one", "pv-linked", backend=backend).message
    assert "is not a directory" in node.mount("one", "pv-linked", backend="directory").message
    assert not any((tmp_path / "outside").read_bytes())


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_an_image_that_is_attached_by_another_path_is_refused(node: AgentNode, tmp_path: Path) -> None:
    """Two devices with one file would each have a cache of their own."""
    make_image(node.pool / "pv-twice")
    (node.directory / "pv-twice").hardlink_to(node.pool / "pv-twice")
    run("losetup", "--find", node.directory / "pv-twice")
    try:
        reply = node.mount("one", "pv-twice")
        assert not reply.is_success
        assert f"by path {node.directory}/pv-twice; detach it" in reply.message
    finally:
        run("losetup", "--detach", *node.devices())
