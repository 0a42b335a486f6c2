"""Unpacks gz, xz and zst in bounded steps.

A few kilobytes may unpack to terabytes, and an xz or zst file may demand gigabytes of memory. So every step
returns at most one chunk, the window is limited, and the caller counts the output. Several concatenated
members are one file, as with gzip, xz and zstd themselves. The format is determined by the first bytes, never
by the name: servers rename files, and some send ``Content-Encoding`` for a packed file.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Protocol

from .problems import Refused

CHUNK_BYTES = 1 << 20
_XZ_MEMORY_BYTES = 256 << 20
_ZST_WINDOW_LOG = 27
_MAGICS = {b"\x1f\x8b\x08": "gz", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zst"}


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def packing_of(head: bytes) -> str:
    """Return gz, xz or zst, recognised by the first bytes of a file; empty for anything else."""
    return next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), "")


def unpack(file: BinaryIO, kind: str) -> Iterator[bytes]:
    """Yield the unpacked content in chunks of at most `CHUNK_BYTES`.

    `kind`: gz, xz or zst. Raises Refused for a damaged or truncated file.
    """
    make, failures = _decoder_of(kind)
    decoder: _Decoder | None = None
    rest, members = b"", 0
    try:
        while True:
            if decoder is None:
                rest = rest.lstrip(b"\0") if members else rest  # padding between and after members
                rest = rest or file.read(CHUNK_BYTES)
                if not rest:
                    return
                if not rest.strip(b"\0"):
                    rest = b""
                    continue
                if members and not packing_of(rest) and len(rest) >= 6:
                    raise Refused(f"has other data after its {kind} data", "publish the file alone")
                decoder = make()
                members += 1
                data, rest = rest, b""
            else:
                data = file.read(CHUNK_BYTES) if decoder.needs_input else b""
                if decoder.needs_input and not data:
                    raise Refused(f"is a truncated {kind} file", "publish the whole file")
            if chunk := decoder.decompress(data, CHUNK_BYTES):
                yield chunk
            if decoder.eof:
                rest, decoder = decoder.unused_data, None
    except failures as error:
        raise Refused(f"is a damaged {kind} file ({error})", "publish it again") from error


def reported(chunks: Iterable[bytes], file: BinaryIO, progress: Callable[[int], object]) -> Iterator[bytes]:
    """Yield the chunks that are made from `file`; `progress` is called with the number of bytes that were read."""
    for chunk in chunks:
        progress(file.tell())
        yield chunk


class _Gzip:
    """Adapter that gives zlib's decoder the interface of lzma's and zstd's."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._has_more = False

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def needs_input(self) -> bool:
        return not self._has_more and not self._decoder.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        out = self._decoder.decompress(self._decoder.unconsumed_tail + data, max(max_length, 0))
        self._has_more = len(out) == max_length and not self._decoder.eof
        return out


def _decoder_of(kind: str) -> tuple[Callable[[], _Decoder], tuple[type[Exception], ...]]:
    if kind == "gz":
        return _Gzip, (zlib.error,)
    if kind == "xz":
        return (
            lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES),
            (lzma.LZMAError,),
        )
    from backports import zstd  # imported only if needed

    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZST_WINDOW_LOG}
    return lambda: zstd.ZstdDecompressor(options=options), (zstd.ZstdError,)
