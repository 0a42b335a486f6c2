"""A file system on a device that several nodes reach is never ReadWriteMany."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from kubeletx_flexvolume.attachments.record_book import RecordBook
from kubeletx_flexvolume.backends.backend import Backend
from kubeletx_flexvolume.backends.directory import DirectoryBackend
from kubeletx_flexvolume.backends.fuse import FuseBackend
from kubeletx_flexvolume.backends.loop import LoopBackend
from kubeletx_flexvolume.backends.loop_devices import LoopDevices
from kubeletx_flexvolume.backends.nbd import NbdBackend
from kubeletx_flexvolume.backends.nfs import NfsBackend
from kubeletx_flexvolume.backends.pools import Pool, Pools
from kubeletx_flexvolume.backends.rbd import RbdBackend
from kubeletx_flexvolume.commands import Commands
from kubeletx_flexvolume.values import AccessMode, StorageVolume

from kubeletx.api import InvalidConfig, SystemClock
from plugins.flexvolume.tests.attachments.attachment_model import NodeModel, StorageModel

RWO, RWX, ROX = AccessMode.READ_WRITE_ONCE, AccessMode.READ_WRITE_MANY, AccessMode.READ_ONLY_MANY
VOLUME = StorageVolume(name="v", backend="loop", image="v")


def backends(directory: Path, *, is_shared: bool) -> dict[str, Backend]:
    commands = Commands(directory)
    pools = Pools({"default": Pool(name="default", directory=str(directory), is_shared=is_shared)})
    return {
        "loop": LoopBackend(pools, LoopDevices(commands, SystemClock()), asyncio.to_thread, boot_id="b"),
        "directory": DirectoryBackend(pools, asyncio.to_thread, lambda: ()),
        "fuse": FuseBackend(
            pools,
            LoopDevices(commands, SystemClock()),
            commands,
            asyncio.to_thread,
            directory=directory,
            boot_id="b",
            table=lambda: (),
        ),
        "nfs": NfsBackend(),
        "rbd": RbdBackend(commands),
        "nbd": NbdBackend(commands, asyncio.to_thread, directory=directory, boot_id="b"),
    }


def refuses(backend: Backend, volume: StorageVolume, *modes: AccessMode) -> bool:
    try:
        backend.check_modes(volume, modes)
    except InvalidConfig:
        return True
    return False


def refused(directory: Path, volume: StorageVolume, *modes: AccessMode, is_shared: bool = True) -> set[str]:
    found = backends(directory, is_shared=is_shared)
    return {name for name, backend in found.items() if refuses(backend, volume, *modes)}


def test_devices_that_other_machines_reach_refuse_it(tmp_path: Path) -> None:
    assert refused(tmp_path, VOLUME, RWX) == {"loop", "fuse", "rbd", "nbd"}
    assert refused(tmp_path, VOLUME, RWO, RWX) == {"loop", "fuse", "rbd", "nbd"}


def test_images_of_one_machine_and_other_modes_are_accepted(tmp_path: Path) -> None:
    assert refused(tmp_path, VOLUME, RWX, is_shared=False) == {"rbd", "nbd"}
    assert refused(tmp_path, VOLUME, RWO, ROX) == set()


def test_the_writers_of_a_block_volume_know_what_they_do(tmp_path: Path) -> None:
    assert refused(tmp_path, msgspec.structs.replace(VOLUME, is_block=True), RWX) == set()


async def test_a_mode_of_the_persistent_volume_is_checked_before_the_volume_is_taken(tmp_path: Path) -> None:
    model = StorageModel("n1", "n2")
    node = NodeModel(model)
    book = RecordBook(msgspec.structs.replace(node.context, backends=backends(tmp_path, is_shared=True)))
    volume = msgspec.structs.replace(VOLUME, access_modes=(RWX,))
    with pytest.raises(
        InvalidConfig, match="several nodes write to one device, which destroys its file system"
    ):
        await book.take(volume, node.holder())
    assert model.records.records == {}
    assert list(tmp_path.iterdir()) == []
    one_writer = msgspec.structs.replace(volume, access_modes=(RWO,), size_bytes=1 << 20)
    await book.take(one_writer, node.holder())
