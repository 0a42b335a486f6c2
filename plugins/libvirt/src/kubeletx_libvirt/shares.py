"""Directories of the node that are shared with the guest: by virtiofs if virtiofsd is installed, else by 9p.

    plan_shares      converts mounts of kind DIRECTORY to `Share`s (pure)
    prepare_shares   makes a bind mount below the machine's own directory for each mount that cannot be shared
                     directly: a single file, since both protocols share directories only, and a read-only mount,
                     since virtiofsd cannot refuse writing (the node's kernel enforces the read-only bind mount).
                     With 9p and an emulator that is not root every mount gets one: the emulator may not enter the
                     directories above a volume, which belong to root
    share_xml        the domain's ``<filesystem>``; virtiofs needs `memory_backing_xml` too
    release_shares   removes every bind mount that the mount table lists

virtiofsd reads and writes as root with the guest's own user ids, as a container would. 9p does so with the
ids of the emulator's process.
"""

from __future__ import annotations

import enum
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from kubeletx.api import Mount, SourceKind, Unavailable
from kubeletx.api.specs import Spec
from kubeletx_libvirt.binds import bind, mounts_below, remove_place, unbind

VIRTIOFSD: Final = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")
"""Paths of virtiofsd on Debian: package virtiofsd in trixie, qemu-system-common before."""
_9P_OPTIONS: Final = "trans=virtio,version=9p2000.L,msize=262144"


class ShareKind(enum.Enum):
    """Protocol by which a directory is shared with the guest."""

    VIRTIOFS = "virtiofs"
    NINE_P = "9p"


class Share(Spec, frozen=True, kw_only=True):
    """One directory or single file of the node that the guest mounts.

    `volume`: name of the pod's volume. `tag`: name of the share, for the mount in the guest. `origin`: source
    path of the pod's mount. `directory`: the directory that is shared: `origin`, or one that `prepare_shares`
    makes. `target`: path in the guest. `file`: name of the single file in `directory`; empty: the whole
    directory is mounted. `squash`: the emulator is not root, so a change of a file's owner in the guest has
    no effect.
    """

    volume: str
    tag: str
    kind: ShareKind
    origin: str
    directory: str
    target: str
    read_only: bool = False
    file: str = ""
    squash: bool = False

    @property
    def is_prepared(self) -> bool:
        """True if `prepare_shares` must make the shared directory."""
        return self.directory != self.origin

    @property
    def place(self) -> str:
        """Path on the node: of the directory, or of the single file."""
        return os.path.join(self.directory, self.file) if self.file else self.directory

    @property
    def mount_options(self) -> str:
        """Options of the mount in the guest."""
        options = [_9P_OPTIONS] if self.kind is ShareKind.NINE_P else []
        return ",".join([*options, "ro"] if self.read_only else options)


def find_virtiofsd() -> str | None:
    """Return the path of the installed virtiofsd; None if it is not installed."""
    return next((path for path in VIRTIOFSD if os.access(path, os.X_OK)), None)


def plan_shares(
    mounts: Sequence[Mount],
    *,
    directory: Path,
    kind: ShareKind,
    files: frozenset[str] = frozenset(),
    is_root: bool = True,
) -> tuple[Share, ...]:
    """Plan one share for each mount of kind DIRECTORY. Pure.

    Shares are sorted so that a target comes before the targets inside it. `directory`: parent of the
    directories that `prepare_shares` makes for this machine. `files`: mount sources that are single files.
    `is_root`: emulators run as root.
    """
    wanted = [mount for mount in mounts if mount.kind is SourceKind.DIRECTORY and mount.source]
    shares = []
    for mount in sorted(wanted, key=lambda one: one.target.rstrip("/").split("/")):
        tag = "kx" + hashlib.sha256(mount.target.encode()).hexdigest()[:12]
        is_file = mount.source in files
        squash = kind is ShareKind.NINE_P and not is_root
        prepared = is_file or mount.read_only or squash
        shares.append(
            Share(
                volume=mount.name,
                tag=tag,
                kind=kind,
                origin=mount.source,
                directory=str(directory / tag) if prepared else mount.source,
                target=mount.target,
                read_only=mount.read_only,
                file=os.path.basename(mount.target.rstrip("/")) if is_file else "",
                squash=squash,
            )
        )
    return tuple(shares)


