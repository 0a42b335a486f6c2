"""`Store`: the files of the image store. Everything here blocks and runs on the store's threads.

::

    images/store-id                      the store's id, made once
    images/index.json                    where disks came from (index.py)
    images/blobs/<sha256>.<format>       finished disks, read-only, never written again; backing files of overlays
    images/partial/<hash of a source>/   partial downloads (part.py), and disks that are being unpacked

Names from image references and archives are never used as file names. Directories have mode 0700 and disks
0400. With a `reader_gid`, the group that emulators run in, directories have 0710 and disks 0440. A disk is
linked into ``blobs`` when its bytes are safely on disk, and written into the index after that. So a crash
leaves at most a disk that is not in the index.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from pathlib import Path

import msgspec

from kubeletx.linux.files import replace_file, sync_directory
from kubeletx_libvirt.access import give

from .importing import Disk, Limits, examine
from .index import Index, StoredDisk, load
from .problems import Refused

SCRATCH = "disk"
_BLOB = re.compile(r"([0-9a-f]{64})\.(qcow2|raw)")
_WORK = re.compile(r"[0-9a-f]{64}")
_PARTIAL_SECONDS = 7 * 86_400
"""Seconds for which a partial download is kept: a week, to survive a long outage."""
_NO_LIMITS = Limits(image_bytes=1 << 62, virtual_bytes=1 << 62)


class Store:
    """Directories and files of one image store.

    `directory`: belongs to the store exclusively; its parent must exist.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._blobs = directory / "blobs"
        self._partial = directory / "partial"
        self._index_path = directory / "index.json"
        self._reader_gid: int | None = None

    def open(self, now: float) -> Index:
        """Make the directories, remove leftovers of crashes, and return the index.

        `now`: seconds since the epoch.
        """
        for path in (self.directory, self._blobs):
            path.mkdir(mode=0o700, exist_ok=True)
        self._partial.mkdir(mode=0o700, exist_ok=True)
        self._sweep_partial(now)
        index = load(self._index_path) or Index()
        disks = self._match_blobs(index)
        origins = {key: origin for key, origin in index.origins.items() if origin.image in disks}
        if disks != index.disks or origins != index.origins:
            index = Index(origins=origins, disks=disks)
            self.save(index)
        return index

    def share(self, reader_gid: int | None) -> None:
        """Let this group read all present and later disks; None: only root may read them."""
        self._reader_gid = reader_gid
        for path in (self.directory, self._blobs):
            self._grant(path, 0o710, 0o700)
        for path in self._blobs.iterdir():
            self._grant(path, 0o440, 0o400)

    def identity(self) -> str:
        """Return the store's id. The first call makes it; it is the same as long as the directory exists."""
        path = self.directory / "store-id"
        try:
            if store_id := path.read_text().strip():
                return store_id
        except FileNotFoundError:  # the first start of this store
            pass
        replace_file(path, f"libvirt-{uuid.uuid4()}\n".encode())
        return path.read_text().strip()

    def save(self, index: Index) -> None:
        replace_file(self._index_path, msgspec.json.encode(index, order="sorted"))

    def work_directory(self, source_hash: str) -> Path:
        """Return the directory for the files of one source while it is being fetched."""
        return self._partial / source_hash

    def discard(self, work: Path) -> None:
        shutil.rmtree(work, ignore_errors=True)

    def keep_parts(self, work: Path) -> None:
        """Keep the partial download in a work directory for a later try; remove half-unpacked disks.

        If a file in it is already linked as a stored disk, the whole directory is removed, since a later try
        would write to the stored disk.
        """
        if any(path.lstat().st_nlink > 1 for path in work.glob("*")):
            self.discard(work)
            return
        for path in work.glob(f"{SCRATCH}*"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            work.rmdir()  # if nothing was fetched at all

    def blob_path(self, image_id: str, format: str) -> Path:
        """Return the path of a disk, whether the disk exists or not."""
        return self._blobs / f"{image_id.removeprefix('sha256:')}.{format}"

    def publish(self, disk: Disk) -> StoredDisk:
        """Link a finished disk into ``blobs`` and return its index entry.

        An existing disk with the same content is kept.
        """
        descriptor = os.open(disk.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._grant(disk.path, 0o440, 0o400)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        blob = self.blob_path(disk.sha256, disk.format)
        try:
            os.link(disk.path, blob)
        except FileExistsError:
            if blob.stat().st_size != disk.file_bytes:
                disk.path.replace(blob)
        sync_directory(self._blobs)
        return StoredDisk(
            format=disk.format, virtual_size_bytes=disk.virtual_size_bytes, file_bytes=disk.file_bytes
        )

    def remove(self, image_id: str, format: str) -> None:
        """Remove a disk; succeeds if it does not exist."""
        self.blob_path(image_id, format).unlink(missing_ok=True)
        sync_directory(self._blobs)

    def sizes(self, disks: dict[str, StoredDisk]) -> dict[str, int]:
        """Return the number of bytes on disk for each of `disks` whose file exists and is complete, by image id."""
        sizes: dict[str, int] = {}
        for image_id, disk in disks.items():
            with contextlib.suppress(FileNotFoundError):
                status = self.blob_path(image_id, disk.format).stat()
                if status.st_size == disk.file_bytes:
                    sizes[image_id] = status.st_blocks * 512
        return sizes

    def usage(self) -> tuple[int, int]:
        """Return the bytes and inodes of everything below the directory; a file with two hard links counts once."""
        seen: dict[int, int] = {}
        for place, _, files in os.walk(self.directory):
            for name in (".", *files):
                with contextlib.suppress(FileNotFoundError):  # a pull or removal runs at the same time
                    status = os.lstat(os.path.join(place, name))  # noqa: PTH118 - a walk over every file
                    seen[status.st_ino] = status.st_blocks * 512
        return sum(seen.values()), len(seen)

    # --- private ---

    def _grant(self, path: Path, shared: int, private: int) -> None:
        give(path, self._reader_gid, private if self._reader_gid is None else shared)

    def _match_blobs(self, index: Index) -> dict[str, StoredDisk]:
        """Return all disks in ``blobs``, with their entries in the index if they have one.

        After a crash or the loss of the index, a disk may have no entry. It is kept, since an overlay may use
        it, but no reference leads to it.
        """
        disks: dict[str, StoredDisk] = {}
        for path in sorted(self._blobs.iterdir()):
            match = _BLOB.fullmatch(path.name)
            if match is None:
                path.unlink()
                continue
            image_id = f"sha256:{match[1]}"
            size = path.stat().st_size
            known = index.disks.get(image_id)
            if known is not None and known.format == match[2] and known.file_bytes == size:
                disks[image_id] = known
                continue
            with contextlib.suppress(Refused):
                disks[image_id] = self._adopt(path, size, match[2])
        return disks

    def _adopt(self, path: Path, size: int, format: str) -> StoredDisk:
        if format == "raw":
            virtual = -(-size // 512) * 512
        else:
            with path.open("rb") as file:
                _, virtual = examine(file, size, name=path.name, limits=_NO_LIMITS)
        return StoredDisk(format=format, virtual_size_bytes=virtual, file_bytes=size)

    def _sweep_partial(self, now: float) -> None:
        for work in self._partial.iterdir():
            if not _WORK.fullmatch(work.name) or not work.is_dir():
                shutil.rmtree(work, ignore_errors=True) if work.is_dir() else work.unlink(missing_ok=True)
                continue
            self.keep_parts(work)
            newest = max((path.lstat().st_mtime for path in work.glob("*")), default=now)
            if newest < now - _PARTIAL_SECONDS:
                self.discard(work)
