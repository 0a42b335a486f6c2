"""What is refused about a qcow2 file before QEMU sees it."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kubeletx_libvirt.images.problems import Refused
from kubeletx_libvirt.images.qcow2 import (
    HEAD_BYTES,
    Qcow2,
    backing_file,
    check_complete,
    check_header,
    write_overlay,
)

from plugins.libvirt.tests.images.disks import CLUSTER, qcow2

SOUND = qcow2()


def check(data: bytes) -> Qcow2:
    header = check_header(data[:HEAD_BYTES])
    check_complete(header, lambda at, length: data[at : at + length], len(data))
    return header


def extension(kind: int, data: bytes = b"") -> bytes:
    return struct.pack(">II", kind, len(data)) + data.ljust(-(-len(data) // 8) * 8, b"\0")


def test_a_sound_file_reports_its_virtual_size() -> None:
    assert check(SOUND).virtual_size_bytes == 1 << 20
    assert check(qcow2(version=2, size=4096)).virtual_size_bytes == 4096


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (qcow2(backing=(200, 11)), "backing file"),
        (qcow2(version=2, backing=(0, 11)), "backing file"),
        (qcow2(incompatible=1 << 2), "external file"),
        (qcow2(extensions=extension(0x44415441, b"/etc/shadow")), "external data file"),
        (qcow2(crypt=1), "encrypted"),
        (qcow2(crypt=2), "encrypted"),
        (qcow2(extensions=extension(0x0537BE77, bytes(16))), "encryption header"),
        (qcow2(extensions=extension(0x6803F857, b"12345678") + extension(0x0537BE77)), "encryption header"),
        (qcow2(incompatible=1 << 1), "corrupt"),
        (qcow2(incompatible=1 << 9), "not known here"),
        (qcow2(version=4), "version 4"),
        (qcow2(size=0), "0 bytes"),
        (qcow2(size=1 << 50), "impossible table"),
        (qcow2(bits=30), "clusters"),
        (qcow2(extensions=struct.pack(">II", 1, 1 << 31)), "exceeds the header"),
        (b"<html>", "not a qcow2"),
        (SOUND[:50], "truncated"),
        (SOUND[: 3 * CLUSTER], "truncated"),
        (SOUND[: 5 * CLUSTER], "truncated"),
        (SOUND[:-1], "truncated"),
        (SOUND[:-CLUSTER], "truncated"),
    ],
)
def test_what_must_not_be_used_is_refused(data: bytes, word: str) -> None:
    with pytest.raises(Refused) as caught:
        check(data)
    assert word in caught.value.problem


def test_the_last_cluster_of_the_disk_may_be_short() -> None:
    check(qcow2(size=2 * CLUSTER)[:-512])


@given(st.integers(0, len(SOUND)))
def test_a_file_cut_off_anywhere_is_refused(length: int) -> None:
    if length < len(SOUND):
        with pytest.raises(Refused):
            check(SOUND[:length])


@given(st.binary(max_size=4096))
@example(b"QFI\xfb")
def test_any_bytes_are_checked_or_refused(data: bytes) -> None:
    for start in (b"", SOUND[:8], SOUND[:104]):
        try:
            check(start + data)
        except Refused:
            pass


@given(st.lists(st.tuples(st.integers(0, 5 * CLUSTER - 8), st.integers(0, 2**64 - 1)), max_size=8))
def test_damaged_headers_and_tables_never_break_the_check(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SOUND)
    for at, value in changes:
        struct.pack_into(">Q", data, at % 512 if value % 2 else at, value)
    try:
        header = check(bytes(data))
    except Refused:
        return
    assert header.virtual_size_bytes > 0


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-c"],
        ["-c", "-o", "compression_type=zstd"],
        ["-o", "compat=0.10"],
        ["-o", "cluster_size=512"],
        ["-o", "cluster_size=2M"],
        ["-o", "extended_l2=on"],
        ["-o", "preallocation=metadata"],
        ["-o", "lazy_refcounts=on"],
    ],
)
def test_what_qemu_makes_passes_and_half_of_it_does_not(tmp_path: Path, options: list[str]) -> None:
    source, image = tmp_path / "disk.raw", tmp_path / "disk.qcow2"
    source.write_bytes(b"".join(bytes([n]) * 65_536 if n % 3 else bytes(65_536) for n in range(64)) + b"end")
    convert = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, str(source), str(image)]
    subprocess.run(convert, check=True, capture_output=True, timeout=60)
    data = image.read_bytes()
    assert check(data).virtual_size_bytes == -(-(64 * 65_536 + 3) // 512) * 512
    with pytest.raises(Refused):
        check(data[: len(data) // 2])


def test_an_overlay_reports_its_backing_file(tmp_path: Path) -> None:
    base, overlay = tmp_path / "base", tmp_path / "overlay"
    base.write_bytes(SOUND)
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(base), str(overlay)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert backing_file(overlay) == str(base)
    assert backing_file(base) is None
    (tmp_path / "text").write_text("no disk")
    assert backing_file(tmp_path / "text") is None


@pytest.mark.parametrize("form", ["raw", "qcow2"])
@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, 512 << 20, (512 << 20) + 512, 40 << 40])
def test_qemu_takes_an_overlay_for_what_was_asked_for(tmp_path: Path, form: str, size: int) -> None:
    base, overlay = tmp_path / "base é.img", tmp_path / "overlay.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", form, str(base), "1M"], check=True)
    write_overlay(overlay, backing=str(base), backing_format=form, size_bytes=size)
    checked = subprocess.run(["qemu-img", "check", str(overlay)], capture_output=True, text=True, check=False)
    assert (checked.returncode, "No errors" in checked.stdout) == (0, True), checked.stdout + checked.stderr
    reported = subprocess.run(
        ["qemu-img", "info", "--output=json", str(overlay)], capture_output=True, check=True
    ).stdout
    info = json.loads(reported)
    assert info["virtual-size"] == -(-size // 512) * 512
    assert info["backing-filename"] == str(base)
    assert info["backing-filename-format"] == form
    assert info["format-specific"]["data"]["corrupt"] is False
    assert backing_file(overlay) == str(base)
    assert overlay.stat().st_blocks * 512 <= 1 << 20


def test_what_is_written_into_an_overlay_stays_out_of_its_base(tmp_path: Path) -> None:
    base, overlay, flat = (tmp_path / name for name in ("base.raw", "overlay.qcow2", "flat.raw"))
    base.write_bytes(b"a" * (256 << 10))
    write_overlay(overlay, backing=str(base), backing_format="raw", size_bytes=1 << 20)
    write = [
        "qemu-io",
        "-f",
        "qcow2",
        "-c",
        "write -P 98 64k 64k",
        "-c",
        "write -P 99 960k 64k",
        str(overlay),
    ]
    subprocess.run(write, check=True, capture_output=True)
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(overlay), str(flat)], check=True)
    data = flat.read_bytes()
    assert data == b"a" * 65536 + b"b" * 65536 + b"a" * 131072 + bytes(704 << 10) + b"c" * 65536
    assert base.read_bytes() == b"a" * (256 << 10)


@pytest.mark.parametrize(("name", "size"), [("", 1 << 20), ("x" * 1024, 1 << 20), ("base", 1 << 62)])
def test_an_overlay_that_the_format_cannot_express_is_not_begun(tmp_path: Path, name: str, size: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        write_overlay(tmp_path / "overlay", backing=name, backing_format="raw", size_bytes=size)
    assert not list(tmp_path.iterdir())
