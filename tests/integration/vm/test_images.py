"""Disks in container images, from a real registry (the containerDisk convention)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
import lzma
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubeletx_libvirt.config import ImageSettings
from kubeletx_libvirt.images.service import LibvirtImages

from kubeletx.api import (
    ImageAuth,
    ImageSpec,
    InvalidPod,
    NotFound,
    PermissionDenied,
    PullProgress,
    Unavailable,
)
from kubeletx.testing import FakeClock, FakeHost
from kubeletx_testing.lab.disk import SmallDisk
from kubeletx_testing.lab.oci import Entry, Image, build_image, build_layer
from kubeletx_testing.lab.registry import PASSWORD, USERNAME, PrivateRegistry

DISK = b"a raw disk".ljust(510, b"\x90") + b"\x55\xaa" + bytes(1 << 20)
ID = f"sha256:{hashlib.sha256(DISK).hexdigest()}"
SOMETHING = build_layer([Entry(path="etc"), Entry(path="etc/motd", content=b"hello\n")])


def with_disk(name: str = "disk.img", content: bytes = DISK) -> bytes:
    return build_layer([Entry(path="disk"), Entry(path=f"disk/{name}", content=content, mode=0o644)])


def image(name: str, *layers: bytes, architecture: str = "amd64") -> Image:
    """Layers from the lowest to the topmost."""
    return build_image(name=name, tag="1", layers=layers, config={}, architecture=architecture)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRegistry]:
    with PrivateRegistry(tmp_path_factory.mktemp("registry")) as one:
        yield one


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRegistry]:
    with PrivateRegistry(tmp_path_factory.mktemp("protected"), protected=True) as one:
        yield one


async def nothing_in_use() -> tuple[str, ...]:
    return ()


@pytest.fixture
async def make_images(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    made: list[LibvirtImages] = []

    async def make(*registries: PrivateRegistry, **settings: Any) -> LibvirtImages:
        host = FakeHost(tmp_path, clock=FakeClock(start=datetime.now(UTC), auto_advance=True))
        insecure = tuple(one.address for one in registries)
        made.append(
            LibvirtImages(
                host=host,
                directory=tmp_path / "images",
                settings=ImageSettings(insecure_registries=insecure, **settings),
                in_use=nothing_in_use,
            )
        )
        await made[-1].open()
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def pull(images: LibvirtImages, reference: str, auth: ImageAuth | None = None) -> str:
    return await images.pull_image(ImageSpec(requested=reference), auth, None)


def asked(registry: PrivateRegistry, what: str) -> int:
    return sum(f'"GET {what}' in line for line in registry.list_requests())


async def test_the_disk_of_a_container_image_is_the_machines_image(
    make_images: Callable[..., Any], registry: PrivateRegistry, tmp_path: Path
) -> None:
    pushed = image("disks/plain", with_disk())
    registry.push([pushed])
    images = await make_images(registry)
    reference = f"{registry.address}/disks/plain:1"
    heard: list[PullProgress] = []
    ref = await images.pull_image(ImageSpec(requested=reference), None, None, heard.append)
    assert ref == ID
    disk = await images.disk(ref)
    assert (disk.format, disk.path.read_bytes()) == ("raw", DISK)
    found = await images.find_image(ImageSpec(requested=f"oci:{reference}"))
    assert found is not None
    assert found.digests == (f"{registry.address}/disks/plain@{pushed.digest}",)
    assert heard[-1].message == "checking and unpacking"
    assert any(one.total_bytes and one.done_bytes == one.total_bytes for one in heard)
    assert list((tmp_path / "images" / "partial").rglob("*")) == []


async def test_ten_pods_and_one_image_are_one_transfer_and_always_asks_only_for_the_manifest(
    make_images: Callable[..., Any], registry: PrivateRegistry
) -> None:
    registry.push([image("disks/shared", with_disk("shared.img"))])
    images = await make_images(registry)
    reference = f"{registry.address}/disks/shared:1"
    assert set(await asyncio.gather(*(pull(images, reference) for _ in range(10)))) == {ID}
    assert asked(registry, "/v2/disks/shared/blobs/") == 1
    await pull(images, reference)
    assert asked(registry, "/v2/disks/shared/blobs/") == 1
    newer = DISK + bytes(512)
    registry.push([image("disks/shared", with_disk("shared.img", newer))])
    assert await pull(images, reference) == f"sha256:{hashlib.sha256(newer).hexdigest()}"


async def test_a_digest_is_asked_for_once(make_images: Callable[..., Any], registry: PrivateRegistry) -> None:
    pushed = image("disks/fixed", with_disk())
    registry.push([pushed])
    images = await make_images(registry)
    reference = f"{registry.address}/disks/fixed@{pushed.digest}"
    for _ in range(2):
        assert await pull(images, reference) == ID
    assert asked(registry, "/v2/disks/fixed/") == 2  # the manifest and one layer


async def test_upper_layers_hide_what_is_below(
    make_images: Callable[..., Any], registry: PrivateRegistry
) -> None:
    old = with_disk("old.img", b"old".ljust(4096, b"\x91"))
    whiteout = build_layer([Entry(path="disk/.wh.old.img", content=b"")])
    opaque = build_layer(
        [Entry(path="disk/.wh..wh..opq", content=b""), Entry(path="disk/disk.img", content=DISK)]
    )
    registry.push(
        [
            image(
                "hide/replaced", with_disk("disk.img", b"old".ljust(4096, b"\x91")), SOMETHING, with_disk()
            ),
            image("hide/whiteout", old, whiteout, with_disk()),
            image("hide/opaque", old, opaque),
            image("hide/none", with_disk(), build_layer([Entry(path=".wh.disk", content=b"")])),
        ]
    )
    images = await make_images(registry)
    for name in ("replaced", "whiteout", "opaque"):
        assert await pull(images, f"{registry.address}/hide/{name}:1") == ID
    with pytest.raises(InvalidPod, match="no disk under /disk"):
        await pull(images, f"{registry.address}/hide/none:1")


async def test_packed_disks_in_images_are_unpacked(
    make_images: Callable[..., Any], registry: PrivateRegistry
) -> None:
    registry.push(
        [
            image("packed/xz", with_disk("disk.img.xz", lzma.compress(DISK))),
            image("packed/gz", with_disk("disk", gzip.compress(DISK))),
        ]
    )
    images = await make_images(registry)
    for name in ("xz", "gz"):
        assert await pull(images, f"{registry.address}/packed/{name}:1") == ID


async def test_what_is_not_a_disk_is_refused_and_not_kept(
    make_images: Callable[..., Any], registry: PrivateRegistry, tmp_path: Path
) -> None:
    qcow2 = b"QFI\xfb" + (3).to_bytes(4, "big") + (300).to_bytes(8, "big") + (9).to_bytes(4, "big")
    evil = qcow2 + (16).to_bytes(4, "big") + bytes(4096)
    bad: dict[str, tuple[tuple[bytes, ...], str]] = {
        "none": ((SOMETHING,), "no disk under /disk"),
        "two": ((with_disk("a.img"), with_disk("b.img")), "more than one file"),
        "link": ((build_layer([Entry(path="disk/x.img", link="/etc/shadow")]),), "not a regular file"),
        "directory-link": ((build_layer([Entry(path="disk", link="/etc")]),), "not a directory"),
        "backing": ((with_disk(content=evil),), "backing file"),
        "no-tar": ((b"this is no tar archive" * 100,), "not a valid tar"),
        "cut-off": ((with_disk()[: 1 << 19],), "not a valid tar|ends in the middle"),
        "bomb": ((with_disk(content=DISK[:512] + bytes(16 << 20)),), "at most|more than"),
    }
    registry.push([image(f"bad/{name}", *layers) for name, (layers, _) in bad.items()])
    images = await make_images(registry, max_image_bytes=8 << 20)
    for name, (_, words) in bad.items():
        with pytest.raises(InvalidPod, match=words):
            await pull(images, f"{registry.address}/bad/{name}:1")
    assert await images.list_images() == []
    assert list((tmp_path / "images" / "partial").rglob("*")) == []


async def test_an_unlisted_registry_is_not_asked_over_plain_http(
    make_images: Callable[..., Any], registry: PrivateRegistry
) -> None:
    images = await make_images()
    with pytest.raises(Unavailable, match=r"TLS connection failed|cannot connect"):
        await pull(images, f"{registry.address}/disks/plain:1")


async def test_a_missing_image_says_so(make_images: Callable[..., Any], registry: PrivateRegistry) -> None:
    images = await make_images(registry)
    with pytest.raises(NotFound, match="404"):
        await pull(images, f"{registry.address}/disks/absent:1")


async def test_a_protected_registry_gets_the_pull_secret(
    make_images: Callable[..., Any], protected: PrivateRegistry
) -> None:
    protected.push([image("disks/secret", with_disk())])
    images = await make_images(protected)
    reference = f"{protected.address}/disks/secret:1"
    with pytest.raises(PermissionDenied, match="pull secret"):
        await pull(images, reference)
    with pytest.raises(PermissionDenied):
        await pull(images, reference, ImageAuth(username=USERNAME, password="wrong"))
    assert await pull(images, reference, ImageAuth(username=USERNAME, password=PASSWORD)) == ID


async def test_a_broken_off_layer_is_continued(
    make_images: Callable[..., Any], registry: PrivateRegistry, tmp_path: Path
) -> None:
    ballast = b"".join(hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(1 << 16))
    pushed = image("disks/large", with_disk(content=DISK[:512] + ballast))
    registry.push([pushed])
    images = await make_images(registry)
    arrived = asyncio.Event()

    def on_progress(progress: PullProgress) -> None:
        if progress.done_bytes >= 1 << 20 and progress.message == "downloading":
            arrived.set()

    reference = ImageSpec(requested=f"{registry.address}/disks/large:1")
    first = asyncio.create_task(images.pull_image(reference, None, None, on_progress))
    await arrived.wait()
    first.cancel()
    await asyncio.wait((first,))
    await images.pull_image(reference, None, None)
    layer = json.loads(pushed.manifest)["layers"][0]["digest"]
    codes = [line for line in registry.list_requests() if layer in line]
    assert any('" 206 ' in line for line in codes), codes


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server of one large disk: with its length at /announced, without at /chunked, packed at /packed."""
    content = DISK[:512] + bytes(range(256)) * (1 << 15)

    async def serve(request: web.Request) -> web.StreamResponse:
        body = lzma.compress(content, preset=0) if request.path == "/packed" else content
        response = web.StreamResponse()
        if request.path == "/announced":
            response.content_length = len(body)
        else:
            response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(body), 1 << 16):
                await response.write(body[at : at + (1 << 16)])
        return response

    application = web.Application()
    application.router.add_get("/{path:.*}", serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize("path", ["announced", "chunked", "packed"])
async def test_a_full_disk_leaves_no_rubbish_and_says_so(
    make_images: Callable[..., Any], tmp_path: Path, url: str, path: str
) -> None:
    with SmallDisk(tmp_path / "images", size_bytes=4 << 20) as disk:
        images = await make_images()
        used = (await images.store_info()).filesystems[0].used_bytes
        with pytest.raises(Unavailable, match="no space left") as caught:
            await pull(images, f"{url}/{path}")
        assert caught.value.reason == "ImageStoreFull"
        assert list((tmp_path / "images" / "partial").iterdir()) == []
        assert list((tmp_path / "images" / "blobs").iterdir()) == []
        assert (await images.store_info()).filesystems[0].used_bytes == used
        disk.fill()
        with pytest.raises(Unavailable, match="no space left"):
            await pull(images, f"{url}/{path}")
        await images.close()
