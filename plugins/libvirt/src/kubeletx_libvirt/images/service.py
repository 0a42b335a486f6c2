"""`LibvirtImages`: the image store of the libvirt plugin.

The host pulls, lists and removes images (`SupportsImages`). The plugin gets the disk of an image (`disk`,
`hold`) and makes overlays on it. A stored disk is never changed and is shared by all overlays. It is removed
only if no overlay uses it: the function `in_use` of the plugin returns the disks that overlays use, and if it
fails, nothing is removed.

All changes of the index happen under one lock. Each makes a new `Index` value, which is written to disk
before it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import (
    BoundedThreadPool,
    Conflict,
    Host,
    ImageAuth,
    ImageFilesystem,
    ImageSpec,
    ImageStatus,
    KubeletxError,
    NotFound,
    PullProgress,
    SandboxSpec,
    SharedPulls,
    StoreId,
    StoreInfo,
    Unavailable,
    WhenFull,
    find_image_reference,
    names,
)

from ..config import ImageSettings
from . import local, reference
from .fetch import Downloads, Report
from .http import Http
from .importing import import_disk
from .index import Index, Origin, StoredDisk, Validators
from .oci import address_of
from .problems import STORE_FULL, Refused, from_os_error, is_full
from .reach import Reach
from .reference import HttpImage, ImageSource, LocalImage, OciImage
from .sources import Fetched, Fetcher, Request
from .store import SCRATCH, Store

log = structlog.get_logger(__name__)
InUse = Callable[[], Awaitable[Collection[str]]]
"""Function that returns the image refs, or the paths of stored disks, that overlays use. Raises if that is
unknown.
"""

STATIC_DIRECTORY = "/var/lib/libvirt/images"
_STATIC_SOURCES = frozenset({"file", "http", "applied"})
_ID = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


class BaseDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A stored disk, which is never written again. `ref`: its value in `ImageSpec.ref` and `UnitSummary.image_id`."""

    ref: str
    path: Path
    format: str
    virtual_size_bytes: int


