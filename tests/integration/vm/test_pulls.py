"""Images of machines through the whole agent: one download for many, and every failure in the pod's own words.

All tests share one agent and one web server. The machines are tiny: what is tested is how their disks come here.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import Lab, put_manifest
from kubeletx_testing.lab.disk import SmallDisk
from kubeletx_testing.lab.oci import Entry, build_image, build_layer
from kubeletx_testing.lab.registry import PASSWORD, USERNAME, PrivateRegistry
from kubeletx_testing.lab.tiny_machine import UP, make_tiny_machine_image
from kubeletx_testing.lab.tools import get_tool
from tests.integration.support.bench import DEADLINE, Bench, until
from tests.integration.support.image_server import ImageServer
from tests.integration.support.machines import emulators, machine_manifest, wait_console
from tests.integration.support.vm_pods import make_machines

MIB = 1 << 20
STALL_SECONDS = 5
ALL_SECONDS = 120
"""For ten emulators that start, or end, at once."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server() -> Iterator[ImageServer]:
    with ImageServer() as one:
        yield one


@pytest.fixture(scope="module")
def registry(lab: Lab) -> Iterator[PrivateRegistry]:
    with PrivateRegistry(lab.base_dir / "protected", protected=True) as one:
        yield one


@pytest.fixture(scope="module")
def bench(
    make_bench: Callable[..., Bench],
    lab: Lab,
    registry: PrivateRegistry,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bench:
    return make_machines(
        make_bench,
        lab,
        tmp_path_factory.mktemp("pulls"),
        imageDirectories=[],
        imageStallSeconds=STALL_SECONDS,
        insecureRegistries=[registry.address],
    )


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_tiny_machine_image(tmp_path_factory.mktemp("tiny")).read_bytes()


def another(disk: bytes, text: str) -> bytes:
    """The same machine, which says `text` when it is up."""
    return disk.replace(UP.encode(), text.encode().ljust(len(UP)))


def put(bench: Bench, name: str, image: str, **machine: Any) -> Path:
    size = {"limits": {"cpu": "1", "memory": "16Mi"}, "requests": {"cpu": "10m"}}
    body = {"resources": size, **machine}
    return put_manifest(bench.manifests, machine_manifest(name, image=image, machine=body))


def said(pod: Pod) -> str:
    """The message with which the pod's machine waits."""
    waiting = [one.state.waiting for one in pod.status.container_statuses if one.state.waiting is not None]
    return waiting[0].message or "" if waiting else ""


def refused(bench: Bench, name: str, text: str) -> None:
    """Wait until the pod's machine waits for its image with a message that holds `text`, and its event says so."""
    bench.until(name, lambda pod: text in said(pod))
    bench.event(name, "Failed", text)


def convert(disk: bytes, directory: Path) -> Path:
    """The disk as qcow2."""
    source, target = directory / "disk.raw", directory / "disk.qcow2"
    source.write_bytes(disk)
    command = [get_tool("qemu-img"), "convert", "-f", "raw", "-O", "qcow2", str(source), str(target)]
    subprocess.run(command, check=True)
    return target


def images(bench: Bench) -> Path:
    return bench.agent.root_dir / "runtimes" / "libvirt-qemu" / "images"


def running(bench: Bench, name: str, *, seconds: float = DEADLINE) -> Pod:
    return bench.until(name, lambda pod: pod.status.phase == "Running", seconds=seconds)


def test_ten_pods_with_one_image_are_one_download_and_one_stored_disk(
    bench: Bench, server: ImageServer, disk: bytes
) -> None:
    server.files["/ten.img"] = another(disk, "ten")
    names = [f"ten-{number}" for number in range(10)]
    for name in names:
        put(bench, name, f"{server.url}/ten.img")
    for name in names:
        running(bench, name, seconds=ALL_SECONDS)
    assert server.answers("/ten.img") == [200]
    assert len(emulators(bench.agent)) == 10
    assert len(list(images(bench).glob("blobs/*"))) == 1
    until(lambda: list(images(bench).glob("partial/*")) == [], "the end of what was fetched in part")
    bench.remove(*names, seconds=ALL_SECONDS)
    until(lambda: emulators(bench.agent) == {}, "the end of all machines")


def test_a_url_that_hangs_is_reported_and_delays_no_other_pull_and_no_deletion(
    bench: Bench, server: ImageServer, disk: bytes
) -> None:
    server.hanging |= {"/hangs.img", "/other.img"}
    server.files["/goes.img"] = disk
    put(bench, "hangs", f"{server.url}/hangs.img")
    until(lambda: server.answers("/hangs.img"), "the request that hangs")
    put(bench, "goes", f"{server.url}/goes.img")
    running(bench, "goes")
    refused(bench, "hangs", f"did not answer within {STALL_SECONDS} s")
    put(bench, "other", f"{server.url}/other.img")
    until(lambda: server.answers("/other.img"), "another request that hangs")
    bench.remove("other", "hangs", "goes")
    until(lambda: list(images(bench).glob("partial/*/*")) == [], "the end of what was fetched in part")


def test_bad_images_are_refused_in_words_and_nothing_of_them_is_kept(
    bench: Bench, server: ImageServer, disk: bytes, tmp_path: Path
) -> None:
    before = sorted(images(bench).glob("blobs/*"))
    truncated = convert(disk, tmp_path)
    os.truncate(truncated, truncated.stat().st_size - 65_536)
    server.files |= {
        "/pinned.img": disk,
        "/short.qcow2": truncated.read_bytes(),
        "/page.img": b"<html><body>Log in first</body></html>",
    }
    bad = {
        "checksum": ("/pinned.img#sha256=" + "0" * 64, f"not {'0' * 64}"),
        "short": ("/short.qcow2", "is a truncated qcow2 file"),
        "page": ("/page.img", "is text, not a disk"),
        "absent": ("/absent.img", "404 Not Found"),
    }
    for name, (path, _) in bad.items():
        put(bench, name, f"{server.url}{path}")
    for name, (_, words) in bad.items():
        refused(bench, name, words)
    bench.remove(*bad)
    assert sorted(images(bench).glob("blobs/*")) == before
    until(lambda: list(images(bench).glob("partial/*")) == [], "the end of what was fetched in part")


def test_a_disk_that_fills_up_during_a_download_is_reported_and_given_back(
    bench: Bench, server: ImageServer, disk: bytes
) -> None:
    server.files["/large.img"] = disk + os.urandom(8 * MIB)
    partial = images(bench) / "partial"
    with SmallDisk(partial, size_bytes=4 * MIB):
        put(bench, "full", f"{server.url}/large.img")
        refused(bench, "full", "no space left")
        until(lambda: list(partial.iterdir()) == [], "the end of what was fetched in part")
    bench.remove("full")
    put(bench, "fits", f"{server.url}/large.img")
    running(bench, "fits")
    bench.remove("fits")


def test_urls_with_capitals_ports_and_queries_are_asked_for_as_they_are_written(
    bench: Bench, server: ImageServer, disk: bytes
) -> None:
    path = "/Images/Tiny-Disk.IMG?Token=A%2Fb&Version=1.2"
    server.files[path] = another(disk, "capitals")
    put(bench, "capitals", server.url + path)
    pod = running(bench, "capitals")
    assert server.answers(path) == [200]
    assert {one.image for one in pod.status.container_statuses} == {server.url + path}
    bench.remove("capitals")


def test_pull_policy_always_notices_a_newer_disk_and_leaves_running_machines_alone(
    bench: Bench, server: ImageServer, disk: bytes
) -> None:
    server.files["/latest.img"] = another(disk, "older")
    url = f"{server.url}/latest.img"
    put(bench, "first", url, imagePullPolicy="Always")
    wait_console(bench.agent, "first-lab", "older")
    put(bench, "same", url, imagePullPolicy="Always")
    running(bench, "same")
    assert server.answers("/latest.img") == [200, 304]
    ids = {name: bench.pod(name).status.container_statuses[0].container_id for name in ("first", "same")}
    server.files["/latest.img"] = another(disk, "newer")
    put(bench, "second", url, imagePullPolicy="Always")
    wait_console(bench.agent, "second-lab", "newer")
    assert server.answers("/latest.img") == [200, 304, 200]
    for name, one in ids.items():
        assert bench.pod(name).status.container_statuses[0].container_id == one
    assert "newer" not in bench.agent.cli("logs", "same-lab").stdout
    bench.remove("first", "same", "second")


def test_a_path_outside_the_image_directories_is_refused_before_it_is_read(
    bench: Bench, disk: bytes, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.img"
    secret.write_bytes(another(disk, "secret"))
    before = sorted(images(bench).glob("blobs/*"))
    put(bench, "local", str(secret))
    refused(bench, "local", "is not below a directory that local images may come from")
    assert sorted(images(bench).glob("blobs/*")) == before
    bench.remove("local")


def test_credentials_of_the_node_reach_the_registry_of_a_machines_disk(
    bench: Bench, registry: PrivateRegistry, disk: bytes
) -> None:
    layer = build_layer([Entry(path="disk"), Entry(path="disk/d.img", content=another(disk, "oci"))])
    registry.push([build_image(name="vm/tiny", tag="1", layers=[layer], config={}, architecture="amd64")])
    image = f"oci:{registry.address}/vm/tiny:1"
    put(bench, "denied", image)
    refused(bench, "denied", f"give the pod a pull secret for {registry.address}")
    bench.remove("denied")
    config: Mapping[str, Any] = {
        "auths": {registry.address: {"auth": base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()}}
    }
    (bench.agent.root_dir / "config.json").write_text(json.dumps(config))
    put(bench, "allowed", image)
    wait_console(bench.agent, "allowed-lab", "oci")
    bench.remove("allowed")
