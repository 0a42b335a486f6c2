"""What a node has of a volume against its entries in the record: what is dropped, removed, entered again, or kept."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.attachments.garbage import MAX_ITEMS, GarbageItem, item_of, rfc3339
from kubeletx_flexvolume.attachments.node import LocalVolume
from kubeletx_flexvolume.attachments.reconcile import Action, Reconciler, Verdict, decide
from kubeletx_flexvolume.attachments.record import AttachmentEntry, entry_of, value_of

from kubeletx.api import Internal, Unavailable
from kubeletx.testing.clock import START
from plugins.flexvolume.tests.attachments.attachment_model import (
    RWX,
    NodeModel,
    StorageModel,
    entry,
    holder,
    volume,
)

GONE = "its entry in the attachment record is gone"


def item(present: AttachmentEntry, name: str = "pv-1") -> GarbageItem:
    return item_of(name, present, why="node n1 does not exist any more", now=START)


@pytest.fixture
def node() -> NodeModel:
    return NodeModel(StorageModel("n1", "n2"))


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def reconciler(node: NodeModel, memory: Path) -> Reconciler:
    return node.reconciler(memory, drop_seconds=0.05)


# --- the table ---


def verdict(
    here: LocalVolume | None,
    entries: list[AttachmentEntry],
    items: list[GarbageItem],
    *,
    hours: int = 0,
) -> Verdict:
    used = {one.key for one in here.holders} if here is not None else set()
    now = START + timedelta(hours=hours)
    return decide(here, tuple(entries), tuple(items), node="n1", boot_id="n1-boot", used=used, now=now)


def here(*pods: str, device: str = "/dev/loop0") -> LocalVolume:
    return LocalVolume(volume=volume(), holders=tuple(holder("n1", one) for one in pods), device=device)


OWN, OTHER = entry("n1", "a"), entry("n2", "b")
NEW = msgspec.structs.replace(OWN, modes=(RWX,))
BEFORE = entry("n1", "a", boot_id="before")


@pytest.mark.parametrize(
    ("present", "entries", "items", "action"),
    [
        (None, [], [], Action.KEEP),
        (None, [OTHER], [], Action.KEEP),
        (None, [BEFORE], [], Action.KEEP),
        (None, [OWN], [], Action.DROP_UNKNOWN),
        (here("a"), [], [], Action.DROP_LOST),
        (here("a"), [OTHER, BEFORE], [], Action.DROP_LOST),
        (here("a"), [NEW], [], Action.KEEP),
        (here("a", "c"), [NEW], [], Action.KEEP),
        (here("a", device=""), [], [], Action.KEEP),
        (here("a", device=""), [OTHER], [], Action.KEEP),
        (None, [], [item(OWN)], Action.DROP_LISTED),
        (None, [OTHER], [item(OWN)], Action.DROP_LISTED),
        (here("a"), [OTHER], [item(OWN)], Action.DROP_LISTED),
        (here("c", device=""), [], [item(OWN)], Action.DROP_LISTED),
        (None, [], [item(BEFORE)], Action.KEEP),
        (here("a"), [NEW], [item(OWN)], Action.KEEP),
    ],
)
def test_the_action_follows_from_what_is_here_and_what_is_entered(
    present: LocalVolume | None, entries: list[AttachmentEntry], items: list[GarbageItem], action: Action
) -> None:
    assert verdict(present, entries, items).action is action


@pytest.mark.parametrize(
    ("broken", "entries", "hours", "is_done"),
    [
        (OWN, [], 0, True),
        (OWN, [OTHER], 0, True),
        (BEFORE, [], 0, True),
        (OWN, [OWN], 0, False),
        (OWN, [OWN], 2, True),
        (OWN, [entry("n1", "c")], 0, True),
    ],
)
def test_an_item_waits_while_its_entry_may_still_be_removed(
    broken: AttachmentEntry, entries: list[AttachmentEntry], hours: int, is_done: bool
) -> None:
    assert bool(verdict(here("c"), entries, [item(broken)], hours=hours).done) is is_done


PODS = st.lists(st.sampled_from("abc"), unique=True, max_size=3)


@given(
    PODS,
    st.booleans(),
    st.lists(
        st.sampled_from([entry(n, p, boot_id=b) for n, p in itertools.product(("n1", "n2"), "abc")
                         for b in (f"{n}-boot", "before")]),
        unique_by=lambda one: one.key,
    ),
    st.lists(st.sampled_from([entry("n1", p, boot_id=b) for p in "abc" for b in ("n1-boot", "before")])),
)  # fmt: skip
def test_only_what_the_record_denies_is_dropped_by_force_and_only_own_entries_go(
    pods: list[str], is_attached: bool, entries: list[AttachmentEntry], broken: list[AttachmentEntry]
) -> None:
    present = here(*pods, device="/dev/loop0" if is_attached else "") if pods else None
    result = verdict(present, entries, [item(one) for one in broken])
    own = {one.key for one in entries if (one.node, one.boot_id) == ("n1", "n1-boot")}
    used = {one.key for one in present.holders} if present is not None else set()
    if result.action in (Action.DROP_LISTED, Action.DROP_LOST):
        assert not own & used
    if present is not None and present.device and not own & used:
        assert result.action in (Action.DROP_LISTED, Action.DROP_LOST)
    if result.action is Action.DROP_UNKNOWN:
        assert present is None
        assert own
    assert {one.key for one in result.strays} == {e.key for e in entries if e.node == "n1"} - used
    assert all(one.boot_id != "n1-boot" or one.key not in own for one in result.done)


# --- attached volumes ---


async def test_a_volume_with_its_entries_is_kept(node: NodeModel, reconciler: Reconciler) -> None:
    node.local.mount(volume(), await node.take())
    await reconciler.check()
    assert node.local.dropped == []


async def test_a_volume_whose_lock_was_broken_is_dropped_with_force(
    node: NodeModel, reconciler: Reconciler
) -> None:
    node.local.mount(volume(), node.holder())
    await NodeModel(node.model, "n2").take(pod="b")
    await reconciler.check()
    assert node.local.dropped == [("pv-1", GONE, True)]
    assert await node.model.holders() == ["n2/b"]


async def test_a_volume_that_is_taken_now_is_checked_later(node: NodeModel, reconciler: Reconciler) -> None:
    node.local.mount(volume(), node.holder())
    with node.guard.taking("pv-1"):
        await reconciler.check()
    assert node.local.dropped == []


async def test_one_volume_that_hangs_does_not_hinder_another(node: NodeModel, reconciler: Reconciler) -> None:
    for name in ("pv-1", "pv-2"):
        node.local.mount(volume(name), node.holder())
    node.local.hangs = {"pv-1"}
    await reconciler.check()
    assert sorted(name for name, _, _ in node.local.dropped) == ["pv-1", "pv-2"]
    assert list(node.local.present) == ["pv-1"]


# --- records that were lost ---


async def lose_records(node: NodeModel, reconciler: Reconciler) -> None:
    """A volume is checked in one store, and then the node has another one."""
    node.local.mount(volume(), await node.take())
    await reconciler.check()
    node.model.records.records.clear()
    node.model.identity.text = "made again"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_volumes_of_lost_records_are_entered_again(
    node: NodeModel, reconciler: Reconciler, memory: Path, is_restarted: bool
) -> None:
    await lose_records(node, reconciler)
    await (node.reconciler(memory) if is_restarted else reconciler).check()
    assert node.local.dropped == []
    assert await node.model.holders() == ["n1/web-0"]


async def test_a_lock_that_is_broken_in_the_new_records_is_broken(
    node: NodeModel, reconciler: Reconciler
) -> None:
    await lose_records(node, reconciler)
    await reconciler.check()
    node.model.records.records.clear()  # another node has had the volume in between
    await reconciler.check()
    assert [name for name, _, _ in node.local.dropped] == ["pv-1"]


async def test_a_volume_of_lost_records_that_another_node_has_is_dropped(
    node: NodeModel, reconciler: Reconciler
) -> None:
    await lose_records(node, reconciler)
    await NodeModel(node.model, "n2").take(pod="b")
    await reconciler.check()
    assert [name for name, _, _ in node.local.dropped] == ["pv-1"]
    assert await node.model.holders() == ["n2/b"]


async def test_nothing_is_dropped_while_the_store_does_not_answer(
    node: NodeModel, reconciler: Reconciler
) -> None:
    await lose_records(node, reconciler)
    node.model.identity.silent = True
    await reconciler.check()
    assert node.local.dropped == []


# --- entries without a volume ---


async def test_entries_of_an_earlier_boot_go_and_nothing_is_dropped(
    node: NodeModel, reconciler: Reconciler
) -> None:
    await node.model.put(entry("n1", "a", boot_id="before"), entry("n2", "b"))
    await reconciler.clean_returned()
    assert await node.model.holders() == ["n2/b"]
    assert node.local.dropped == []


async def test_an_entry_of_a_lost_journal_goes_after_its_device(
    node: NodeModel, reconciler: Reconciler
) -> None:
    await node.model.put(entry("n1", "a"))
    node.local.fails = {"pv-1"}
    await reconciler.clean_returned()
    assert await node.model.holders() == ["n1/a"]
    node.local.fails.clear()
    await reconciler.clean_returned()
    assert node.local.dropped[-1] == ("pv-1", "this node has no journal of it", False)
    assert await node.model.holders() == []


async def test_an_entry_whose_pod_has_another_volume_stays(node: NodeModel, reconciler: Reconciler) -> None:
    """The volume of a mount directory has got another name."""
    await node.model.put(entry("n1", "a"))
    node.local.mount(volume("pv-2"), node.holder("a"))
    await reconciler.clean_returned()
    assert await node.model.holders() == ["n1/a"]
    assert node.local.dropped == []


async def test_entries_of_present_volumes_and_other_nodes_stay(
    node: NodeModel, reconciler: Reconciler
) -> None:
    shared = volume("pv-1", RWX)
    node.local.mount(shared, await node.take(shared, "a"))
    stored = await node.model.records.get("pv-1")
    old = entry_of(shared, node.holder("gone"))
    entries = [*(await node.model.entries()), old, entry("n2", "b")]
    await node.model.records.replace("pv-1", value_of(entries), expected_version=stored.version)
    await reconciler.clean_returned()
    assert await node.model.holders() == ["n1/a", "n2/b"]
    assert node.local.dropped == []


async def test_entries_of_a_volume_that_is_taken_now_stay(node: NodeModel, reconciler: Reconciler) -> None:
    await node.model.put(entry("n1", "a"))
    with node.guard.taking("pv-1"):
        await reconciler.clean_returned()
    assert await node.model.holders() == ["n1/a"]


# --- the garbage list ---


async def test_a_broken_volume_is_dropped_with_force_before_it_is_taken_again(
    node: NodeModel, reconciler: Reconciler
) -> None:
    node.local.mount(volume(), node.holder("a"))
    await node.model.lists.add([item(entry("n1", "a"))])
    node.guard.pending = None
    with pytest.raises(Unavailable, match="has not been read yet"):
        await node.take()
    await reconciler.work_off()
    assert node.local.dropped == [("pv-1", "node n1 does not exist any more", True)]
    assert await node.model.lists.of("n1") == ()
    assert node.guard.pending == {}


async def test_a_volume_without_a_journal_is_dropped_as_the_list_describes_it(
    node: NodeModel, reconciler: Reconciler
) -> None:
    await node.model.lists.add([item(entry("n1", "a", volume=volume("pv-1", cluster="s/c")))])
    await reconciler.work_off()
    assert node.local.dropped == [("pv-1", "node n1 does not exist any more", True)]


async def test_what_cannot_be_dropped_stays_and_hinders_nothing_else(
    node: NodeModel, reconciler: Reconciler
) -> None:
    node.local.fails, node.local.hangs = {"pv-1"}, {"pv-2"}
    await node.model.lists.add([item(entry("n1", "a"), f"pv-{number}") for number in (1, 2, 3)])
    await reconciler.work_off()
    assert [one.volume_name for one in await node.model.lists.of("n1")] == ["pv-1", "pv-2"]
    assert list(node.guard.pending or ()) == ["pv-1", "pv-2"]
    await reconciler.work_off()
    assert [(name, reason) for name, reason, _ in sorted(node.model.events.seen)] == [
        ("pv-1", "AttachmentNotRemoved"),
        ("pv-2", "AttachmentNotRemoved"),
    ]
    assert "Node n1 cannot remove volume pv-1 yet, and tries again: volume pv-1 is busy" in str(
        node.model.events.seen
    )
    node.local.fails.clear()
    node.local.hangs.clear()
    await reconciler.work_off()
    assert node.guard.pending == {}


async def test_a_listed_volume_that_is_taken_now_is_left_for_the_next_round(
    node: NodeModel, reconciler: Reconciler
) -> None:
    node.guard.pending = None
    await node.model.lists.add([item(entry("n1", "a"))])
    with node.guard.taking("pv-1"):
        await reconciler.work_off()
    assert node.local.dropped == []
    assert list(node.guard.pending or ()) == ["pv-1"]


def forget_pending(node: NodeModel) -> None:
    """As after a start, when the garbage list was not read yet."""
    node.guard.pending = None


async def test_an_entry_that_was_not_removed_is_not_dropped(node: NodeModel, reconciler: Reconciler) -> None:
    """The other node crashed between the list and the record."""
    node.local.mount(volume(), await node.take(pod="a"))
    forget_pending(node)
    await node.model.lists.add([item(entry("n1", "a"))])
    await reconciler.work_off()
    assert (node.local.dropped, node.guard.pending) == ([], {})
    assert len(await node.model.lists.of("n1")) == 1
    node.model.clock.advance(3600)
    await reconciler.work_off()
    assert (node.local.dropped, await node.model.lists.of("n1")) == ([], ())


@pytest.mark.parametrize("boot_id", ["before", "n1-boot"])
async def test_items_of_an_earlier_boot_and_of_volumes_that_pods_use_again_are_forgotten(
    node: NodeModel, reconciler: Reconciler, boot_id: str
) -> None:
    shared = volume("pv-1", RWX)
    node.local.mount(shared, await node.take(shared, "b"))
    await node.model.lists.add([item(entry("n1", "a", boot_id=boot_id))])
    await reconciler.work_off()
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


async def test_a_list_that_cannot_be_read_is_left_alone(node: NodeModel, reconciler: Reconciler) -> None:
    await node.model.stale.create("n1", {"attachments": "x"})
    with pytest.raises(Internal, match="garbage list of node n1"):
        await reconciler.work_off()
