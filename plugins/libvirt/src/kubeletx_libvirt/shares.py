"""Directories of the node in the guest: virtiofs where it works, else 9p.

    plan_shares      mounts of kind DIRECTORY → `Share`s (pure)
    prepare_shares   makes a directory below the machine's own for each mount that cannot be shared directly: a
                     single file, since both protocols share directories only, and a read-only mount, since virtiofsd
                     cannot refuse writing. Both are bind mounts; the read-only one is enforced by the node's kernel.
                     With 9p and an emulator that is not root every mount gets one: the emulator may not pass the
                     directories above a volume, which are root's
    share_xml        the domain's ``<filesystem>``; virtiofs needs `memory_backing_xml` too
    guest_mounts     the guest's mounts, for the seed's boot hook
    release_shares   removes every bind mount that the mount table lists

virtiofsd reads and writes as root with the guest's own user ids, as a container would. 9p does so with the ids of
the emulator's process.
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
from kubeletx_libvirt.cloudinit import GuestMount

VIRTIOFSD: Final = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")
"""Paths of virtiofsd on Debian: package virtiofsd in trixie, qemu-system-common before."""
_9P_OPTIONS: Final = "trans=virtio,version=9p2000.L,msize=262144"


class ShareKind(enum.Enum):
    """Protocol that shares a directory with the guest."""

    VIRTIOFS = "virtiofs"
    NINE_P = "9p"


class Share(Spec, frozen=True, kw_only=True):
    """One directory or single file of the node that the guest mounts.

    `volume`: name of the pod's volume. `tag`: name of the share for the guest's mount. `origin`: source of the
    pod's mount. `directory`: the shared directory: `origin`, or one that `prepare_shares` makes. `file`: name of
    the single file in `directory`; empty: the whole directory is mounted. `squash`: the emulator is not root, so a
    change of a file's owner in the guest has no effect.
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
        """True if `prepare_shares` makes its directory."""
        return self.directory != self.origin

    @property
    def place(self) -> str:
        """Path on the node: the directory, or the single file."""
        return os.path.join(self.directory, self.file) if self.file else self.directory


def find_virtiofsd() -> str | None:
    """Path of the installed virtiofsd; None if it is not installed."""
    return next((path for path in VIRTIOFSD if os.access(path, os.X_OK)), None)


def plan_shares(
    mounts: Sequence[Mount],
    *,
    directory: Path,
    kind: ShareKind,
    files: frozenset[str] = frozenset(),
    is_root: bool = True,
) -> tuple[Share, ...]:
    """Plan one share for each mount of kind DIRECTORY, outer targets before those inside them. Pure.

    `directory`: parent of the directories that `prepare_shares` makes for this machine. `files`: sources that are
    single files. `is_root`: True if emulators run as root.
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
    """Mount sources that are not directories. Blocks."""
    return frozenset(
        mount.source
        for mount in mounts
        if mount.kind is SourceKind.DIRECTORY and mount.source and not os.path.isdir(mount.source)
    )


def prepare_shares(shares: Sequence[Share]) -> None:
    """Make the bind mounts that shares need; existing ones are kept. Also restores them after a restart of the node.

    Blocks. Raises Unavailable if a source is missing or the kernel refuses.
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
        unbind(str(point))  # it would be covered
        point.touch()
        # The guest is to write the file, and nothing beside it.
        bind(str(path), str(path), aside=aside)
        mounted = {}
    _bind(share.origin, point, mounted, aside=aside if share.read_only else None)


def _bind(origin: str, point: Path, mounted: Mapping[str, bool], *, aside: Path | None) -> None:
    is_read_only = mounted.get(str(point))
    if (
        is_read_only is False and aside is not None
    ):  # of an agent that made it so in two steps, and was interrupted
        unbind(str(point))
    elif is_read_only is not None:
        return
    bind(origin, str(point), aside=aside)


def release_shares(directory: Path) -> None:
    """Unmount all bind mounts below `directory`, and remove it; succeeds if there is none. Blocks.

    Only empty directories are removed, so that no data of a volume is.
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
    """Find the share that the emulator was not permitted to open. `problem`: libvirt's message about the failed start.

    None if the start failed for another reason.
    """
    if "Permission denied" not in problem:
        return None
    return next((share for share in shares if f"'{share.directory}'" in problem), None)


def share_xml(share: Share) -> str:
    """The ``<filesystem>`` element."""
    root = ET.Element("filesystem", type="mount", accessmode="squash" if share.squash else "passthrough")
    is_virtiofs = share.kind is ShareKind.VIRTIOFS
    ET.SubElement(root, "driver", type="virtiofs" if is_virtiofs else "path")
    ET.SubElement(root, "source", dir=share.directory)
    ET.SubElement(root, "target", dir=share.tag)
    if share.read_only and not is_virtiofs:  # virtiofs: by the prepared directory alone
        ET.SubElement(root, "readonly")
    return ET.tostring(root, encoding="unicode")


def memory_backing_xml(shares: Sequence[Share]) -> str:
    """The domain's ``<memoryBacking>``, with which virtiofsd can access the guest's memory.

    Empty if no share uses virtiofs.
    """
    if not any(share.kind is ShareKind.VIRTIOFS for share in shares):
        return ""
    return "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>"


def guest_mounts(shares: Sequence[Share]) -> tuple[GuestMount, ...]:
    """Convert the shares to mounts for the guest's boot hook, in the same order."""
    return tuple(
        GuestMount(
            tag=share.tag,
            target=share.target,
            type=share.kind.value,
            options=_options(share),
            bind=share.file,
        )
        for share in shares
    )


def _options(share: Share) -> str:
    parts = [_9P_OPTIONS] if share.kind is ShareKind.NINE_P else []
    return ",".join([*parts, "ro"] if share.read_only else parts)
