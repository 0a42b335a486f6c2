"""`LastGoodManifests`: stores the last valid text of each manifest.

After a restart of the agent, a manifest that has become invalid thus keeps its pods. All texts are in one journal
file, one line for each. A later line of a manifest replaces its earlier ones, and an incomplete last line is ignored.
Only the positions of the lines are kept in memory. If more than half of the journal is outdated, it is rewritten when
it is opened. If the journal is lost, an invalid manifest has no pods until it is valid again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from kubeletx.api.text import printable

log = structlog.get_logger(__name__)

JOURNAL: Final = "journal"


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a journal line without the text. `size`: size of the manifest in bytes; -1: it was removed."""

    origin: str
    mtime_ns: int
    size: int


class _Line(_Head, frozen=True, kw_only=True):
    text: str = ""


class _Place(NamedTuple):
    mtime_ns: int
    size: int
    offset: int
    length: int


_head = msgspec.json.Decoder(_Head)
_line = msgspec.json.Decoder(_Line)


class LastGoodManifests:
    """Journal with the last valid text of each manifest. `origin`: path of a manifest.

    The journal is in `directory`, which is made if missing. It is opened at the first use.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL
        self._places: dict[str, _Place] = {}
        self._file = -1
        self._end = 0
        self._has_failed = False

    def save(self, origin: str, data: bytes, mtime_ns: int) -> None:
        """Store the valid text `data` of a manifest, unless one of the same time and size is stored already.

        `mtime_ns`: modification time of the file. A disk error is not raised; it is logged once.
        """
        self._open()
        key = printable(origin)
        place = self._places.get(key)
        if place is None or (place.mtime_ns, place.size) != (mtime_ns, len(data)):
            text = data.decode("utf-8", "replace")
            self._append(_Line(origin=key, mtime_ns=mtime_ns, size=len(data), text=text))

    def find(self, origin: str) -> bytes | None:
        """Return the last valid text of a manifest; None if none is stored or the journal is damaged."""
        self._open()
        place = self._places.get(printable(origin))
        if place is None:
            return None
        try:
            return _line.decode(os.pread(self._file, place.length, place.offset)).text.encode()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            # a damaged journal loses the stored text, but must not stop the pod source
            return None

    def origins(self) -> list[str]:
        """Return the paths of the manifests that have a stored text, sorted."""
        self._open()
        return sorted(self._places)

    def forget(self, origin: str) -> None:
        """Delete the stored text of a manifest that no longer exists."""
        self._open()
        if printable(origin) in self._places:
            self._append(_Line(origin=printable(origin), mtime_ns=0, size=-1))

    def keep_only(self, origins: Iterable[str]) -> None:
        """Delete the stored texts of all manifests except `origins`.

        Called at the start: the other manifests were removed while the agent was not running.
        """
        self._open()
        kept = {printable(origin) for origin in origins}
        for key in self._places.keys() - kept:
            self._append(_Line(origin=key, mtime_ns=0, size=-1))

    def close(self) -> None:
        """Close the journal, if it is open. The next use opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        if self._file >= 0:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._read()
            if sum(place.length for place in self._places.values()) * 2 < self._end:
                self._rewrite()
        except OSError as err:
            self._fail(err)

    def _read(self) -> None:
        self._places.clear()
        self._end = 0
        with open(self._file, "rb", closefd=False) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    self._note(_head.decode(line), self._end, len(line))
                except (msgspec.DecodeError, UnicodeDecodeError):
                    log.debug("Skipped a damaged line", path=str(self._path), offset=self._end)
                self._end += len(line)
        os.ftruncate(self._file, self._end)

    def _rewrite(self) -> None:
        temporary = self._path.with_name(f".{self._path.name}.new")
        lines = [os.pread(self._file, place.length, place.offset) for place in self._places.values()]
        temporary.write_bytes(b"".join(lines))
        temporary.chmod(0o600)
        temporary.rename(self._path)
        self.close()
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._read()

    def _append(self, line: _Line) -> None:
        encoded = msgspec.json.encode(line) + b"\n"
        try:
            written = os.pwrite(self._file, encoded, self._end)
        except OSError as err:
            self._fail(err)
            return
        if written == len(encoded):
            self._note(line, self._end, written)
            self._end += written
            self._has_failed = False

    def _note(self, head: _Head, offset: int, length: int) -> None:
        if head.size < 0:
            self._places.pop(head.origin, None)
        else:
            self._places[head.origin] = _Place(head.mtime_ns, head.size, offset, length)

    def _fail(self, err: OSError) -> None:
        if not self._has_failed:
            log.warning("Failed to store manifests", path=str(self._path), err=str(err))
        self._has_failed = True
