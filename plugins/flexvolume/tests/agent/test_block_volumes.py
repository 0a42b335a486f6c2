"""Block volumes: a pod gets the device itself, below ``volumeDevices``; it is neither looked at, nor formatted, nor mounted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from kubeletx_flexvolume.agent.adopt import find_volumes, rebuild_journal
from kubeletx_flexvolume.agent.paths import parse_target
from kubeletx_flexvolume.backends.backend import SourceType

from kubeletx.api import Conflict, InvalidPod, Unavailable
from kubeletx.linux.mounts import parse_mounts
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.agent.agent_model import BOOT, DEVICE, NODE, ROOT, Node, request, target, volume

BLOCK = volume(is_block=True)
PATH = f"{ROOT}/pods/u1/volumeDevices/kubeletx.io~storage/pv-1"
SHOWN = "37 22 0:5 /loop7 {} rw,relatime - devtmpfs udev rw,size=4k\n"


@pytest.fixture
async def node(tmp_path: Path):  # type: ignore[no-untyped-def]
    made = Node(tmp_path / "state")
    yield made
    await made.operations.close(0)


async def mount(node: Node, uid: str = "u1") -> None:
    at = msgspec.structs.replace(target(uid), is_block=True)
    await node.operations.mount(msgspec.structs.replace(request(uid, of=BLOCK), target=at.path), at)


async def unmount(node: Node, uid: str = "u1") -> None:
    await node.operations.unmount(msgspec.structs.replace(target(uid), is_block=True))


def test_the_target_shows_that_a_pod_needs_the_device() -> None:
    found = parse_target(PATH, {ROOT: ROOT})
    assert (found.path, found.is_block) == (PATH, True)
    assert not parse_target(PATH.replace("volumeDevices", "volumes"), {ROOT: ROOT}).is_block


async def test_the_device_is_bound_without_a_look_at_its_content(node: Node) -> None:
    await mount(node)
    assert node.faults.log == ["take", "attach", "note", "bind device", "note"]
    assert [(one.target, one.source) for one in node.mounts.table()] == [(PATH, DEVICE)]
    node.faults.log.clear()
    await unmount(node)
    assert node.faults.log == ["unbind", "detach", "release"]
    await until(lambda: node.is_clean)


async def test_a_restart_keeps_the_device_and_releases_it_later(node: Node) -> None:
    await mount(node)
    await node.restart()
    assert list(node.mounts.mounted) == [PATH]
    await unmount(node)
    await until(lambda: node.is_clean)


async def test_a_failed_bind_is_undone(node: Node) -> None:
    node.faults.fail("bind device")
    with pytest.raises(Unavailable, match="bind device failed"):
        await mount(node)
    await until(lambda: node.is_clean)


async def test_one_node_has_a_volume_as_a_device_or_mounted_but_not_both(node: Node) -> None:
    await node.mount("u2")
    with pytest.raises(
        Conflict, match="pods of this node have it mounted, so that no pod can have its device"
    ):
        await mount(node)
    await node.unmount("u2")
    await mount(node)
    with pytest.raises(Conflict, match="pods of this node have its device, so that it cannot be mounted"):
        await node.mount("u2")
    await unmount(node)
    await until(lambda: node.is_clean)


async def test_a_backend_without_devices_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", type=SourceType.DIRECTORY)
    with pytest.raises(InvalidPod, match="volumeMode: backend model has no block devices"):
        await mount(node)
    await until(lambda: node.is_clean)
    await node.operations.close(0)


def test_a_lost_journal_is_rebuilt_from_the_mounted_device(node: Node) -> None:
    table = parse_mounts(SHOWN.format(PATH).replace("loop7", "model0").strip())
    (found,) = find_volumes(table, {ROOT})
    made = rebuild_journal(found, node.backends, node=NODE, boot_id=BOOT)
    assert made.volume.is_block
    assert made.volume.backend == "model"
    assert [(use.holder.mount_dir, use.holder.device) for use in made.uses] == [(PATH, DEVICE)]
