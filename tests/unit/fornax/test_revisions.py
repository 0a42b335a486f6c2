"""Revisions: durable before they are used, and never falling."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import Unavailable
from kubeletx.fornax.cores import Core, Role
from kubeletx.fornax.node_records import METADATA, NodeRecords, StoredNode
from kubeletx.fornax.revisions import Revisions
from kubeletx.store import Store


class Disk:
    """The stored row. Implements what `Revisions` uses of `NodeRecords`."""

    def __init__(self) -> None:
        self.row: StoredNode | None = None
        self.writes = 0
        self.is_full = False

    async def find_node(self) -> StoredNode | None:
        return self.row

    async def save_node(self, node: StoredNode) -> None:
        if self.is_full:
            raise Unavailable("no space left on device")
        self.writes += 1
        self.row = node


def revisions(disk: Disk, block: int = 10) -> Revisions:
    return Revisions(disk, block=block)  # type: ignore[arg-type] # a double


@given(st.lists(st.sampled_from(["change", "crash", "stop", "configure"]), max_size=60))
def test_a_number_is_used_once_over_crashes_and_stops(events: list[str]) -> None:
    async def play() -> None:
        disk, used = Disk(), [0]
        mine = revisions(disk)
        await mine.load()
        for event in events:
            if event == "change":
                number = await mine.prepare()
                assert disk.row is not None
                assert disk.row.ceiling >= number > used[-1]
                assert number == mine.current + 1
                mine.take()
                used.append(number)
                continue
            if event == "configure":
                await mine.configure(b"c")
                continue
            if event == "stop":
                await mine.settle()
            before = mine.current
            mine = revisions(disk)
            await mine.load()
            assert mine.current >= used[-1]
            if event == "stop":
                assert mine.current == before

    asyncio.run(play())


async def test_a_block_of_numbers_needs_one_write() -> None:
    disk = Disk()
    mine = revisions(disk, block=1000)
    for _ in range(1000):
        await mine.prepare()
        mine.take()
    assert disk.writes == 1


async def test_no_number_is_used_while_the_ceiling_cannot_be_stored() -> None:
    disk = Disk()
    mine = revisions(disk)
    disk.is_full = True
    with pytest.raises(Unavailable):
        await mine.prepare()
    disk.is_full = False
    assert await mine.prepare() == await mine.prepare() == 1


class SlowDisk(Disk):
    """Writes in the order of the calls; each takes until the next turn of the loop."""

    async def save_node(self, node: StoredNode) -> None:
        await asyncio.sleep(0)
        await super().save_node(node)


@pytest.mark.parametrize("first", ["number", "configuration"])
async def test_a_configuration_and_a_ceiling_that_are_stored_at_once_are_both_kept(first: str) -> None:
    disk = SlowDisk()
    mine = revisions(disk)
    writes = [mine.prepare(), mine.configure(b"c")]
    await asyncio.gather(*(writes if first == "number" else reversed(writes)))
    assert disk.row == StoredNode(ceiling=10, configuration=b"c")


async def test_node_and_cores_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "kubeletx.db"
    store = await Store.open(path, [METADATA])
    records = NodeRecords(store)
    assert await records.find_node() is None
    node = StoredNode(ceiling=7, configuration=b"\x00")
    cores = [Core(address="a:1", role=role, identifier="x") for role in (Role.PRIMARY, Role.SEED)]
    await records.save_node(replace(node, ceiling=3))
    await records.save_node(node)
    await records.save_cores([Core(address="b:1", role=Role.SEED)])
    await records.save_cores(cores)
    await store.close()
    store = await Store.open(path, [METADATA])
    assert await NodeRecords(store).find_node() == node
    assert await NodeRecords(store).list_cores() == cores
    await store.close()
