"""Reads tar archives from an asynchronous source, and makes headers (POSIX.1-2001 pax, ustar, GNU long names).

`tarfile` can read only from blocking files. So only its headers are used here, and the caller handles the
contents.
"""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable

from kubeletx.api import Conflict

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
_LONGEST_HEADER = 1 << 20
"""Maximum size of pax records and long names, in bytes."""
_ENCODING = "utf-8"
_ERRORS = "surrogateescape"

Read = Callable[[], Awaitable[bytes]]


class TarReader:
    """Reads the members of one archive in order, as the bytes arrive."""

    def __init__(self, read: Read) -> None:
        """`read`: returns the next bytes of the archive; empty at its end."""
        self._read = read
        self._rest = b""
        self._left = 0
        """Number of bytes of the current member's content that are not read yet."""
        self._padding = 0
        """Number of padding bytes after the content."""

    async def members(self) -> AsyncIterator[tarfile.TarInfo]:
        """Yield the header of each member; content that the caller did not read is skipped.

        Raises Conflict if the input is not a tar archive or ends too early.
        """
        changes: dict[str, str] = {}
        while (block := await self._header()) is not None:
            try:
                info = tarfile.TarInfo.frombuf(block, _ENCODING, _ERRORS)
            except tarfile.HeaderError as error:
                raise Conflict(f"the input is not a tar archive: {error}") from error
            self._left, self._padding = _size(info.size), -info.size % BLOCK
            match info.type:
                case tarfile.XHDTYPE | tarfile.SOLARIS_XHDTYPE:
                    changes |= pax_records(await self._whole())
                case tarfile.GNUTYPE_LONGNAME:
                    changes["path"] = _text(await self._whole())
                case tarfile.GNUTYPE_LONGLINK:
                    changes["linkpath"] = _text(await self._whole())
                case tarfile.XGLTYPE:
                    await self._skip()
                case _:
                    info.name = changes.get("path", info.name)
                    info.linkname = changes.get("linkpath", info.linkname)
                    info.size = _size(changes.get("size", info.size))
                    changes = {}
                    self._left = info.size if info.isreg() else 0  # others have no content
                    self._padding = -self._left % BLOCK
                    yield info
                    await self._skip()

    async def content(self) -> bytes:
        """Return the next bytes of the current member's content; empty at its end."""
        if not self._left:
            return b""
        data = await self._some(self._left)
        self._left -= len(data)
        return data

    async def _header(self) -> bytes | None:
        block = await self._exactly(BLOCK, may_end=True)
        return block if block.strip(b"\0") else None

    async def _whole(self) -> bytes:
        if self._left > _LONGEST_HEADER:
            raise Conflict(f"the input is not a tar archive: a header of {self._left} bytes")
        data = await self._exactly(self._left)
        self._left = 0
        await self._skip()
        return data

    async def _skip(self) -> None:
        while await self.content():
            pass
        await self._exactly(self._padding)

    async def _exactly(self, size: int, *, may_end: bool = False) -> bytes:
        data = bytearray()
        while len(data) < size:
            if may_end and not data and not await self._fill():
                return b""
            data += await self._some(size - len(data))
        return bytes(data)

    async def _some(self, most: int) -> bytes:
        if not await self._fill():
            raise Conflict("the input ends in the middle of a tar archive; send all of it")
        data, self._rest = self._rest[:most], self._rest[most:]
        return data

    async def _fill(self) -> bool:
        self._rest = self._rest or await self._read()
        return bool(self._rest)


def _size(said: str | int) -> int:
    with contextlib.suppress(ValueError):
        if (size := int(said)) >= 0:
            return size
    raise Conflict(f"the input is not a tar archive: a member of {str(said)[:20]!r} bytes")


def pax_records(data: bytes) -> dict[str, str]:
    r"""Parse pax records: each is ``LENGTH KEY=VALUE\n``, where the length includes the whole record.

    Raises Conflict for an invalid record.
    """
    records = {}
    while data.strip(b"\0"):
        length, _, _ = data.partition(b" ")
        is_number = length.isdigit() and len(length) < 20
        if not is_number or not len(length) + 1 < int(length) <= len(data):
            raise Conflict("the input is not a tar archive: a pax record of no length")
        record, data = data[: int(length)], data[int(length) :]
        key, _, value = record[len(length) + 1 :].removesuffix(b"\n").partition(b"=")
        records[_text(key)] = _text(value)
    return records


def header_of(info: tarfile.TarInfo) -> bytes:
    """Return the header blocks of a member."""
    return info.tobuf(tarfile.PAX_FORMAT, _ENCODING, _ERRORS)


def padding_of(size: int) -> bytes:
    """Return the padding after a content of `size` bytes."""
    return bytes(-size % BLOCK)


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(_ENCODING, _ERRORS)
