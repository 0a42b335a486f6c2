"""Index of the image store: source, names and validators (such as ETag) of each disk, in one JSON file.

The file is replaced atomically. If the index is lost, only names and validators are lost: the format of a
disk is also in its file name, ``blobs/<sha256>.<format>``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

VERSION = 1


class Validators(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Values that show, without fetching a source again, that it has not changed.

    `etag`, `modified` (Last-Modified) and `length`: from HTTP. `digest`: from an OCI manifest. `stamp`:
    device, inode, size and time of a local file.
    """

    etag: str = ""
    modified: str = ""
    length: int | None = None
    digest: str = ""
    stamp: str = ""

    @property
    def if_range(self) -> str:
        """Value of the If-Range header, to continue a download; empty if there is no strong validator.

        Source: RFC 9110, 13.1.5.
        """
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified

    def is_same_http(self, other: Validators) -> bool:
        """Return True if both belong to the same content; False if it differs or is not known to be the same."""
        if self.etag and other.etag:
            return self.etag.removeprefix("W/") == other.etag.removeprefix("W/")
        if self.modified and other.modified:
            return self.modified == other.modified and self.length == other.length
        return False


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source of disks, such as a URL.

    `names`: references in manifests that led to this source. `image`: id of the disk that was last fetched
    from it.
    """

    image: str
    names: tuple[str, ...] = ()
    validators: Validators = Validators()


class StoredDisk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file below ``blobs``.

    `published`: ``sha256=HEX`` of each (packed) file from which this disk was made, in the syntax of pins.
    `protected`: a credential was used to fetch it, so knowing its checksum does not allow a pod to use it.
    """

    format: str
    virtual_size_bytes: int
    file_bytes: int
    published: tuple[str, ...] = ()
    protected: bool = False


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """All disks in the image store and the sources from which they were fetched.

    `origins`: by `ImageSource.key`. `disks`: by image id (``sha256:HEX``).
    """

    version: int = VERSION
    origins: dict[str, Origin] = {}
    disks: dict[str, StoredDisk] = {}


def load(path: Path) -> Index | None:
    """Load the index; None if the file does not exist or cannot be used.

    A file that cannot be decoded, or has another version, is renamed to ``NAME.unreadable``.
    """
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
