"""Writes a cpio archive in the "newc" format, which the kernel unpacks as its first root file system.

Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations


class CpioArchive:
    """Collects the entries of an archive; `finish` returns it.

    Names have no leading slash, and a directory comes before what it contains. A name that exists already is skipped.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._names: set[str] = set()

    def directory(self, name: str) -> None:
        """Add a directory."""
        if name not in self._names:
            self._add(name, 0o040755, b"")

    def file(self, name: str, content: bytes, mode: int) -> None:
        """Add a regular file. `mode`: its permission bits."""
        self._add(name, 0o100000 | mode, content)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(name, 0o120777, target.encode())

    def device(self, name: str, major: int, minor: int) -> None:
        """Add a character device that only root may open."""
        self._add(name, 0o020600, b"", major, minor)

    def finish(self) -> bytes:
        """Return the archive."""
        self._add("TRAILER!!!", 0, b"")
        return b"".join(self._parts)

    def _add(self, name: str, mode: int, content: bytes, major: int = 0, minor: int = 0) -> None:
        if name in self._names:
            return
        self._names.add(name)
        encoded = name.encode() + b"\0"
        fields = (len(self._names), mode, 0, 0, 1, 0, len(content), 0, 0, major, minor, len(encoded), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        self._parts.append(_padded(header + encoded) + _padded(content))


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
