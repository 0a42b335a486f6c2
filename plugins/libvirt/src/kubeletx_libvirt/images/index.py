"""Index of the disk image store: source, names and HTTP validators (ETag) of each disk, in one JSON file.

The file is replaced atomically. A lost index costs the names and the validators; the format of a disk is also in its
file name, ``blobs/<sha256>.<format>``.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

VERSION = 1


class Validators(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Validators that recognise an unchanged source without fetching it.

    `etag`, `modified` (Last-Modified) and `length`: from HTTP. `digest`: from an OCI manifest. `stamp`: size, time
    and inode of a local file.
    """

    etag: str = ""
    modified: str = ""
    length: int | None = None
    digest: str = ""
    stamp: str = ""

    @property
    def if_range(self) -> str:
        """A strong validator, for resuming; empty when there is none. Source: RFC 9110, 13.1.5."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified

    def is_same_http(self, other: Validators) -> bool:
        """Return True if both belong to the same published file; False if unknown."""
        if self.etag and other.etag:
            return self.etag.removeprefix("W/") == other.etag.removeprefix("W/")
        if self.modified and other.modified:
            return self.modified == other.modified and self.length == other.length
        return False


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source of disks. `names`: references in manifests that led to it; `image`: id of its last disk."""

    image: str
    names: tuple[str, ...] = ()
    validators: Validators = Validators()


class StoredDisk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file below ``blobs``. `published`: ``sha256=HEX`` of each packed form it was fetched in, as in pins.

    `protected`: a pull that fetched it used a credential, so its checksum alone gives no right to it.
    """

    format: str
    virtual_size_bytes: int
    file_bytes: int
    published: tuple[str, ...] = ()
    protected: bool = False


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The image store's table: where images came from and which disks there are.

    `origins` by `ImageSource.key`, `disks` by image id (``sha256:HEX``).
    """

    version: int = VERSION
    origins: dict[str, Origin] = {}
    disks: dict[str, StoredDisk] = {}


def load(path: Path) -> Index | None:
    """Load the index; None if there is none, or an unreadable one (which is renamed)."""
    try:
        index = msgspec.json.decode(path.read_bytes(), type=Index)
        if index.version == VERSION:
            return index
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    path.replace(path.with_name(f"{path.name}.unreadable"))
    return None


def save(path: Path, index: Index) -> None:
    """Replace the index file; after a crash it is the old or the new one."""
    replace_file(path, msgspec.json.encode(index, order="sorted"))


def replace_file(path: Path, data: bytes) -> None:
    """Write, fsync and rename; nothing is left if the disk is full."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Fsync a directory, so that renames and links in it survive a crash."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
