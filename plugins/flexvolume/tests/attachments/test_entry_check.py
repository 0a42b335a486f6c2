"""Volumes that have lost their entries are dropped; entries that have lost their volumes are removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubeletx_flexvolume.attachments.entry_check import EntryCheck
from kubeletx_flexvolume.attachments.list_worker import OwnNode
from kubeletx_flexvolume.attachments.record import entry_of, value_of
from kubeletx_flexvolume.attachments.returned import ReturnedEntries
from kubeletx_flexvolume.attachments.store_memory import StoreMemory

from kubeletx.api import Unavailable
from plugins.flexvolume.tests.attachments.attachment_model import (
    RWX,
    NodeModel,
    StorageModel,
    entry,
    volume,
)


class Identity:
    """The identity of the store."""

    def __init__(self) -> None:
        self.text, self.silent = "first", False

    async def __call__(self) -> str:
        if self.silent:
            raise Unavailable("the API server does not answer")
        return self.text


@pytest.fixture
def node() -> NodeModel:
    return NodeModel(StorageModel("n1", "n2"))


@pytest.fixture
def identity() -> Identity:
    return Identity()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[StoreMemory]:
    made = StoreMemory(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def check(node: NodeModel, identity: Identity, memory: StoreMemory) -> EntryCheck:
    return make_check(node, identity, memory)


def make_check(node: NodeModel, identity: Identity, memory: StoreMemory) -> EntryCheck:
    return EntryCheck(
        book=node.book,
        editor=node.model.editor,
        local=lambda: node.local,
        guard=node.guard,
        identity=identity,
        memory=memory,
        drop_seconds=0.05,
    )


async def test_a_volume_with_its_entries_is_kept(node: NodeModel, check: EntryCheck) -> None:
    node.local.mount(volume(), await node.take())
    await check.check()
    assert node.local.dropped == []


async def test_a_volume_whose_lock_was_broken_is_dropped_with_force(
    node: NodeModel, check: EntryCheck
) -> None:
    node.local.mount(volume(), node.holder())
    await NodeModel(node.model, "n2").take(pod="b")
    await check.check()
    assert node.local.dropped == [("pv-1", "its entry in the attachment record is gone", True)]
    assert await node.model.holders() == ["n2/b"]


async def test_a_volume_that_is_not_attached_yet_needs_no_entry(node: NodeModel, check: EntryCheck) -> None:
    node.local.mount(volume(), node.holder(), device="")
    await check.check()
    assert node.local.dropped == []


async def test_a_volume_that_others_use_here_is_kept(node: NodeModel, check: EntryCheck) -> None:
    shared = volume("pv-1", RWX)
    node.local.mount(shared, node.holder("lost"), await node.take(shared, "b"))
    await check.check()
    assert node.local.dropped == []


async def test_a_volume_that_is_taken_now_is_checked_later(node: NodeModel, check: EntryCheck) -> None:
    node.local.mount(volume(), node.holder())
    with node.guard.taking("pv-1"):
        await check.check()
    assert node.local.dropped == []


async def test_one_volume_that_hangs_does_not_hinder_the_check_of_another(
    node: NodeModel, check: EntryCheck
) -> None:
    for name in ("pv-1", "pv-2"):
        node.local.mount(volume(name), node.holder())
    node.local.hangs = {"pv-1"}
    await check.check()
    assert sorted(name for name, _, _ in node.local.dropped) == ["pv-1", "pv-2"]
    assert list(node.local.present) == ["pv-1"]


# --- records that were lost ---


async def test_volumes_of_lost_records_are_entered_again(
    node: NodeModel, check: EntryCheck, identity: Identity
) -> None:
    node.local.mount(volume(), await node.take())
    await check.check()
    node.model.records.records.clear()
    identity.text = "made again"
    await check.check()
    assert node.local.dropped == []
    assert await node.model.holders() == ["n1/web-0"]


async def test_records_that_were_lost_while_the_agent_was_stopped_are_noticed(
    node: NodeModel, check: EntryCheck, identity: Identity, memory: StoreMemory
) -> None:
    node.local.mount(volume(), await node.take())
    await check.check()
    node.model.records.records.clear()
    identity.text = "made again"
    await make_check(node, identity, memory).check()
    assert node.local.dropped == []
    assert await node.model.holders() == ["n1/web-0"]


async def test_a_lock_that_is_broken_in_the_new_records_is_broken(
    node: NodeModel, check: EntryCheck, identity: Identity
) -> None:
    node.local.mount(volume(), await node.take())
    await check.check()
    node.model.records.records.clear()
    identity.text = "made again"
    await check.check()
    node.model.records.records.clear()  # another node has had the volume in between
    await check.check()
    assert [name for name, _, _ in node.local.dropped] == ["pv-1"]


async def test_a_volume_of_lost_records_that_another_node_has_is_dropped(
    node: NodeModel, check: EntryCheck, identity: Identity
) -> None:
    node.local.mount(volume(), await node.take())
    await check.check()
    node.model.records.records.clear()
    identity.text = "made again"
    await NodeModel(node.model, "n2").take(pod="b")
    await check.check()
    assert [name for name, _, _ in node.local.dropped] == ["pv-1"]
    assert await node.model.holders() == ["n2/b"]


async def test_nothing_is_dropped_while_the_store_does_not_answer(
    node: NodeModel, check: EntryCheck, identity: Identity
) -> None:
    node.local.mount(volume(), await node.take())
    await check.check()
    node.model.records.records.clear()
    identity.silent = True
    await check.check()
    assert node.local.dropped == []


# --- entries without a volume ---


def returned(node: NodeModel) -> ReturnedEntries:
    own = OwnNode(name=node.name, boot_id=node.boot_id)
    return ReturnedEntries(
        own, editor=node.model.editor, local=lambda: node.local, guard=node.guard, drop_seconds=0.05
    )


async def test_entries_of_an_earlier_boot_go_and_nothing_is_dropped(node: NodeModel) -> None:
    await node.model.put(entry("n1", "a", boot_id="before"), entry("n2", "b"))
    assert await returned(node).clean() == 1
    assert await node.model.holders() == ["n2/b"]
    assert node.local.dropped == []


async def test_an_entry_of_a_lost_journal_goes_after_its_device(node: NodeModel) -> None:
    await node.model.put(entry("n1", "a"))
    node.local.fails = {"pv-1"}
    assert await returned(node).clean() == 0
    assert await node.model.holders() == ["n1/a"]
    node.local.fails.clear()
    assert await returned(node).clean() == 1
    assert node.local.dropped[-1] == ("pv-1", "this node has no journal of it", False)
    assert await node.model.holders() == []


async def test_entries_of_present_volumes_and_other_nodes_stay(node: NodeModel) -> None:
    shared = volume("pv-1", RWX)
    node.local.mount(shared, await node.take(shared, "a"))
    found = await node.model.records.get("pv-1")
    old = entry_of(shared, node.holder("gone"))
    entries = [*(await node.model.entries()), old, entry("n2", "b")]
    await node.model.records.replace("pv-1", value_of(entries), expected_version=found.version)
    assert await returned(node).clean() == 1
    assert await node.model.holders() == ["n1/a", "n2/b"]
    assert node.local.dropped == []


async def test_a_volume_that_is_taken_during_the_look_stays(node: NodeModel) -> None:
    await node.model.put(entry("n1", "a"))
    with node.guard.taking("pv-1"):
        assert await returned(node).clean() == 0
    assert await node.model.holders() == ["n1/a"]
