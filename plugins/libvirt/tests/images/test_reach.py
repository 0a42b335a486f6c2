"""Which servers a pull may contact, and what a pod of a cluster learns about them."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from kubeletx_libvirt.images import reach
from kubeletx_libvirt.images.reach import is_of_node
from kubeletx_libvirt.images.service import LibvirtImages

from kubeletx.api import InvalidPod, KubeletxError, Unavailable
from plugins.libvirt.tests.images.conftest import MakeImages, spec
from plugins.libvirt.tests.images.disks import qcow2
from plugins.libvirt.tests.images.file_server import FileServer
from plugins.libvirt.tests.images.test_store import pod

DISK = qcow2()
OF_NODE = "127.0.0.2"


async def pull(images: LibvirtImages, reference: str, source: str = "api") -> str:
    return await images.pull_image(spec(reference), None, pod(source))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file server's address counts as one of another machine, `OF_NODE` as the node's."""
    monkeypatch.setattr(reach, "is_of_node", lambda host: host == OF_NODE)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "169.254.169.254", "224.0.0.1",
     "::1", "::", "::ffff:127.0.0.1", "fe80::1%eth0", "localhost", "a.localhost"],
)  # fmt: skip
def test_loopback_and_link_local_addresses_are_the_nodes(address: str) -> None:
    assert is_of_node(address)


def test_the_nodes_own_addresses_are_found_and_others_are_not() -> None:
    trie = Path("/proc/net/fib_trie").read_text()
    own = set(re.findall(r"-- (\S+)\n\s+/32 host LOCAL", trie))
    assert own
    assert all(is_of_node(address) for address in own)
    assert not any(is_of_node(host) for host in ("192.0.2.1", "2001:db8::1", "images.example"))


async def test_a_pod_of_a_cluster_names_no_address_of_the_node(
    images: LibvirtImages, server: FileServer
) -> None:
    server.files["/d.img"] = DISK
    url = f"{server.url}/d.img"
    for reference in (url, f"oci:127.0.0.1:{server.port}/d:1"):
        with pytest.raises(InvalidPod, match=r"127\.0\.0\.1, an address of the node itself") as caught:
            await pull(images, reference)
        assert caught.value.reason == "ImageRefused"
        with pytest.raises(InvalidPod):
            await images.check_allowed(reference, pod("api"))
    assert server.requests == []
    await pull(images, url, "file")
    with pytest.raises(InvalidPod):  # what another pod brought into the store is refused too
        await images.check_allowed(url, pod("api"))


async def test_neither_a_redirect_nor_a_name_nor_a_token_server_leads_to_the_node(
    make_images: MakeImages, server: FileServer, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def getaddrinfo(host: str, *args: object, **options: object) -> object:
        return resolve(OF_NODE if host == "rebound.example" else host, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)  # no name server here has this name
    images = make_images(insecure_registries=(f"127.0.0.1:{server.port}",))
    await images.open()
    async with FileServer(OF_NODE) as inner:
        inner.files["/d.img"] = DISK
        inner.answers["/token"] = (200, {}, b'{"token": "t"}')
        named = f"http://rebound.example:{inner.port}/d.img"
        server.redirects = {"/address.img": f"{inner.url}/d.img", "/name.img": named}
        server.guard = ("Bearer t", "/v2/", f'Bearer realm="{inner.url}/token"')
        for reference in (
            f"{server.url}/address.img",
            f"{server.url}/name.img",
            named,
            f"oci:127.0.0.1:{server.port}/d:1",
        ):
            with pytest.raises(Unavailable, match="cannot be fetched"):
                await pull(images, reference)
        assert inner.requests == []
        await pull(images, f"{server.url}/name.img", "file")


async def test_a_pod_of_a_cluster_cannot_tell_answers_apart(
    make_images: MakeImages, server: FileServer, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files = {"/text.img": b"hello " * 1000, "/d.img": DISK, "/d.qcow2": DISK[:40], "/raw.raw": DISK}
    server.redirects = {"/r.img": f"http://{OF_NODE}/", "/f.img": "file:///etc/passwd", "/l.img": "/l.img"}
    server.answers = {f"/{code}.img": (code, {}, b"") for code in (204, 400, 401, 404, 500)}
    server.answers["/v2/d/manifests/1"] = (200, {}, b"{}")
    images = make_images(insecure_registries=(f"127.0.0.1:{server.port}",))
    await images.open()
    paths = [*server.files, *server.redirects, *(p for p in server.answers if p.endswith(".img"))]
    paths[paths.index("/d.img")] = f"/d.img#sha256={'0' * 64}"
    references = [f"{server.url}{path}" for path in paths]
    references += [f"oci:127.0.0.1:{server.port}/{name}:1" for name in ("d", "e")]
    references += ["http://127.0.0.1:1/d.img", "oci:127.0.0.1:1/d:1"]
    said = set()
    for reference in references:
        with pytest.raises(KubeletxError) as caught:
            await pull(images, reference)
        error = caught.value
        said.add((type(error), error.reason, error.message.replace(reference, "IMAGE")))
    assert len(said) == 1, said
    with pytest.raises(KubeletxError, match="404"):
        await pull(images, f"{server.url}/404.img", "file")
    assert await pull(images, f"{server.url}/d.img")


async def test_only_listed_servers_are_contacted_and_their_answers_are_shown(
    make_images: MakeImages, server: FileServer
) -> None:
    server.files["/d.img"] = DISK
    async with FileServer() as other:
        other.files["/d.img"] = DISK
        server.redirects["/r.img"] = f"{other.url}/d.img"
        images = make_images(
            image_hosts=(f"127.0.0.1:{server.port}", "*.cdn.example"),
            image_aliases={"base": f"{other.url}/d.img"},
        )
        await images.open()
        await pull(images, f"{server.url}/d.img")
        with pytest.raises(KubeletxError, match="404"):
            await pull(images, f"{server.url}/e.img")
        for source in ("api", "file"):
            for reference in (f"{other.url}/d.img", f"{server.url}/r.img", "https://cdn.example/d.img"):
                with pytest.raises(InvalidPod, match=r"not in kubeletx\.plugins\.libvirt\.imageHosts"):
                    await pull(images, reference, source)
        assert other.requests == []
        await images.check_allowed("https://a.cdn.example/d.img", pod("api"))
        assert await pull(images, "base")
