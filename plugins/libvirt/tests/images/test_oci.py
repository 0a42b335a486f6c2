"""The registry client: indexes, tokens, digests, and who gets the password."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import io
import json
import platform
import tarfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubeletx_libvirt.images.importing import Limits
from kubeletx_libvirt.images.layers import DiskSearch
from kubeletx_libvirt.images.oci import INDEXES, MANIFESTS
from kubeletx_libvirt.images.problems import Refused
from kubeletx_libvirt.images.service import LibvirtImages

from kubeletx.api import ImageAuth, InvalidPod, PermissionDenied, TimedOut
from plugins.libvirt.tests.images.conftest import MakeImages, spec
from plugins.libvirt.tests.images.disks import qcow2
from plugins.libvirt.tests.images.file_server import FileServer

DISK = qcow2()
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def layer(content: bytes = DISK) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("./disk/vm.qcow2")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def manifest(data: bytes, **changes: Any) -> bytes:
    descriptor = {
        "mediaType": "application/vnd.oci.image.layer.v1.tar",
        "digest": digest(data),
        "size": len(data),
    }
    return json.dumps(
        {"schemaVersion": 2, "mediaType": MANIFESTS[0], "layers": [descriptor | changes]}
    ).encode()


def publish(
    server: FileServer, name: str, *documents: tuple[str, bytes], blobs: tuple[bytes, ...] = ()
) -> None:
    for reference, body in documents:
        server.answers[f"/v2/{name}/manifests/{reference}"] = (200, {}, body)
    for blob in blobs:
        server.files[f"/v2/{name}/blobs/{digest(blob)}"] = blob


async def opened(make_images: MakeImages, server: FileServer, **settings: object) -> LibvirtImages:
    images = make_images(insecure_registries=(f"127.0.0.1:{server.port}",), **settings)
    await images.open()
    return images


async def pull(images: LibvirtImages, server: FileServer, name: str, auth: ImageAuth | None = None) -> str:
    return await images.pull_image(spec(f"127.0.0.1:{server.port}/{name}"), auth, None)


async def test_an_index_leads_to_the_image_of_this_architecture(
    make_images: MakeImages, server: FileServer
) -> None:
    data = layer()
    wanted, other = manifest(data), manifest(b"other")
    index = {
        "mediaType": INDEXES[0],
        "manifests": [
            {"digest": digest(other), "size": 1, "platform": {"os": "linux", "architecture": "mips"}},
            {"digest": digest(other), "size": 1, "platform": {"os": "unknown", "architecture": ARCHITECTURE}},
            {"digest": digest(wanted), "size": 1, "platform": {"os": "linux", "architecture": ARCHITECTURE}},
        ],
    }
    publish(server, "d", ("1", json.dumps(index).encode()), (digest(wanted), wanted), blobs=(data,))
    index["manifests"] = index["manifests"][:1]
    publish(server, "e", ("1", json.dumps(index).encode()))
    images = await opened(make_images, server)
    assert await pull(images, server, "d:1") == digest(DISK)
    with pytest.raises(InvalidPod, match="linux/mips"):
        await pull(images, server, "e:1")


@pytest.mark.parametrize(
    ("document", "word"),
    [
        (b"{", "no readable manifest"),
        (b'{"a":' + b"[" * 100_000, "no readable manifest"),
        (b"{}", "without layers"),
        (manifest(b"x", digest="sha256:../../etc/passwd"), "digest"),
        (manifest(b"x", digest="md5:" + "a" * 32), "digest"),
        (manifest(b"x", size=-1), "digest"),
        (manifest(b"x", mediaType="application/vnd.oci.image.layer.v1.tar+encrypted"), "encrypted"),
        (manifest(b"x", size=1 << 50), "at most"),
    ],
)
async def test_a_strange_manifest_is_refused(
    make_images: MakeImages, server: FileServer, document: bytes, word: str
) -> None:
    publish(server, "d", ("1", document))
    images = await opened(make_images, server)
    with pytest.raises(InvalidPod, match=word):
        await pull(images, server, "d:1")


@pytest.mark.parametrize("slow", ["manifest", "token", "token by form"])
async def test_a_small_document_has_one_deadline(
    make_images: MakeImages, server: FileServer, slow: str
) -> None:
    if slow == "manifest":
        publish(server, "d", ("1", b"{}"))
    else:
        server.guard = ("Bearer t0ken", "/v2/", f'Bearer realm="{server.url}/token"')
        server.answers["/token"] = (200, {}, b"{}")
    server.drips = True
    images = await opened(make_images, server, image_stall_seconds=0.2)
    async with asyncio.timeout(5):
        with pytest.raises(TimedOut, match=r"did not send the manifest within 0\.2 s"):
            await pull(images, server, "d:1", ImageAuth(identity_token="i") if "form" in slow else None)


def test_all_layers_together_may_unpack_to_the_limit(tmp_path: Path) -> None:
    lower = gzip.compress(layer(bytes(600_000)))
    upper = io.BytesIO()
    with tarfile.open(fileobj=upper, mode="w:gz") as tar:
        info = tarfile.TarInfo("ballast")
        info.size = 600_000
        tar.addfile(info, io.BytesIO(bytes(info.size)))
    for name, blob in (("lower", lower), ("upper", upper.getvalue())):
        (tmp_path / name).write_bytes(blob)
    limits = Limits(image_bytes=1_000_000, virtual_bytes=1_000_000)
    search = DiskSearch(tmp_path / "disk", limits=limits, stop=threading.Event(), extra_bytes=0)
    seen: list[int] = []
    search.read_layer(tmp_path / "upper", seen.append)
    assert seen[-1] == (tmp_path / "upper").stat().st_size
    with pytest.raises(Refused, match="unpack to more than is allowed"):
        search.read_layer(tmp_path / "lower", seen.append)


async def test_what_does_not_match_its_digest_is_refused(make_images: MakeImages, server: FileServer) -> None:
    data = layer()
    images = await opened(make_images, server)
    publish(server, "d", (f"sha256:{'a' * 64}", manifest(data)))
    with pytest.raises(InvalidPod, match="another digest"):
        await pull(images, server, f"d@sha256:{'a' * 64}")
    publish(server, "e", ("1", manifest(data)))
    server.files[f"/v2/e/blobs/{digest(data)}"] = data[:-1] + b"x"
    with pytest.raises(InvalidPod, match="whose content is not"):
        await pull(images, server, "e:1")
    assert await images.list_images() == []


async def test_the_token_server_gets_the_password_and_the_registry_the_token(
    make_images: MakeImages, server: FileServer
) -> None:
    data = layer()
    challenge = f'Bearer realm="{server.url}/token",service="reg",scope="repository:d:pull"'
    server.guard = ("Bearer t0ken", "/v2/", challenge)
    server.answers["/token"] = (200, {}, b'{"token": "t0ken"}')
    publish(server, "d", ("1", manifest(data)), blobs=(data,))
    images = await opened(make_images, server)
    assert await pull(images, server, "d:1", ImageAuth(username="me", password="pw")) == digest(DISK)
    ((path, headers),) = [request for request in server.requests if request[0].startswith("/token")]
    assert parse_qs(urlsplit(path).query)["scope"] == ["repository:d:pull"]
    assert headers["Authorization"] == f"Basic {base64.b64encode(b'me:pw').decode()}"
    sent = {h.get("Authorization") for path, h in server.requests if path.startswith("/v2/")}
    assert sent == {None, "Bearer t0ken"}


async def test_a_token_that_ran_out_is_renewed_between_layers(
    make_images: MakeImages, server: FileServer
) -> None:
    data = layer()
    server.guard = ("Bearer t0ken", "/v2/", f'Bearer realm="{server.url}/token"')
    server.answers["/token"] = (200, {}, b'{"access_token": "t0ken"}')
    server.expire_after = 1
    publish(server, "d", ("1", manifest(data)), blobs=(data,))
    images = await opened(make_images, server)
    assert await pull(images, server, "d:1") == digest(DISK)


async def test_a_refused_password_says_which_secret_is_meant(
    make_images: MakeImages, server: FileServer
) -> None:
    server.guard = ("Basic right", "/v2/", 'Basic realm="reg"')
    images = await opened(make_images, server)
    with pytest.raises(PermissionDenied, match=f"pull secret for 127.0.0.1:{server.port}"):
        await pull(images, server, "d:1")
    with pytest.raises(PermissionDenied, match="401"):
        await pull(images, server, "d:1", ImageAuth(username="me", password="wrong"))
    server.guard = ("x", "/v2/", 'Bearer realm="ftp://elsewhere/token"')
    with pytest.raises(InvalidPod, match="not https"):
        await pull(images, server, "d:1")


RIGHT = ImageAuth(username="me", password="pw")


def protect(server: FileServer) -> str:
    """A disk in a registry that accepts only `RIGHT`; its reference by digest."""
    data = layer()
    whole = manifest(data)
    publish(server, "d", ("1", whole), (digest(whole), whole), blobs=(data,))
    server.guard = (f"Basic {base64.b64encode(b'me:pw').decode()}", "/v2/", 'Basic realm="reg"')
    return f"d@{digest(whole)}"


async def test_a_disk_that_a_credential_opened_is_not_open_to_who_knows_its_digest(
    make_images: MakeImages, server: FileServer
) -> None:
    name = protect(server)
    images = await opened(make_images, server)
    assert await pull(images, server, name, RIGHT) == digest(DISK)
    with pytest.raises(PermissionDenied, match="pull secret"):
        await pull(images, server, name)
    again = len(server.requests)
    assert await pull(images, server, name, RIGHT) == digest(DISK)
    assert not [path for path, _ in server.requests[again:] if "/blobs/" in path]


async def test_a_pull_is_shared_only_with_the_same_credential(
    make_images: MakeImages, server: FileServer
) -> None:
    name = protect(server)
    images = await opened(make_images, server)
    server.gate.clear()
    pulls = [asyncio.create_task(pull(images, server, name, auth)) for auth in (RIGHT, None, RIGHT)]
    await server.asked.wait()
    server.gate.set()
    first, stranger, last = await asyncio.gather(*pulls, return_exceptions=True)
    assert (first, last) == (digest(DISK), digest(DISK))
    assert isinstance(stranger, PermissionDenied)