def find_files(mounts: Sequence[Mount]) -> frozenset[str]:
    """Return the mount sources that are not directories. Blocking."""
    return frozenset(
        mount.source
        for mount in mounts
        if mount.kind is SourceKind.DIRECTORY and mount.source and not os.path.isdir(mount.source)
    )


def prepare_shares(shares: Sequence[Share]) -> None:
    """Make the bind mounts that the shares need; existing ones are kept. Blocking.

    It also restores them after a restart of the node. Raises Unavailable if a source is missing or the kernel
    refuses.
    """
    for share in shares:
        if share.is_prepared:
            try:
                _prepare(share)
            except Unavailable as error:
                raise Unavailable(f"volume {share.volume} at {share.target}: {error}") from error


def _prepare(share: Share) -> None:
    path = Path(os.path.realpath(share.directory))
    aside = path.with_name(f".{path.name}")
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    mounted = mounts_below(path.parent)
    if not share.file:
        _bind(share.origin, path, mounted, aside=aside if share.read_only else None)
        return
    point = path / share.file
    if str(path) not in mounted:
        unbind(str(point))  # else the new mount would cover it
        point.touch()
        # The guest may write the file but create no other file beside it.
        bind(str(path), str(path), aside=aside)
        mounted = {}
    _bind(share.origin, point, mounted, aside=aside if share.read_only else None)


def _bind(origin: str, point: Path, mounted: Mapping[str, bool], *, aside: Path | None) -> None:
    is_read_only = mounted.get(str(point))
    if (
        is_read_only is False and aside is not None
    ):  # left by an interrupted agent that made it read-only in a second step
        unbind(str(point))
    elif is_read_only is not None:
        return
    bind(origin, str(point), aside=aside)


def release_shares(directory: Path) -> None:
    """Unmount all bind mounts below `directory`, and remove the directory; succeeds if it does not exist. Blocking.

    Only empty files and directories are removed, so that no data of a volume is lost.
    """
    for point in sorted(mounts_below(directory), reverse=True):
        unbind(point)
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        if path.is_dir():
            for file in path.iterdir():
                remove_place(file)
        remove_place(path)
    directory.rmdir()


def closed_share(shares: Sequence[Share], problem: str) -> Share | None:
    """Return the share that the emulator was not permitted to open; None if the start failed for another reason.

    `problem`: libvirt's message about the failed start.
    """
    if "Permission denied" not in problem:
        return None
    return next((share for share in shares if f"'{share.directory}'" in problem), None)


def share_xml(share: Share) -> str:
    """Return the ``<filesystem>`` element for the domain."""
    root = ET.Element("filesystem", type="mount", accessmode="squash" if share.squash else "passthrough")
    is_virtiofs = share.kind is ShareKind.VIRTIOFS
    ET.SubElement(root, "driver", type="virtiofs" if is_virtiofs else "path")
    ET.SubElement(root, "source", dir=share.directory)
    ET.SubElement(root, "target", dir=share.tag)
    if share.read_only and not is_virtiofs:  # virtiofs: the bind mount is read-only
        ET.SubElement(root, "readonly")
    return ET.tostring(root, encoding="unicode")


def memory_backing_xml(shares: Sequence[Share]) -> str:
    """Return the ``<memoryBacking>`` element with which virtiofsd can access the guest's memory.

    Empty if no share uses virtiofs.
    """
    if not any(share.kind is ShareKind.VIRTIOFS for share in shares):
        return ""
    return "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>"
