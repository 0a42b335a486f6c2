"""Unpacking in bounded steps."""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Callable

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_libvirt.images.problems import Refused
from kubeletx_libvirt.images.unpack import CHUNK_BYTES, packing_of, unpack

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstd.compress,
}
KINDS = pytest.mark.parametrize("kind", list(PACKERS))


def unpacked(data: bytes, kind: str) -> bytes:
    return b"".join(unpack(io.BytesIO(data), kind))


@KINDS
def test_what_was_packed_comes_out_again(kind: str) -> None:
    for content in (b"", b"x", bytes(3 * CHUNK_BYTES + 1), b"ab" * 700_000):
        packed = PACKERS[kind](content)
        assert packing_of(packed) == kind
        assert unpacked(packed, kind) == content


@KINDS
def test_several_members_are_one_file(kind: str) -> None:
    assert unpacked(PACKERS[kind](b"one") + PACKERS[kind](b"two"), kind) == b"onetwo"


@KINDS
def test_no_step_gives_more_than_a_chunk(kind: str) -> None:
    packed = PACKERS[kind](bytes(20 << 20))
    steps = unpack(io.BytesIO(packed), kind)
    assert max(len(next(steps)) for _ in range(5)) <= CHUNK_BYTES


@KINDS
def test_a_truncated_file_is_refused(kind: str) -> None:
    packed = PACKERS[kind](bytes(range(256)) * 1000)
    for length in (len(packed) - 1, len(packed) // 2):
        with pytest.raises(Refused, match="truncated"):
            unpacked(packed[:length], kind)


@KINDS
def test_something_else_behind_it_is_refused(kind: str) -> None:
    with pytest.raises(Refused):
        unpacked(PACKERS[kind](b"x") + b"something else", kind)


def test_an_xz_file_that_asks_for_too_much_memory_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30, "preset": 0}]
    header = lzma.compress(b"x", filters=filters)
    with pytest.raises(Refused, match="damaged"):
        unpacked(header, "xz")


@given(st.sampled_from(list(PACKERS)), st.binary(max_size=200), st.binary(max_size=50))
def test_any_bytes_come_out_or_are_refused(kind: str, junk: bytes, content: bytes) -> None:
    packed = PACKERS[kind](content)
    for data in (junk, packed[:10] + junk, packed + junk):
        try:
            unpacked(data, kind)
        except Refused:
            pass
