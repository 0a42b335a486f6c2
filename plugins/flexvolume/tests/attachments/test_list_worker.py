"""The garbage list of a node: what is dropped, forgotten, or kept; and what stays after a failure."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from kubeletx_flexvolume.attachments.garbage import MAX_ITEMS, GarbageItem, item_of, rfc3339
from kubeletx_flexvolume.attachments.list_worker import ItemAction, ListWorker, OwnNode, action_for
from kubeletx_flexvolume.attachments.record import AttachmentEntry

from kubeletx.api import Internal, Unavailable
from kubeletx.testing.clock import START
from plugins.flexvolume.tests.attachments.attachment_model import (
    RWX,
    NodeModel,
    StorageModel,
    entry,
    volume,
)


def item(present: AttachmentEntry, name: str = "pv-1") -> GarbageItem:
    return item_of(name, present, why="node n1 does not exist any more", now=START)


def worker(node: NodeModel, drop_seconds: float = 60.0) -> ListWorker:
    return ListWorker(
        OwnNode(name=node.name, boot_id=node.boot_id),
        lists=node.model.lists,
        editor=node.model.editor,
        local=lambda: node.local,
        guard=node.guard,
        clock=node.model.clock,
        events=node.model.events,
        drop_seconds=drop_seconds,
    )


@pytest.fixture
def node() -> NodeModel:
    return NodeModel(StorageModel("n1", "n2"))


@pytest.mark.parametrize(
    ("broken", "entries", "hours", "action"),
    [
        (entry("n1", "a"), [], 0, ItemAction.DROP),
        (entry("n1", "a"), [entry("n2", "b")], 0, ItemAction.DROP),
        (entry("n1", "a", boot_id="before"), [], 0, ItemAction.FORGET),
        (entry("n1", "a"), [entry("n1", "a")], 0, ItemAction.WAIT),
        (entry("n1", "a"), [entry("n1", "a")], 2, ItemAction.FORGET),
        (entry("n1", "a"), [entry("n1", "b")], 0, ItemAction.FORGET),
    ],
)
def test_an_item_is_decided_by_boot_and_record(
    broken: AttachmentEntry, entries: list[AttachmentEntry], hours: int, action: ItemAction
) -> None:
    now = START + timedelta(hours=hours)
    assert action_for(item(broken), entries, boot_id="n1-boot", now=now) is action


async def test_a_broken_volume_is_dropped_with_force_before_it_is_taken_again(node: NodeModel) -> None:
    node.local.mount(volume(), node.holder("a"))
    await node.model.lists.add([item(entry("n1", "a"))])
    work = worker(node)
    with pytest.raises(Unavailable, match="has not been read yet"):
        work.pending()
    await work.work_off()
    assert node.local.dropped == [("pv-1", "node n1 does not exist any more", True)]
    assert await node.model.lists.of("n1") == ()
    assert work.pending() == set()


async def test_a_volume_without_a_journal_is_dropped_as_the_list_describes_it(node: NodeModel) -> None:
    await node.model.lists.add([item(entry("n1", "a", volume=volume("pv-1", cluster="s/c")))])
    await worker(node).work_off()
    assert node.local.dropped == [("pv-1", "node n1 does not exist any more", True)]


async def test_what_cannot_be_dropped_stays_and_hinders_nothing_else(node: NodeModel) -> None:
    node.local.fails, node.local.hangs = {"pv-1"}, {"pv-2"}
    await node.model.lists.add([item(entry("n1", "a"), f"pv-{number}") for number in (1, 2, 3)])
    work = worker(node, drop_seconds=0.05)
    await work.work_off()
    assert [one.volume_name for one in await node.model.lists.of("n1")] == ["pv-1", "pv-2"]
    assert work.pending() == {"pv-1", "pv-2"}
    await work.work_off()
    assert [(name, reason) for name, reason, _ in sorted(node.model.events.seen)] == [
        ("pv-1", "AttachmentNotRemoved"),
        ("pv-2", "AttachmentNotRemoved"),
    ]
    assert "Node n1 cannot remove volume pv-1 yet, and tries again: volume pv-1 is busy" in str(
        node.model.events.seen
    )
    node.local.fails.clear()
    node.local.hangs.clear()
    await work.work_off()
    assert work.pending() == set()


async def test_a_volume_that_is_taken_meanwhile_is_left_for_the_next_round(node: NodeModel) -> None:
    await node.model.lists.add([item(entry("n1", "a"))])
    work = worker(node)
    with node.guard.taking("pv-1"):
        await work.work_off()
    assert node.local.dropped == []
    assert work.pending() == {"pv-1"}


async def test_an_entry_that_was_not_removed_is_not_dropped(node: NodeModel) -> None:
    """The other node crashed between the list and the record."""
    taken = await node.take(pod="a")
    node.local.mount(volume(), taken)
    await node.model.lists.add([item(entry("n1", "a"))])
    work = worker(node)
    await work.work_off()
    assert (node.local.dropped, work.pending()) == ([], set())
    assert len(await node.model.lists.of("n1")) == 1
    node.model.clock.advance(3600)
    await work.work_off()
    assert (node.local.dropped, await node.model.lists.of("n1")) == ([], ())


async def test_pods_that_use_the_volume_again_keep_it(node: NodeModel) -> None:
    shared = volume("pv-1", RWX)
    node.local.mount(shared, await node.take(shared, "b"))
    await node.model.lists.add([item(entry("n1", "a"))])
    await worker(node).work_off()
    assert (node.local.dropped, await node.model.lists.of("n1")) == ([], ())


async def test_items_of_an_earlier_boot_are_forgotten(node: NodeModel) -> None:
    node.local.mount(volume(), node.holder("b"))
    await node.model.lists.add([item(entry("n1", "a", boot_id="before"))])
    work = worker(node)
    await work.work_off()
    assert (node.local.dropped, await node.model.lists.of("n1")) == ([], ())


async def test_an_item_is_noted_once_and_lists_are_bounded(node: NodeModel) -> None:
    lists = node.model.lists
    for _ in range(2):
        await lists.add([item(entry("n1", "a")), item(entry("n2", "a"))])
    assert (len(await lists.of("n1")), len(await lists.of("n2"))) == (1, 1)
    await lists.add(item(entry("n1", "a"), f"pv-{number}") for number in range(MAX_ITEMS + 10))
    names = [one.volume_name for one in await lists.of("n1")]
    assert (len(names), names[-1]) == (MAX_ITEMS, f"pv-{MAX_ITEMS + 9}")


async def test_an_item_that_changed_meanwhile_is_not_removed(node: NodeModel) -> None:
    first = item(entry("n1", "a"))
    await node.model.lists.add([first])
    later = msgspec.structs.replace(first, noted_at=rfc3339(START + timedelta(hours=1)))
    await node.model.lists.add([later])
    await node.model.lists.remove("n1", [first])
    assert await node.model.lists.of("n1") == (later,)


async def test_a_list_that_cannot_be_read_is_left_alone(node: NodeModel) -> None:
    await node.model.stale.create("n1", {"attachments": "x"})
    with pytest.raises(Internal, match="garbage list of node n1"):
        await worker(node).work_off()