class LibvirtImages:
    """Pulls, lists and removes images for the host (`SupportsImages`), and gives their disks to the plugin.

    `directory`: the store's own directory; its parent must exist.
    """

    def __init__(self, *, host: Host, directory: Path, settings: ImageSettings, in_use: InUse) -> None:
        self._host = host
        self._settings = settings
        self._in_use = in_use
        self._store = Store(directory)
        self._workers = BoundedThreadPool("libvirt-images", threads=2, when_full=WhenFull.WAIT)
        self._http = Http(stall_seconds=settings.image_stall_seconds)
        self._fetcher = Fetcher(Downloads(self._http, self._workers, host.clock), self._workers, settings)
        self._pulls: SharedPulls[str] = SharedPulls()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._lock = asyncio.Lock()
        self._index: Index | None = None
        self._id = ""
        self._held: Counter[str] = Counter()
        self._wanted_meanwhile: set[str] = set()

    async def open(self) -> None:
        """Read the index and remove the leftovers of a crash; a second call does nothing."""
        async with self._lock:
            if self._index is None:
                with self._os_errors(""):
                    now = self._host.clock.now().timestamp()
                    index = await self._workers.finish(self._store.open, now)
                    self._id = await self._workers.finish(self._store.identity)
                self._index = index

    async def share(self, reader_gid: int | None) -> None:
        """Let the emulators' group read the disks. `reader_gid`: this group; None: emulators run as root."""
        with self._os_errors(""):
            await self._workers.finish(self._store.share, reader_gid)

    async def close(self) -> None:
        """Stop all pulls (a later pull continues them) and close connections."""
        await self._pulls.close()
        await self._http.close()
        self._workers.close()

    # --- for the plugin ---

    async def disk(self, ref: str) -> BaseDisk:
        """Return the disk of an image. Raises NotFound if it is not in the store.

        `ref`: the store's ref, or a reference as in a manifest.
        """
        index = self._need_index()
        image_id = self._find_id(index, ref)
        disk = index.disks.get(image_id) if image_id is not None else None
        if disk is None or image_id is None or not await self._is_there(image_id, disk):
            raise NotFound(f"image {ref!r} is not in the store")
        self._wanted_meanwhile.add(image_id)
        return BaseDisk(
            ref=image_id,
            path=self._store.blob_path(image_id, disk.format),
            format=disk.format,
            virtual_size_bytes=disk.virtual_size_bytes,
        )

    @contextlib.asynccontextmanager
    async def hold(self, ref: str) -> AsyncIterator[BaseDisk]:
        """Context manager: yields the disk of an image, which is not removed before the block ends.

        It protects a disk whose overlay is not made yet, so that `in_use` does not list it. `ref`: as in
        `disk`.
        """
        image_id = self._find_id(self._need_index(), ref) or ref
        self._held[image_id] += 1
        try:
            yield await self.disk(ref)
        finally:
            self._wanted_meanwhile.add(image_id)
            self._held[image_id] -= 1
            if not self._held[image_id]:
                del self._held[image_id]

    async def check_allowed(self, image: str, sandbox: SandboxSpec | None) -> None:
        """Raise InvalidPod if this pod must not use this image reference.

        The reference may be invalid, or name a local file or a server that the pod may not use. An image that
        another pod brought into the store is refused as well. `sandbox`: the pod; None is treated as a pod from
        a manifest file.
        """
        source = reference.parse(image, self._settings.image_aliases)
        await self._check(source, image, sandbox)

    # --- SupportsImages ---

    async def store_info(self) -> StoreInfo:
        self._need_index()
        used, inodes = await self._workers.run(self._store.usage)
        filesystem = ImageFilesystem(
            mountpoint=str(self._store.directory),
            used_bytes=used,
            inodes_used=inodes,
            at_ns=int(self._host.clock.now().timestamp() * 1e9),
        )
        return StoreInfo(id=StoreId(self._id), filesystems=(filesystem,))

    async def list_images(self) -> Sequence[ImageStatus]:
        index = self._need_index()
        sizes = await self._workers.run(self._store.sizes, index.disks)
        return [_status(index, image_id, size) for image_id, size in sizes.items()]

    async def find_image(self, image: ImageSpec) -> ImageStatus | None:
        index = self._need_index()
        image_id = self._find_id(index, image.requested) or self._find_id(index, image.ref)
        if image_id is None:
            return None
        sizes = await self._workers.run(self._store.sizes, {image_id: index.disks[image_id]})
        return _status(index, image_id, sizes[image_id]) if image_id in sizes else None

    async def pull_image(
        self,
        image: ImageSpec,
        auth: ImageAuth | None,
        sandbox: SandboxSpec | None,
        progress: Callable[[PullProgress], None] | None = None,
    ) -> str:
        self._need_index()
        source = reference.parse(image.requested, self._settings.image_aliases)
        await self._check(source, image.requested, sandbox)
        if auth is not None and not auth.server_address and image.requested in self._settings.image_aliases:
            auth = None  # it was chosen by the alias's name, which says nothing about the server
        # Shared only with equal rights: success with others does not prove that this pod may have the image.
        reach = self._reach(image.requested, sandbox)
        key = f"{source.key}|{reach.is_guarded}" + (f"|{hash(auth):x}" if auth is not None else "")

        def pull(report: Report) -> Awaitable[str]:
            request = Request(
                image=image.requested,
                work=self._store.work_directory(reference.source_hash(source)),
                auth=auth,
                directories=self._directories(sandbox),
                reach=reach,
                report=report,
            )
            return self._pull_in_turn(source, request)

        image_id = await self._pulls.join(key, pull, progress)
        await self._add_name(source.key, image.requested, image_id)
        return image_id

    async def remove_image(self, image: ImageSpec) -> None:
        async with self._lock:
            index = self._need_index()
            image_id = self._find_id(index, image.ref) or self._find_id(index, image.requested)
            if image_id is None:
                return
            disk = index.disks[image_id]
            path = self._store.blob_path(image_id, disk.format)
            self._wanted_meanwhile.clear()
            used = await self._in_use()
            if (
                not {image_id, image_id.removeprefix("sha256:"), str(path)}.isdisjoint(used)
                or self._held[image_id]
                or image_id in self._wanted_meanwhile
            ):
                raise Conflict(f"image {image.requested or image_id!r} is in use by a machine's disk")
            self._index = _without(index, image_id)
            with self._os_errors(image.requested):
                try:
                    await self._workers.finish(self._store.save, self._index)
                except OSError:
                    self._index = index
                    raise
                await self._workers.finish(self._store.remove, image_id, disk.format)

    # --- pulling ---

    async def _pull_in_turn(self, source: ImageSource, request: Request) -> str:
        """Pull from a source when no other pull from it runs, since they would share its work directory."""
        turn = self._turns.setdefault(source.key, asyncio.Lock())
        async with turn:
            try:
                return await self._pull(source, request)
            except KubeletxError as error:
                if (
                    not request.reach.is_guarded
                    or isinstance(source, LocalImage)
                    or error.reason == STORE_FULL
                ):
                    raise
                # One error for everything: else a pod could examine the servers that this node reaches.
                log.warning("Failed to fetch image", image=source.shown, err=error.message)
                raise Unavailable(
                    f"image {request.image!r} cannot be fetched: its server does not answer, may not be used by this "
                    "pod, or sends no usable disk. The agent's log says why; for servers in "
                    "kubeletx.plugins.libvirt.imageHosts this message does"
                ) from None

    async def _pull(self, source: ImageSource, request: Request) -> str:
        image = request.image
        if (pinned := await self._find_pinned(source)) is not None:
            await self._commit(source.key, image, pinned, Validators())
            return pinned
        is_kept = not isinstance(source, LocalImage)
        try:
            image_id, validators = await self._known(source) or ("", None)
            fetched = await self._fetcher.fetch(source, replace(request, known=validators))
            if fetched is not None:
                image_id = await self._import(source, request, fetched)
        except Refused as refused:
            is_kept = False
            raise refused.of(image) from refused
        except Unavailable as error:
            is_kept = is_kept and error.reason != STORE_FULL
            raise
        except OSError as error:
            is_kept = is_kept and not is_full(error)
            raise from_os_error(error, image, self._store.directory) from error
        else:
            is_kept = False
            return image_id
        finally:
            await self._workers.finish(
                self._store.keep_parts if is_kept else self._store.discard, request.work
            )

    async def _import(self, source: ImageSource, request: Request, fetched: Fetched) -> str:
        size = (await self._workers.finish(fetched.path.stat)).st_size
        progress = request.phase("checking and unpacking", size)
        progress(0)
        disk = await self._workers.finish_or_stop(
            request.stop,
            import_disk,
            fetched.path,
            name=source.name,
            scratch=_scratch(fetched.path, request.work),
            limits=self._fetcher.limits,
            stop=request.stop,
            progress=progress,
            sha256=fetched.sha256,
        )
        progress(size)
        image_id = f"sha256:{disk.sha256}"
        async with self._lock:
            index = self._need_index()
            stored = await self._workers.finish(self._store.publish, disk)
            earlier = index.disks.get(image_id)
            published = {*fetched.published, *(earlier.published if earlier is not None else ())}
            protected = request.auth is not None or (earlier is not None and earlier.protected)
            stored = replace(stored, published=tuple(sorted(published)), protected=protected)
            index = _with_name(
                replace(index, disks={**index.disks, image_id: stored}),
                source.key,
                request.image,
                image_id,
                fetched.validators,
            )
            try:
                await self._workers.finish(self._store.save, index)
            except OSError:
                if earlier is None:
                    await self._workers.finish(self._store.remove, image_id, stored.format)
                raise
            self._index = index
        return image_id

    async def _known(self, source: ImageSource) -> tuple[str, Validators] | None:
        """Return image id and validators of the last pull from this source; None if the store has no such image."""
        index = self._need_index()
        origin = index.origins.get(source.key)
        if origin is None or not await self._is_there(origin.image, index.disks[origin.image]):
            return None
        return origin.image, origin.validators

    async def _find_pinned(self, source: ImageSource) -> str | None:
        """Find a stored image that matches the source's pin, so that the source need not be contacted.

        Only images that were fetched without a credential are considered. Returns None if there is none.
        """
        index = self._need_index()
        image_id: str | None = None
        if isinstance(source, OciImage):
            origin = index.origins.get(source.key) if source.digest else None
            image_id = origin.image if origin is not None else None
        elif source.pin is not None:
            pin = str(source.pin)
            image_id = next((key for key, disk in index.disks.items() if pin in disk.published), None)
        if image_id is None or index.disks[image_id].protected:
            return None
        return image_id if await self._is_there(image_id, index.disks[image_id]) else None

    async def _add_name(self, key: str, name: str, image_id: str) -> None:
        origin = self._need_index().origins.get(key)
        if origin is not None and origin.image == image_id and name not in origin.names:
            await self._commit(key, name, image_id, origin.validators)

    async def _commit(self, key: str, name: str, image_id: str, validators: Validators) -> None:
        async with self._lock:
            index = self._need_index()
            if image_id not in index.disks:
                raise NotFound(f"image {name!r} was removed during the call; pull it again")
            changed = _with_name(index, key, name, image_id, validators)
            if changed != index:
                with self._os_errors(name):
                    await self._workers.finish(self._store.save, changed)
                self._index = changed

    # --- private ---

    def _need_index(self) -> Index:
        if self._index is None:
            raise RuntimeError("the image store is not open")
        return self._index

    async def _check(self, source: ImageSource, image: str, sandbox: SandboxSpec | None) -> None:
        if isinstance(source, LocalImage):
            await self._workers.run(local.check_place, source.path, self._directories(sandbox))
            return
        insecure = self._settings.insecure_registries
        url = source.url if isinstance(source, HttpImage) else address_of(source, insecure)
        try:
            self._reach(image, sandbox).check(url)
        except Refused as refused:
            raise refused.of(image) from refused

    def _directories(self, sandbox: SandboxSpec | None) -> tuple[str, ...]:
        if self._settings.image_directories is not None:
            return self._settings.image_directories
        return (STATIC_DIRECTORY,) if _is_of_manifest(sandbox) else ()

    def _reach(self, image: str, sandbox: SandboxSpec | None) -> Reach:
        if image in self._settings.image_aliases:  # the operator wrote the reference
            return Reach()
        listed = self._settings.image_hosts
        return Reach(listed, is_guarded=listed is None and not _is_of_manifest(sandbox))

    def _find_id(self, index: Index, name: str) -> str | None:
        """Return the image id for a store's ref or an image reference; None if the image is not stored.

        Raises InvalidPod for an invalid reference.
        """
        if not name:
            return None
        if (match := _ID.fullmatch(name)) and f"sha256:{match[1]}" in index.disks:
            return f"sha256:{match[1]}"
        origin = index.origins.get(reference.parse(name, self._settings.image_aliases).key)
        return origin.image if origin is not None else None

    async def _is_there(self, image_id: str, disk: StoredDisk) -> bool:
        return bool(await self._workers.run(self._store.sizes, {image_id: disk}))

    @contextlib.contextmanager
    def _os_errors(self, image: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise from_os_error(error, image, self._store.directory) from error


def _is_of_manifest(sandbox: SandboxSpec | None) -> bool:
    source = "file" if sandbox is None else sandbox.annotations.get(names.POD_SOURCE, "")
    return source in _STATIC_SOURCES


def _scratch(fetched: Path, work: Path) -> Path:
    """Return the path for the unpacked disk, which must differ from the path of the fetched file."""
    return work / (f"{SCRATCH}.unpacked" if fetched.name == SCRATCH else SCRATCH)


def _with_name(index: Index, key: str, name: str, image_id: str, validators: Validators) -> Index:
    """Return the index in which the reference `name` belongs to the source `key` and to no other.

    An alias may have led to another source before.
    """
    origins: dict[str, Origin] = {}
    for other, origin in index.origins.items():
        names_left = tuple(n for n in origin.names if n != name)
        if other != key and names_left:
            origins[other] = replace(origin, names=names_left)
    before = index.origins.get(key)
    all_names = tuple(dict.fromkeys((*(before.names if before is not None else ()), name)))
    origins[key] = Origin(image=image_id, names=all_names, validators=validators)
    return replace(index, origins=origins)


def _without(index: Index, image_id: str) -> Index:
    return Index(
        origins={key: origin for key, origin in index.origins.items() if origin.image != image_id},
        disks={key: disk for key, disk in index.disks.items() if key != image_id},
    )


def _status(index: Index, image_id: str, size_bytes: int) -> ImageStatus:
    tags: list[str] = []
    digests: list[str] = []
    for key, origin in index.origins.items():
        if origin.image == image_id:
            tags += origin.names
            reference = find_image_reference(key.removeprefix("oci:"))
            if origin.validators.digest and reference is not None:
                digests.append(f"{reference.repository}@{origin.validators.digest}")
    return ImageStatus(
        id=image_id,
        ref=image_id,
        tags=tuple(dict.fromkeys(tags)),
        digests=tuple(dict.fromkeys(digests)),
        size_bytes=size_bytes,
    )
