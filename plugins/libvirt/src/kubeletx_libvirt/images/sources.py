"""`Fetcher`: fetches the file of an image source into a work directory, unless the source has not changed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kubeletx.api import BoundedThreadPool, ImageAuth, PermissionDenied, PullProgress

from ..config import ImageSettings
from . import local
from .fetch import Downloads, Report, Wanted, basic_header
from .importing import Limits
from .index import Validators
from .layers import DiskSearch
from .oci import Descriptor, Registry
from .part import Part
from .problems import Refused
from .reach import Reach
from .reference import HttpImage, ImageSource, LocalImage, OciImage, Pin
from .store import SCRATCH


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A completely fetched file.

    `sha256`: hash of the file; empty: not computed. `published`: checksums of the file in the syntax of pins.
    """

    path: Path
    validators: Validators
    sha256: str = ""
    published: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of one pull.

    `image`: the reference as written in the pod. `work`: directory for the source's files. `auth`: None: no
    credential. `directories`: where local images may be; see `local.check_place`. `reach`: servers that may be
    contacted. `known`: validators of the stored version; None: nothing is stored. `report`: called with the
    progress. `stop`: set to stop the work on threads.
    """

    image: str
    work: Path
    auth: ImageAuth | None
    directories: tuple[str, ...]
    reach: Reach
    report: Report
    known: Validators | None = None
    stop: threading.Event = msgspec.field(default_factory=threading.Event)

    def phase(self, message: str, total_bytes: int, before: int = 0) -> Callable[[int], object]:
        """Return a function for threads that reports how many bytes are done, in addition to those `before`."""
        loop = asyncio.get_running_loop()

        def report(done: int) -> object:
            seen = PullProgress(done_bytes=before + done, total_bytes=total_bytes, message=message)
            return loop.call_soon_threadsafe(self.report, seen)

        return report


class Fetcher:
    """Fetches the files of images from HTTP servers, registries and this node into one image store."""

    def __init__(self, downloads: Downloads, workers: BoundedThreadPool, settings: ImageSettings) -> None:
        self._downloads = downloads
        self._workers = workers
        self._settings = settings
        self.limits = Limits(image_bytes=settings.max_image_bytes, virtual_bytes=settings.max_virtual_bytes)

    async def fetch(self, source: ImageSource, request: Request) -> Fetched | None:
        """Fetch the source into the request's work directory; None if the stored version is still current."""
        match source:
            case HttpImage():
                return await self._fetch_http(source, request)
            case LocalImage():
                return await self._fetch_local(source, request)
            case OciImage():
                return await self._fetch_oci(source, request)

    async def _fetch_http(self, source: HttpImage, request: Request) -> Fetched | None:
        part = Part(request.work, algorithms=_algorithms(source.pin))
        wanted = Wanted(
            image=request.image,
            url=source.url,
            shown=f"image {source.shown}",
            headers=dict(_url_credentials(source.url, request.auth)),
            reach=request.reach,
            may_downgrade=source.pin is not None,
            known=request.known,
            limit_bytes=self.limits.image_bytes,
        )
        validators = await self._downloads.download(wanted, part, request.report)
        if validators is None:
            return None
        published = {name: part.digest(name) for name in _algorithms(source.pin)}
        return _fetched(part.path, published, source.pin, validators)

    async def _fetch_local(self, source: LocalImage, request: Request) -> Fetched | None:
        descriptor = await self._workers.finish(local.open_image, source.path, request.directories)
        try:
            stamp = local.stamp_of(descriptor)
            if request.known is not None and request.known.stamp == stamp:
                return None
            await self._workers.finish(lambda: request.work.mkdir(mode=0o700, exist_ok=True))
            target = request.work / "data"
            size = os.fstat(descriptor).st_size
            digests = await self._workers.finish_or_stop(
                request.stop,
                local.copy,
                descriptor,
                target,
                image=request.image,
                algorithms=_algorithms(source.pin),
                limits=self.limits,
                stop=request.stop,
                progress=request.phase("copying", size),
            )
        finally:
            await self._workers.finish(os.close, descriptor)
        return _fetched(target, digests, source.pin, Validators(stamp=stamp))

    async def _fetch_oci(self, source: OciImage, request: Request) -> Fetched | None:
        registry = Registry(
            self._downloads.http,
            source,
            request.auth,
            insecure=self._settings.insecure_registries,
            reach=request.reach,
            shown=f"image {source.shown}",
        )
        manifest = await registry.find_manifest(request.known.digest if request.known is not None else "")
        if manifest is None:
            return None
        total = sum(layer.size for layer in manifest.layers)
        if total > self.limits.image_bytes:
            raise Refused(
                f"has layers of {total} bytes, and at most {self.limits.image_bytes} are allowed",
                "raise kubeletx.plugins.libvirt.maxImageBytes if it is meant to be that large",
            )
        target = request.work / SCRATCH
        search = DiskSearch(target, limits=self.limits, stop=request.stop)
        done = 0
        for layer in reversed(manifest.layers):
            if search.is_hidden_below:
                break
            part = await self._fetch_layer(registry, layer, request, done, total)
            report = request.phase("unpacking", total, done)
            await self._workers.finish_or_stop(request.stop, search.read_layer, part.path, report)
            await self._workers.finish(part.discard)
            done += layer.size
        if not search.found:
            raise Refused("carries no disk under /disk", "build it FROM scratch with the disk as /disk/NAME")
        return Fetched(path=target, validators=Validators(digest=manifest.digest))

    async def _fetch_layer(
        self, registry: Registry, layer: Descriptor, request: Request, done: int, total: int
    ) -> Part:
        def report(progress: PullProgress) -> None:
            request.report(
                PullProgress(
                    done_bytes=done + progress.done_bytes, total_bytes=total, message=progress.message
                )
            )

        name = layer.digest.removeprefix("sha256:")
        for is_second in (False, True):
            part = Part(request.work, name=name)
            wanted = Wanted(
                image=request.image,
                url=registry.blob_url(layer.digest),
                shown=f"image {request.image}",
                headers=registry.headers,
                reach=request.reach,
                fixed=True,
                may_downgrade=True,  # the digest is checked
                limit_bytes=self.limits.image_bytes,
                size_bytes=layer.size,
            )
            try:
                await self._downloads.download(wanted, part, report)
                break
            except PermissionDenied:
                if is_second:
                    raise
                await registry.find_manifest()  # the token expired meanwhile; this gets a new one
        if part.digest("sha256") != name:
            raise Refused(
                f"has a layer whose content is not {layer.digest}",
                "push the image again, or check the registry",
            )
        return part


