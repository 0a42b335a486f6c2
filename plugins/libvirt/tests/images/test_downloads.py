"""Images over HTTP: resumed, shared, refused, never left half."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import lzma
from pathlib import Path

import pytest
from backports import zstd
from kubeletx_libvirt.images.service import LibvirtImages

from kubeletx.api import (
    ImageAuth,
    InvalidPod,
    KubeletxError,
    NotFound,
    PermissionDenied,
    PullProgress,
    TimedOut,
    Unavailable,
)
from plugins.libvirt.tests.images.conftest import MakeImages, spec
from plugins.libvirt.tests.images.disks import CLUSTER, qcow2, raw
from plugins.libvirt.tests.images.file_server import FileServer

BIG = qcow2(size=64 << 20, clusters=64)
MIB = 1 << 20


async def pull(images: LibvirtImages, reference: str, auth: ImageAuth | None = None) -> str:
    return await images.pull_image(spec(reference), auth, None)


def partial(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "images" / "partial").rglob("*") if path.is_file()]


def blobs(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "images" / "blobs").iterdir())


async def refused(images: LibvirtImages, reference: str, word: str) -> KubeletxError:
    with pytest.raises(InvalidPod, match=word) as caught:
        await pull(images, reference)
    assert caught.value.reason == "ImageRefused"
    return caught.value


async def test_a_disk_is_stored_under_its_hash_with_its_format(
    images: LibvirtImages, server: FileServer, tmp_path: Path
) -> None:
    server.files["/Disks/Debian.IMG"] = BIG
    ref = await pull(images, f"{server.url}/Disks/Debian.IMG?a=B%2Fc")
    digest = hashlib.sha256(BIG).hexdigest()
    assert ref == f"sha256:{digest}"
    disk = await images.disk(ref)
    assert (disk.format, disk.virtual_size_bytes) == ("qcow2", 64 << 20)
    assert disk.path == tmp_path / "images" / "blobs" / f"{digest}.qcow2"
    assert disk.path.read_bytes() == BIG
    assert disk.path.stat().st_mode & 0o777 == 0o400
    assert (tmp_path / "images").stat().st_mode & 0o777 == 0o700
    assert server.requests[0][0] == "/Disks/Debian.IMG?a=B%2Fc"
    assert partial(tmp_path) == []


async def test_ten_pods_and_one_image_are_one_download(
    images: LibvirtImages, server: FileServer, tmp_path: Path
) -> None:
    server.files["/d.img"] = BIG
    server.gate.clear()
    pulls = [asyncio.create_task(pull(images, f"{server.url}/d.img")) for _ in range(10)]
    await server.asked.wait()
    server.gate.set()
    assert len(set(await asyncio.gather(*pulls))) == 1
    assert len(server.requests) == 1
    assert server.sent_bytes == len(BIG)
    assert len(blobs(tmp_path)) == 1


async def test_one_pod_less_does_not_end_the_download_of_the_others(
    images: LibvirtImages, server: FileServer
) -> None:
    server.files["/d.img"] = BIG
    server.gate.clear()
    first, second = (asyncio.create_task(pull(images, f"{server.url}/d.img")) for _ in range(2))
    await server.asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    server.gate.set()
    assert (await images.disk(await second)).format == "qcow2"


async def test_progress_reports_bytes_and_total(images: LibvirtImages, server: FileServer) -> None:
    server.files["/d.img.gz"] = packed = gzip.compress(BIG, 0)
    heard: list[PullProgress] = []
    await images.pull_image(spec(f"{server.url}/d.img.gz"), None, None, heard.append)
    for message in ("downloading", "checking and unpacking"):
        seen = [progress for progress in heard if progress.message == message]
        assert [progress.done_bytes for progress in seen] == sorted(progress.done_bytes for progress in seen)
        assert (seen[-1].done_bytes, seen[-1].total_bytes) == (len(packed), len(packed))
        assert len(seen) > 3


async def test_a_broken_connection_is_continued_where_it_broke(
    images: LibvirtImages, server: FileServer
) -> None:
    server.files["/d.img"] = BIG
    server.break_after = [MIB + 17, MIB]
    await pull(images, f"{server.url}/d.img")
    assert [headers.get("Range") for _, headers in server.requests] == [
        None,
        f"bytes={MIB + 17}-",
        f"bytes={2 * MIB + 17}-",
    ]
    assert server.sent_bytes == len(BIG)


async def test_a_download_goes_on_after_a_restart_of_the_agent(
    make_images: MakeImages, server: FileServer
) -> None:
    server.files["/d.img"] = BIG
    server.stall_after = 2 * MIB
    first = make_images()
    await first.open()
    has_some = asyncio.Event()

    def on_progress(progress: PullProgress) -> None:
        if progress.done_bytes >= MIB:
            has_some.set()

    task = asyncio.create_task(first.pull_image(spec(f"{server.url}/d.img"), None, None, on_progress))
    await has_some.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await first.close()
    server.stall_after = None
    second = make_images()
    await second.open()
    ref = await pull(second, f"{server.url}/d.img")
    assert ref == f"sha256:{hashlib.sha256(BIG).hexdigest()}"
    assert "Range" in server.requests[-1][1]
    assert server.sent_bytes < len(BIG) + 2 * MIB


async def test_a_part_of_another_version_is_not_continued(
    make_images: MakeImages, server: FileServer
) -> None:
    newer = qcow2(size=64 << 20, clusters=64, fill=b"y")
    server.files["/d.img"] = BIG
    server.break_after = [MIB, 0, 0, 0]
    images = make_images()
    await images.open()
    with pytest.raises(Unavailable, match="next attempt resumes"):
        await pull(images, f"{server.url}/d.img")
    server.files["/d.img"] = newer
    server.break_after = []
    assert await pull(images, f"{server.url}/d.img") == f"sha256:{hashlib.sha256(newer).hexdigest()}"
    assert server.requests[-1][1]["If-Range"]


async def test_without_validators_a_download_starts_again(images: LibvirtImages, server: FileServer) -> None:
    server.files["/d.img"] = BIG
    server.etags = False
    server.break_after = [MIB]
    await pull(images, f"{server.url}/d.img")
    assert all("Range" not in headers for _, headers in server.requests)


async def test_a_server_without_ranges_starts_again(images: LibvirtImages, server: FileServer) -> None:
    server.files["/d.img"] = BIG
    server.ranges = False
    server.break_after = [MIB]
    assert await pull(images, f"{server.url}/d.img") == f"sha256:{hashlib.sha256(BIG).hexdigest()}"


async def test_last_modified_is_a_validator_too(images: LibvirtImages, server: FileServer) -> None:
    server.files["/d.img"] = BIG
    server.etags, server.modified = False, 1_700_000_000
    server.break_after = [MIB]
    await pull(images, f"{server.url}/d.img")
    await pull(images, f"{server.url}/d.img")
    assert server.sent_bytes == len(BIG)


async def test_a_server_that_hangs_is_given_up_in_words(make_images: MakeImages, server: FileServer) -> None:
    server.files["/d.img"] = BIG
    server.stall_after = 0
    images = make_images(image_stall_seconds=0.2)
    await images.open()
    with pytest.raises(TimedOut, match=r"sent nothing for 0\.2 s, after 0 of \d+ bytes"):
        await pull(images, f"{server.url}/d.img")


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    make_images: MakeImages, server: FileServer, chunked: bool
) -> None:
    server.files["/d.img"] = BIG
    server.drips, server.chunked = True, chunked
    images = make_images(image_stall_seconds=0.2)
    await images.open()
    async with asyncio.timeout(5):
        with pytest.raises(TimedOut, match=r"sent only \d+ bytes in 0\.2 s, after \d+"):
            await pull(images, f"{server.url}/d.img")


async def test_an_answer_begins_in_time_whatever_comes_before_it(make_images: MakeImages) -> None:
    ended = asyncio.Event()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()
        ended.set()

    images = make_images(image_stall_seconds=0.2)
    await images.open()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as hints:
        port = hints.sockets[0].getsockname()[1]
        async with asyncio.timeout(5):
            with pytest.raises(TimedOut, match=r"did not answer within 0\.2 s"):
                await pull(images, f"http://127.0.0.1:{port}/d.img")
            await ended.wait()


async def test_a_server_that_breaks_after_every_few_bytes_is_given_up(
    images: LibvirtImages, server: FileServer
) -> None:
    server.files["/d.img"] = BIG
    server.break_after = [40_000] * 10
    with pytest.raises(Unavailable, match="the next attempt resumes there"):
        await pull(images, f"{server.url}/d.img")
    assert len(server.requests) == 3


async def test_a_server_that_is_not_there_is_named(images: LibvirtImages) -> None:
    with pytest.raises(Unavailable, match=r"cannot connect to 127\.0\.0\.1:1"):
        await pull(images, "http://127.0.0.1:1/d.img")


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, NotFound), (410, NotFound), (401, PermissionDenied), (403, PermissionDenied), (500, Unavailable),
     (503, Unavailable), (429, Unavailable), (400, InvalidPod)],
)  # fmt: skip
async def test_an_error_answer_says_what_may_be_done(
    images: LibvirtImages, server: FileServer, status: int, error: type[KubeletxError], tmp_path: Path
) -> None:
    server.files["/d.img"] = BIG
    server.status = status
    with pytest.raises(error, match=str(status)):
        await pull(images, f"{server.url}/d.img?token=hidden")
    assert partial(tmp_path) == []


async def test_a_transfer_shorter_than_announced_is_not_an_image(
    images: LibvirtImages, server: FileServer, tmp_path: Path
) -> None:
    server.files["/d.raw"] = raw()
    server.announce_more = 1000
    server.ranges = False
    with pytest.raises(Unavailable, match="bytes"):
        await pull(images, f"{server.url}/d.raw")
    assert blobs(tmp_path) == []


async def test_redirects_are_followed_to_http_only(images: LibvirtImages, server: FileServer) -> None:
    server.files["/real.qcow2"] = BIG
    server.redirects = {"/a.qcow2": "/b.qcow2", "/b.qcow2": f"{server.url}/real.qcow2"}
    await pull(images, f"{server.url}/a.qcow2")
    for target in ("file:///etc/passwd", "ftp://h/x", "gopher://h"):
        server.redirects["/bad.qcow2"] = target
        await refused(images, f"{server.url}/bad.qcow2", "only http and https")
    server.redirects["/loop.qcow2"] = "/loop.qcow2"
    await refused(images, f"{server.url}/loop.qcow2", "more than 10 times")


async def test_a_right_checksum_needs_no_second_look_at_the_server(
    images: LibvirtImages, server: FileServer
) -> None:
    packed = lzma.compress(BIG)
    server.files["/d.qcow2.xz"] = packed
    for algorithm in ("sha256", "sha512"):
        digest = hashlib.new(algorithm, packed).hexdigest()
        first = await pull(images, f"{server.url}/d.qcow2.xz#{algorithm}={digest}")
        asked = len(server.requests)
        assert await pull(images, f"{server.url}/d.qcow2.xz#{algorithm}={digest}") == first
        assert len(server.requests) == asked


async def test_a_wrong_checksum_is_refused_and_nothing_is_kept(
    images: LibvirtImages, server: FileServer, tmp_path: Path
) -> None:
    server.files["/d.img"] = BIG
    error = await refused(images, f"{server.url}/d.img#sha256={'0' * 64}", "has the checksum sha256=")
    assert hashlib.sha256(BIG).hexdigest() in error.message
    assert partial(tmp_path) == [] == blobs(tmp_path)
    assert await images.find_image(spec(f"{server.url}/d.img#sha256={'0' * 64}")) is None


@pytest.mark.parametrize("packer", [gzip.compress, lzma.compress, zstd.compress])
@pytest.mark.parametrize(("content", "format"), [(qcow2(), "qcow2"), (raw(), "raw")])
async def test_packed_disks_are_unpacked_once(
    images: LibvirtImages, server: FileServer, packer: object, content: bytes, format: str, tmp_path: Path
) -> None:
    server.files["/download"] = packer(content)  # type: ignore[operator]
    disk = await images.disk(await pull(images, f"{server.url}/download"))
    assert disk.format == format
    assert disk.path.read_bytes() == content
    assert disk.ref == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert partial(tmp_path) == []


async def test_zeros_take_no_room(images: LibvirtImages, server: FileServer) -> None:
    server.files["/d.raw.gz"] = gzip.compress(raw(64 << 20))
    disk = await images.disk(await pull(images, f"{server.url}/d.raw.gz"))
    assert disk.path.stat().st_size == 64 << 20
    assert disk.path.stat().st_blocks * 512 < MIB


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("d.qcow2", qcow2(backing=(300, 9)), "backing file"),
        ("d.qcow2", qcow2(incompatible=4), "external file"),
        ("d.qcow2", qcow2(crypt=2), "encrypted"),
        ("d.qcow2", qcow2(size=4 << 40, l1_entries=8192), "maxVirtualBytes"),
        ("d.qcow2", BIG[:-CLUSTER], "truncated"),
        ("d.qcow2", raw(), "holds no qcow2"),
        ("d.raw", qcow2(), "holds a qcow2"),
        ("d.img", b"<!DOCTYPE html><title>404</title>" * 40, "is text"),
        ("d.img", b"", "0 bytes"),
        ("d.img", b"KDMV" + bytes(4096), "VMDK"),
        ("d.img.gz", gzip.compress(gzip.compress(raw())), "packed twice"),
        ("d.img.gz", gzip.compress(qcow2(backing=(300, 9))), "backing file"),
        ("d.img.xz", lzma.compress(qcow2())[:-9], "truncated"),
    ],
    ids=lambda value: value if isinstance(value, str) else "bytes",  # packed bytes hold the time
)
async def test_what_must_not_be_used_is_refused_and_not_kept(
    images: LibvirtImages, server: FileServer, name: str, content: bytes, word: str, tmp_path: Path
) -> None:
    server.files[f"/{name}"] = content
    await refused(images, f"{server.url}/{name}", word)
    assert partial(tmp_path) == [] == blobs(tmp_path)


async def test_limits_hold_for_downloads_and_for_what_comes_out(
    make_images: MakeImages, server: FileServer, tmp_path: Path
) -> None:
    images = make_images(max_image_bytes=MIB)
    await images.open()
    server.files["/bomb.img.xz"] = lzma.compress(raw(64 << 20))
    await refused(images, f"{server.url}/bomb.img.xz", "unpacks to more than 1048576")
    server.files["/big.img"] = BIG
    await refused(images, f"{server.url}/big.img", "at most 1048576")
    server.chunked = True
    await refused(images, f"{server.url}/big.img", "at most 1048576")
    assert partial(tmp_path) == [] == blobs(tmp_path)


async def test_always_transfers_only_what_is_newer(images: LibvirtImages, server: FileServer) -> None:
    url = f"{server.url}/d.img"
    server.files["/d.img"] = BIG
    old = await pull(images, url)
    heard: list[PullProgress] = []
    for does_its_part in (True, False):
        server.conditions = does_its_part
        assert await images.pull_image(spec(url), None, None, heard.append) == old
    assert [progress for progress in heard if progress.done_bytes] == []
    server.files["/d.img"] = qcow2(fill=b"new")[: 7 * CLUSTER]
    new = await pull(images, url)
    assert new != old
    image = await images.find_image(spec(url))
    assert image is not None
    assert image.ref == new
    assert {image.ref: image.tags for image in await images.list_images()} == {new: (url,), old: ()}


async def test_credentials_go_to_their_server_only(images: LibvirtImages, server: FileServer) -> None:
    server.files["/d.img"] = BIG
    for server_address in ("quay.io", "", server.url.replace("http:", "https:"), server.url):
        await pull(
            images,
            f"{server.url}/d.img",
            ImageAuth(username="me", password="pw", server_address=server_address),
        )
    assert ["Authorization" in headers for _, headers in server.requests] == [False, False, False, True]


async def test_a_redirect_elsewhere_takes_no_credentials_along(
    images: LibvirtImages, server: FileServer
) -> None:
    server.files["/d.img"] = BIG
    server.redirects["/a.img"] = f"http://localhost:{server.port}/d.img"
    auth = ImageAuth(username="me", password="pw", server_address=server.url)
    await pull(images, f"{server.url}/a.img", auth)
    assert ["Authorization" in headers for _, headers in server.requests] == [True, False]
