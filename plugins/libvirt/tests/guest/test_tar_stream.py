"""Archives that come in pieces."""

from __future__ import annotations

import asyncio
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_libvirt.guest.tar_stream import END, TarReader, header_of, padding_of, pax_records

from kubeletx.api import Conflict

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=150)
FILES = st.lists(st.tuples(NAMES.filter(lambda name: name.strip(".")), st.binary(max_size=1100)), max_size=5)


async def read(data: bytes, sizes: list[int]) -> list[tuple[str, bytes]]:
    """Names and contents, from pieces of these sizes, over and over."""
    at = turn = 0

    async def piece() -> bytes:
        nonlocal at, turn
        size = sizes[turn % len(sizes)]
        found = data[at : at + size]
        at, turn = at + size, turn + 1
        return found

    archive = TarReader(piece)
    found = []
    async for member in archive.members():
        content = b""
        while more := await archive.content():
            content += more
        found.append((member.name, content))
    return found


@given(files=FILES, sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=4), is_gnu=st.booleans())
def test_pieces_of_any_size_are_read_as_tarfile_wrote_them(
    files: list[tuple[str, bytes]], sizes: list[int], is_gnu: bool
) -> None:
    buffer = io.BytesIO()
    format_ = tarfile.GNU_FORMAT if is_gnu else tarfile.PAX_FORMAT
    with tarfile.open(fileobj=buffer, mode="w", format=format_) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert asyncio.run(read(buffer.getvalue(), sizes)) == files


@given(files=FILES)
def test_tarfile_reads_what_is_written(files: list[tuple[str, bytes]]) -> None:
    data = b""
    for name, content in files:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        data += header_of(info) + content + padding_of(len(content))
    with tarfile.open(fileobj=io.BytesIO(data + END)) as archive:
        found = [(one.name, (archive.extractfile(one) or io.BytesIO()).read()) for one in archive]
    assert found == files


def test_contents_that_no_one_reads_are_passed_over() -> None:
    data = b""
    for name in ("one", "two"):
        info = tarfile.TarInfo(name)
        info.size = 700
        data += header_of(info) + bytes(700) + padding_of(700)

    async def names() -> list[str]:
        pieces = iter([data, END])

        async def piece() -> bytes:
            return next(pieces, b"")

        return [member.name async for member in TarReader(piece).members()]

    assert asyncio.run(names()) == ["one", "two"]


@pytest.mark.parametrize("records", [b"x", b"0 a=b\n", b"99 a=b\n", b" a=b\n"])
def test_records_without_a_length_are_refused(records: bytes) -> None:
    with pytest.raises(Conflict, match="pax record"):
        pax_records(records)


@pytest.mark.parametrize("size", ["-1", "many", "9" * 5000])
async def test_a_member_of_no_possible_size_is_not_an_archive(size: str) -> None:
    info = tarfile.TarInfo("file")
    info.pax_headers = {"size": size}
    with pytest.raises(Conflict, match="the input is not a tar archive"):
        await read(header_of(info) + END, [512])


async def test_a_header_with_a_negative_size_is_not_an_archive() -> None:
    block = bytearray(tarfile.TarInfo("file").tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" * 12  # -1, as GNU writes numbers that do not fit
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    with pytest.raises(Conflict, match="a member of '-1' bytes"):
        await read(bytes(block) + END, [512])