def server_of(address: str) -> str:
    """Return ``HOST[:PORT]`` of a URL or of a registry's address, in lower case."""
    return address.partition("://")[2].partition("/")[0].lower() or address.partition("/")[0].lower()


def _url_credentials(url: str, auth: ImageAuth | None) -> Mapping[str, str]:
    """Return headers with the credentials if these are meant for this server; else empty.

    The password of a registry is not sent to a URL on another server, and credentials for https are not sent
    without encryption.
    """
    if auth is None or not auth.server_address or server_of(auth.server_address) != server_of(url):
        return {}
    if auth.server_address.startswith("https://") and not url.startswith("https://"):
        return {}
    if auth.registry_token:
        return {"Authorization": f"Bearer {auth.registry_token}"}
    if auth.auth and not auth.username:
        return {"Authorization": f"Basic {auth.auth}"}
    return basic_header(auth.username, auth.password) if auth.username else {}


def _algorithms(pin: Pin | None) -> tuple[str, ...]:
    return ("sha256",) if pin is None or pin.algorithm == "sha256" else ("sha256", pin.algorithm)


def _fetched(path: Path, digests: Mapping[str, str], pin: Pin | None, validators: Validators) -> Fetched:
    if pin is not None and digests[pin.algorithm] != pin.value:
        raise Refused(
            f"has the checksum {pin.algorithm}={digests[pin.algorithm]}, not {pin.value}",
            "check the pin, or who changed the file",
        )
    return Fetched(
        path=path,
        validators=validators,
        sha256=digests["sha256"],
        published=tuple(f"{name}={value}" for name, value in digests.items()),
    )
