"""Taking and releasing volumes: conflicts, lost answers, broken locks, own node, races."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubeletx_flexvolume.attachments.decision import BreakPolicy
from kubeletx_flexvolume.attachments.editing import TRIES
from kubeletx_flexvolume.attachments.events import LOCK_BROKEN
from kubeletx_flexvolume.attachments.garbage import GarbageItem
from kubeletx_flexvolume.values import HolderStatus

from kubeletx.api import Conflict, Internal, TimedOut, Unavailable
from plugins.flexvolume.tests.attachments.attachment_model import (
    ROX,
    RWOP,
    RWX,
    NodeModel,
    StorageModel,
    entry,
    holder,
    volume,
)


@pytest.fixture
def model() -> StorageModel:
    return StorageModel("n1", "n2", "n3")


async def test_an_entry_has_what_others_need_to_know(model: StorageModel) -> None:
    of = volume("pv-1", parameters={"server": "10.0.0.1"}, cluster="storage/main", pool="fast")
    taken = await NodeModel(model).take(of, "web-0")
    (stored,) = await model.entries()
    assert taken == stored.holder
    assert (stored.node_uid, stored.backend, stored.image) == ("n1-uid", "loop", "pv-1.img")
    assert (stored.pool, stored.cluster, stored.parameters) == (
        "fast",
        "storage/main",
        {"server": "10.0.0.1"},
    )
    assert stored.since == "2030-01-01T00:00:00Z"
    assert stored.status is HolderStatus.ATTACHING


async def test_a_second_node_is_refused_and_gets_it_after_the_release(model: StorageModel) -> None:
    one, other = NodeModel(model, "n1"), NodeModel(model, "n2")
    taken = await one.take()
    with pytest.raises(Conflict, match="default/web-0 on node n1 since 2030") as error:
        await other.take(pod="b")
    assert "its node is ready" in error.value.message
    await one.book.release(volume(), taken)
    assert model.records.records == {}
    await other.take(pod="b")
    assert await model.holders() == ["n2/b"]


async def test_a_take_may_be_repeated(model: StorageModel) -> None:
    node = NodeModel(model)
    first = await node.take()
    assert await node.take() == first
    assert model.records.writes == 1


async def test_device_and_status_are_noted(model: StorageModel) -> None:
    node = NodeModel(model)
    taken = await node.take()
    await node.book.note(volume(), taken, device="/dev/loop3", status=HolderStatus.MOUNTED)
    (stored,) = await model.entries()
    assert (stored.device, stored.status) == ("/dev/loop3", HolderStatus.MOUNTED)
    assert (await model.records.get("pv-1")).value["device"] == "/dev/loop3"
    assert await node.book.holds(volume(), taken)


async def test_a_note_of_a_broken_lock_is_a_conflict(model: StorageModel) -> None:
    node = NodeModel(model)
    taken = await node.take()
    await node.book.release(volume(), taken)
    assert not await node.book.holds(volume(), taken)
    with pytest.raises(Conflict, match="its lock was broken"):
        await node.book.note(volume(), taken, device="/dev/loop3", status=HolderStatus.MOUNTED)


async def test_a_release_may_be_repeated(model: StorageModel) -> None:
    node = NodeModel(model)
    taken = await node.take()
    for _ in range(2):
        await node.book.release(volume(), taken)
    assert await model.holders() == []


# --- other writers, lost answers ---


async def test_a_lost_create_race_is_decided_again(model: StorageModel) -> None:
    one, other = NodeModel(model, "n1"), NodeModel(model, "n2")
    model.records.before = lambda: other.take(pod="b")
    with pytest.raises(Conflict, match="default/b on node n2"):
        await one.take()
    assert await model.holders() == ["n2/b"]


async def test_a_lost_race_of_many_holders_is_tried_again(model: StorageModel) -> None:
    one, other = NodeModel(model, "n1"), NodeModel(model, "n2")
    shared = volume("pv-1", RWX)
    await one.take(shared, "a")
    model.records.before = lambda: other.take(shared, "b")
    await one.take(shared, "c")
    assert await model.holders() == ["n1/a", "n2/b", "n1/c"]


async def test_an_entry_that_is_added_during_a_release_stays(model: StorageModel) -> None:
    one, other = NodeModel(model, "n1"), NodeModel(model, "n2")
    shared = volume("pv-1", RWX)
    taken = await one.take(shared, "a")
    model.records.before = lambda: other.take(shared, "b")
    await one.book.release(shared, taken)
    assert await model.holders() == ["n2/b"]


@pytest.mark.parametrize("trouble", ["lose_answers", "lose_writes"])
async def test_after_a_lost_answer_the_record_is_read_again(model: StorageModel, trouble: str) -> None:
    node = NodeModel(model)
    setattr(model.records, trouble, 1)
    taken = await node.take()
    assert await model.holders() == ["n1/web-0"]
    setattr(model.records, trouble, 1)
    await node.book.note(volume(), taken, device="/dev/loop0", status=HolderStatus.MOUNTED)
    setattr(model.records, trouble, 1)
    await node.book.release(volume(), taken)
    assert await model.holders() == []


async def test_a_result_that_stays_unknown_is_raised_as_such(model: StorageModel) -> None:
    model.records.lose_writes = TRIES
    with pytest.raises(TimedOut):
        await NodeModel(model).take()
    assert await NodeModel(model).take() is not None


async def test_writers_that_are_always_faster_end_in_a_conflict(model: StorageModel) -> None:
    node = NodeModel(model)
    shared = volume("pv-1", RWX)
    await model.put(entry("n2", "other"))
    number = 0

    async def interfere() -> None:
        nonlocal number
        number += 1
        found = await model.records.get("pv-1")
        model.records.before = None
        value = {**found.value, "device": str(number)}
        await model.records.replace("pv-1", value, expected_version=found.version)
        model.records.before = interfere

    model.records.before = interfere
    with pytest.raises(Conflict, match="was changed by others 12 times"):
        await node.take(shared)


async def test_a_record_that_cannot_be_read_is_left_alone(model: StorageModel) -> None:
    await model.records.create("pv-1", {"attachments": [{"node": 5}]})
    node = NodeModel(model)
    with pytest.raises(Internal, match="attachment record pv-1 cannot be read"):
        await node.take()
    with pytest.raises(Internal):
        await node.book.release(volume(), node.holder())
    assert "pv-1" in model.records.records


# --- broken locks ---


async def test_the_lock_of_a_gone_node_is_broken_with_reason_event_and_garbage(model: StorageModel) -> None:
    await NodeModel(model, "n1").take()
    del model.nodes.known["n1"]
    taken = await NodeModel(model, "n2").take()
    why = "removed the entry of pod default/web-0 on node n1: node n1 does not exist any more"
    assert taken.reason == why
    assert await model.holders() == ["n2/web-0"]
    assert model.events.seen == [
        ("pv-1", LOCK_BROKEN, f"Volume pv-1 is attached for pod default/web-0 on node n2; {why}")
    ]
    (item,) = await model.lists.of("n1")
    assert isinstance(item, GarbageItem)
    assert (item.volume_name, item.boot_id, item.image) == ("pv-1", "n1-boot", "pv-1.img")
    assert item.removed_for == why


async def test_no_lock_is_broken_if_the_garbage_list_cannot_be_written(model: StorageModel) -> None:
    await NodeModel(model, "n1").take()
    del model.nodes.known["n1"]
    model.stale.lose_writes = 1000
    with pytest.raises(TimedOut):
        await NodeModel(model, "n2").take()
    assert await model.holders() == ["n1/web-0"]


async def test_a_break_whose_answer_was_lost_is_reported(model: StorageModel) -> None:
    await NodeModel(model, "n1").take()
    del model.nodes.known["n1"]
    model.records.lose_answers = 1
    taken = await NodeModel(model, "n2").take()
    assert "does not exist" in taken.reason
    assert [reason for _, reason, _ in model.events.seen] == [LOCK_BROKEN]


async def test_a_holder_that_changes_its_entry_during_the_search_is_not_gone(model: StorageModel) -> None:
    one, other = NodeModel(model, "n1"), NodeModel(model, "n2")
    taken = await one.take()
    gone = model.nodes.known.pop("n1")

    async def come_back() -> None:
        model.nodes.known["n1"] = gone
        await one.book.note(volume(), taken, device="/dev/loop0", status=HolderStatus.MOUNTED)

    model.records.before = come_back
    with pytest.raises(Conflict, match="its node is ready"):
        await other.take(pod="b")
    assert await model.holders() == ["n1/web-0"]


async def test_entries_before_the_own_restart_go_without_garbage(model: StorageModel) -> None:
    await NodeModel(model, "n1").take()
    model.nodes.change("n1", boot_id="n1-later")
    node = NodeModel(model, "n1")
    later = NodeModel(model, "n1", boot_id="n1-later")
    taken = await later.book.take(volume(), holder("n1", "b", boot_id="n1-later"))
    assert "the node has restarted since" in taken.reason
    assert await model.lists.of("n1") == ()
    with pytest.raises(Unavailable, match="restarted"):
        await node.take(pod="c")


# --- this node ---


async def test_a_holder_of_another_node_is_refused(model: StorageModel) -> None:
    with pytest.raises(Conflict, match="is not of this node"):
        await NodeModel(model, "n1").book.take(volume(), holder("n2"))
    with pytest.raises(Conflict, match="boot other"):
        await NodeModel(model, "n1").take(boot_id="other")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"out_of_service": True}, "has the taint"),
        ({"boot_id": "another"}, "has restarted since"),
        ({"boot_id": ""}, "has not reported a boot ID yet"),
    ],
)
async def test_a_node_that_others_would_count_as_gone_takes_nothing(
    model: StorageModel, change: dict[str, Any], words: str
) -> None:
    model.nodes.change("n1", **change)
    with pytest.raises(Unavailable, match=words):
        await NodeModel(model, "n1").take()
    assert model.records.writes == 0


async def test_a_node_without_an_object_takes_nothing(model: StorageModel) -> None:
    with pytest.raises(Unavailable, match=r"node n9 does not exist any more.*correct --node-name"):
        await NodeModel(model, "n9").take()


async def test_a_volume_of_the_garbage_list_is_not_taken(model: StorageModel) -> None:
    node = NodeModel(model)
    node.guard.pending = {"pv-1": frozenset()}
    with pytest.raises(Unavailable, match="is still to be removed"):
        await node.take()
    await node.take(volume("pv-2"))


async def test_a_refused_volume_is_not_taken(model: StorageModel) -> None:
    node = NodeModel(model)
    node.refused = "storage cluster storage/main of volume pv-1 is being deleted"
    with pytest.raises(Unavailable, match="is being deleted"):
        await node.take()


async def test_a_volume_that_is_mounted_without_an_entry_is_unmounted_first(model: StorageModel) -> None:
    node = NodeModel(model)
    shared = volume("pv-1", RWX)
    node.local.mount(shared, node.holder("lost"))
    with pytest.raises(Unavailable, match="default/lost on node n1, which has no entry"):
        await node.take(shared, "new")
    assert node.guard.lost.is_set()


async def test_a_pod_that_is_mounted_and_has_lost_its_entry_does_not_enter_again(model: StorageModel) -> None:
    node = NodeModel(model)
    node.local.mount(volume(), node.holder())
    with pytest.raises(Unavailable, match="has no entry"):
        await node.take()


async def test_a_volume_that_is_being_cleared_is_not_taken(model: StorageModel) -> None:
    node = NodeModel(model)
    with node.guard.clearing("pv-1", "its lock was broken") as is_free:
        assert is_free
        with pytest.raises(Unavailable, match="being removed from this node: its lock was broken"):
            await node.take()
    with node.guard.taking("pv-1"), node.guard.clearing("pv-1", "x") as is_free:
        assert not is_free


# --- readers, and one pod ---


async def test_readers_of_many_nodes_keep_a_writer_out(model: StorageModel) -> None:
    shared = volume("pv-1", ROX)
    for name in ("n1", "n2"):
        await NodeModel(model, name).take(shared, name, read_only=True)
    with pytest.raises(Conflict, match="is ReadOnlyMany"):
        await NodeModel(model, "n3").take(shared, "w")


async def test_one_pod_keeps_another_of_its_node_out(model: StorageModel) -> None:
    node, single = NodeModel(model), volume("pv-1", RWOP)
    taken = await node.take(single, "a")
    node.local.mount(single, taken)
    with pytest.raises(Conflict, match="the volume is in use there: wait until that pod has ended"):
        await node.take(single, "b")


async def test_an_entry_without_a_device_gives_way_on_its_own_node(model: StorageModel) -> None:
    node, single = NodeModel(model), volume("pv-1", RWOP)
    await node.take(single, "a")
    taken = await node.take(single, "b")
    assert "its agent finds no device of it" in taken.reason
    assert await model.holders() == ["n1/b"]


# --- races ---


@pytest.mark.parametrize("policy", list(BreakPolicy))
async def test_two_clients_never_both_win(model: StorageModel, policy: BreakPolicy) -> None:
    nodes = [NodeModel(model, name, policy) for name in ("n1", "n2")]

    async def attempt(node: NodeModel, name: str) -> bool:
        try:
            await node.take(volume(name), f"{node.name}-pod")
        except Conflict:
            return False
        return True

    for number in range(100):
        name = f"pv-{number}"
        won = await asyncio.gather(*(attempt(node, name) for node in nodes))
        assert sorted(won) == [False, True]
        assert len(await model.entries(name)) == 1
