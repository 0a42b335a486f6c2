"""Two volumes of one image: the second name is refused with its holder, on the same node and on another one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.storage.storage_agent import AgentNode, Reply

HOLDER = "as volume n1 (ReadWriteOnce) for pod default/one on node n1"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentNode, AgentNode]]:
    """Nodes n1 and n2 with one pool, which is shared by another name, whose agents run."""
    directory = tmp_path_factory.mktemp("nodes")
    pool, records = directory / "pool", directory / "records.db"
    shared = [f"--pool=shared={pool},shared"]
    made = [
        AgentNode(directory / name, name, pool=pool, records=records, boot_id=f"{name}-boot", options=shared)
        for name in ("n1", "n2")
    ]
    try:
        for one in made:
            one.start()
        yield made[0], made[1]
    finally:
        for one in made:
            one.end()


@pytest.fixture(autouse=True)
def nothing_is_left(nodes: tuple[AgentNode, AgentNode]) -> Iterator[None]:
    """Each test ends with clean nodes and an empty pool."""
    yield
    for node in nodes:
        node.becomes_clean()
    for image in nodes[0].pool.iterdir():
        image.rmdir() if image.is_dir() else image.unlink()


def device(node: AgentNode, pod: str, name: str) -> Path:
    """Path at which a pod gets a block volume."""
    return node.root / "pods" / f"{pod}-uid" / "volumeDevices" / "kubeletx.io~storage" / name


def mount_block(node: AgentNode, pod: str, name: str, **options: str) -> Reply:
    target = device(node, pod, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    return node.call("mount", str(target), node.options_text(pod, name, **options))


def unmount_block(node: AgentNode, pod: str, name: str) -> Reply:
    return node.call("unmount", str(device(node, pod, name)))


def put(node: AgentNode, pod: str, name: str, text: bytes) -> None:
    with node.namespace.path(device(node, pod, name)).open("r+b") as file:
        file.write(text)
        os.fsync(file.fileno())


def get(node: AgentNode, pod: str, name: str, length: int) -> bytes:
    with node.namespace.path(device(node, pod, name)).open("rb") as file:
        return file.read(length)


def test_a_second_block_volume_never_gets_or_loses_the_device_of_the_first(
    nodes: tuple[AgentNode, AgentNode],
) -> None:
    n1, _ = nodes
    assert mount_block(n1, "one", "n1", image="img").is_success
    put(n1, "one", "n1", b"of the first")
    refused = mount_block(n1, "two", "n2", image="img")
    assert not refused.is_success
    assert HOLDER in refused.message
    assert "option name" in refused.message
    assert unmount_block(n1, "two", "n2").is_success
    assert mount_block(n1, "three", "n3").is_success
    put(n1, "three", "n3", b"of another image")
    assert get(n1, "one", "n1", 12) == b"of the first"
    for pod, name in (("one", "n1"), ("three", "n3")):
        assert unmount_block(n1, pod, name).is_success
    n1.becomes_clean()
    assert mount_block(n1, "two", "n2", image="img").is_success
    assert get(n1, "two", "n2", 12) == b"of the first"
    assert unmount_block(n1, "two", "n2").is_success


@pytest.mark.parametrize("first", ["loop", "fuse"])
def test_a_second_name_of_an_image_is_refused(nodes: tuple[AgentNode, AgentNode], first: str) -> None:
    n1, _ = nodes
    assert n1.mount("one", "n1", backend=first, image="img").is_success
    (n1.pool / "link").hardlink_to(n1.pool / "img")
    for other in (
        {"backend": "loop"},
        {"backend": "fuse"},
        {"image": "link"},
        {"accessModes": "ReadWriteMany"},
    ):
        assert HOLDER in n1.mount("two", "n2", **{"image": "img", **other}).message
    assert HOLDER in mount_block(n1, "two", "n2", image="img").message
    assert n1.unmount("one", "n1").is_success


def test_a_second_name_of_a_directory_is_refused(nodes: tuple[AgentNode, AgentNode]) -> None:
    n1, _ = nodes
    assert n1.mount("one", "n1", backend="directory", image="img").is_success
    assert HOLDER in n1.mount("two", "n2", backend="directory", image="img").message
    assert n1.unmount("one", "n1").is_success


@pytest.mark.parametrize("backend", ["loop", "fuse", "directory"])
def test_a_second_node_is_refused_in_a_shared_pool(nodes: tuple[AgentNode, AgentNode], backend: str) -> None:
    """Also by a hard link: its inode number means nothing on another machine, so that such images are refused."""
    n1, n2 = nodes
    shared = {"backend": backend, "pool": "shared"}
    assert n1.mount("one", "n1", image="img", **shared).is_success
    if backend != "directory":
        (n1.pool / "link").hardlink_to(n1.pool / "img")
        assert "has 2 hard links" in n2.mount("two", "n2", image="link", **shared).message
        (n1.pool / "link").unlink()
    assert HOLDER in n2.mount("two", "n2", image="img", **shared).message
    assert n1.unmount("one", "n1").is_success
    n1.becomes_clean()
    assert n2.mount("two", "n2", image="img", **shared).is_success
    assert n2.unmount("two", "n2").is_success


def test_what_was_promised_to_one_is_not_opened_to_many(nodes: tuple[AgentNode, AgentNode]) -> None:
    n1, n2 = nodes
    directory = {"backend": "directory", "accessModes": "ReadWriteOncePod"}
    many = {**directory, "accessModes": "ReadWriteMany"}
    assert n1.mount("one", "pv", **directory).is_success
    for node in nodes:
        refused = node.mount("two", "pv", **many)
        assert "volume pv (ReadWriteOncePod) is attached for pod default/one on node n1" in refused.message
    assert n1.unmount("one", "pv").is_success
    n1.becomes_clean()
    assert n2.mount("two", "pv", **many).is_success
    assert n2.unmount("two", "pv").is_success
