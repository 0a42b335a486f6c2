"""Finds the one disk below ``/disk`` in the layers of a container image.

Layers are read from the top. A name in an upper layer hides the same name in lower layers, a whiteout
(``.wh.NAME``) hides it without replacing it, an opaque mark hides the whole directory. Only the disk's bytes
are written, to a file whose name the plugin chooses; names in the archive are never used as paths. Sources:
OCI image specification, layer.md (changesets); the containerDisk convention of KubeVirt: one file directly
below ``/disk``.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .importing import Limits, Sink, Stopped, private_opener
from .problems import Refused
from .unpack import CHUNK_BYTES, packing_of, reported, unpack

_DIRECTORY = "disk"
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MAX_HEADER_BYTES = 1 << 20
_EXTRA_BYTES = 4 << 30
"""Maximum number of bytes in all layers in addition to the disk."""


class DiskSearch:
    """Searches layers from the top to the bottom for the disk, and writes its content to `target`.

    `found`: name of the disk below ``/disk``; empty: not found yet.
    """

    def __init__(
        self, target: Path, *, limits: Limits, stop: threading.Event, extra_bytes: int = _EXTRA_BYTES
    ) -> None:
        self.found = ""
        self.is_hidden_below = False
        """True once a whiteout hides all lower layers, so that they need not be read."""
        self._target, self._limits, self._stop = target, limits, stop
        self._hidden: set[str] = set()
        self._left = limits.image_bytes + extra_bytes

    def read_layer(self, path: Path, progress: Callable[[int], object]) -> None:
        """Search one layer. `path`: the layer as a tar archive, which may be packed.

        `progress`: called with the number of bytes of the layer that were read.

        Raises Refused for an unacceptable layer or disk, Stopped if the pull is cancelled, and OSError.
        """
        hidden: set[str] = set()
        opaque = False
        with path.open("rb") as file:
            kind = packing_of(file.read(8))
            file.seek(0)
            chunks = unpack(file, kind) if kind else iter(lambda: file.read(CHUNK_BYTES), b"")
            stream = _Stream(reported(chunks, file, progress), self._left, self._stop)
            try:
                with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as tar:
                    for member in tar:
                        parts = _parts(member.name)
                        if parts in ((_OPAQUE,), (f"{_WHITEOUT}{_DIRECTORY}",), (_DIRECTORY, _OPAQUE)):
                            opaque = True
                        elif parts == (_DIRECTORY,) and not member.isdir():
                            raise Refused("has a /disk that is not a directory", "put the file below /disk")
                        elif len(parts) == 2 and parts[0] == _DIRECTORY:
                            name = parts[1].removeprefix(_WHITEOUT)
                            hidden.add(name)
                            if name == parts[1] and name not in self._hidden and not member.isdir():
                                self._extract(tar, member, name)
            except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
                raise Refused(
                    f"has a layer that is not a valid tar archive ({error})", "push it again"
                ) from error
        self._left = stream.left
        self._hidden |= hidden
        self.is_hidden_below = self.is_hidden_below or opaque

    def _extract(self, tar: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> None:
        if not member.isreg():
            raise Refused(f"has a /disk/{name} that is not a regular file", "put the disk itself there")
        if self.found not in ("", name):
            raise Refused(
                f"has more than one file under /disk ({self.found}, {name})", "leave one disk in the image"
            )
        content = tar.extractfile(member)
        assert content is not None
        self.found = name
        with open(self._target, "wb", opener=private_opener) as file:
            sink = Sink(file, self._limits.image_bytes)
            sink.write_all(iter(lambda: content.read(CHUNK_BYTES), b""), self._stop)
        if sink.size != member.size:
            raise Refused("has a layer that ends in the middle of the disk", "push it again")


class _Member(tarfile.TarInfo):
    """Tar member that refuses headers (long names, pax records) so large that they would fill the memory."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if not self.isreg() and not self.issparse() and self.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]


class _Stream(io.RawIOBase):
    """Readable file object over an iterator of chunks. Raises Refused after more than `limit` bytes."""

    def __init__(self, chunks: Iterator[bytes], limit: int, stop: threading.Event) -> None:
        self._chunks, self.left, self._stop = chunks, limit, stop
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._stop.is_set():
            raise Stopped
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._rest = chunk
        data, self._rest = self._rest[:size], self._rest[size:]
        self.left -= len(data)
        if self.left < 0:
            raise Refused(
                "has layers that unpack to more than is allowed",
                "make the image smaller, or raise kubeletx.plugins.libvirt.maxImageBytes",
            )
        return data


def _parts(name: str) -> tuple[str, ...]:
    path = posixpath.normpath(name.strip("/"))
    return tuple(path.split("/")) if path != "." else ()
