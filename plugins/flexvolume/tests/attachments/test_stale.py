"""The scan: which entries are stale, what happens to them, and how many look-ups many records take."""

from __future__ import annotations

import pytest
from kubeletx_flexvolume.attachments.events import ENTRY_REMOVED
from kubeletx_flexvolume.attachments.garbage import item_of
from kubeletx_flexvolume.attachments.proofs import StorageNode
from kubeletx_flexvolume.attachments.record import value_of
from kubeletx_flexvolume.attachments.stale import Scanner

from kubeletx.api import Unavailable
from plugins.flexvolume.tests.attachments.attachment_model import NodesDouble, StorageModel, entry


@pytest.fixture
def model() -> StorageModel:
    return StorageModel("n1", "n2")


def scanner(model: StorageModel) -> Scanner:
    return Scanner(model.stores)


async def test_entries_of_gone_and_restarted_nodes_are_moved_to_their_lists(model: StorageModel) -> None:
    await model.put(entry("n1", "a"), entry("gone", "b"), entry("n2", "c", boot_id="before"))
    await model.put(entry("gone", "d"), name="pv-2")
    await model.put(entry("n1", "e"), name="pv-3")
    report = await scanner(model).scan()
    assert (report.records, report.entries, report.problems) == (3, 5, ())
    assert [(one.volume, one.entry.pod, one.why) for one in report.stale] == [
        ("pv-1", "b", "node gone does not exist any more"),
        ("pv-1", "c", "node n2 has restarted since (its boot ID is n2-boot)"),
        ("pv-2", "d", "node gone does not exist any more"),
    ]
    assert await model.holders() == ["n1/a"]
    assert sorted(model.records.records) == ["pv-1", "pv-3"]
    assert [one.volume_name for one in await model.lists.of("gone")] == ["pv-1", "pv-2"]
    assert ("pv-2", ENTRY_REMOVED) in [(name, reason) for name, reason, _ in model.events.seen]


async def test_a_dry_run_changes_nothing(model: StorageModel) -> None:
    await model.put(entry("gone"))
    report = await scanner(model).scan(dry_run=True)
    assert (len(report.stale), report.is_dry) == (1, True)
    assert (await model.holders(), model.stale.records, model.events.seen) == (["gone/web-0"], {}, [])


async def test_a_node_that_registers_during_the_scan_is_not_gone(model: StorageModel) -> None:
    await model.put(entry("n1"))
    model.nodes.unlisted.add("n1")
    assert (await scanner(model).scan()).stale == ()
    assert await model.holders() == ["n1/web-0"]


async def test_an_entry_that_its_holder_changes_meanwhile_stays(model: StorageModel) -> None:
    await model.put(entry("gone"))

    async def change() -> None:
        found = await model.records.get("pv-1")
        value = value_of([entry("gone", device="/dev/loop0")])
        await model.records.replace("pv-1", value, expected_version=found.version)

    model.records.before = change
    await scanner(model).scan()
    assert await model.holders() == ["gone/web-0"]


async def test_a_node_that_cannot_be_looked_up_is_a_problem_and_no_proof(model: StorageModel) -> None:
    class Unreachable(NodesDouble):
        async def facts(self, name: str) -> StorageNode:
            raise Unavailable("no answer")

    model.nodes = Unreachable()
    await model.put(entry("gone"))
    report = await scanner(model).scan()
    assert report.problems == ("node gone: no answer",)
    assert await model.holders() == ["gone/web-0"]


async def test_a_record_that_cannot_be_read_does_not_hinder_the_scan(model: StorageModel) -> None:
    await model.records.create("broken", {"attachments": 5})
    await model.put(entry("gone"))
    report = await scanner(model).scan()
    assert (report.records, len(report.stale)) == (2, 1)


async def test_items_that_can_no_longer_apply_leave_the_lists(model: StorageModel) -> None:
    now = model.clock.now()
    items = [
        item_of("pv-1", entry("n1", boot_id="before"), why="x", now=now),
        item_of("pv-2", entry("n1"), why="x", now=now),
        item_of("pv-3", entry("gone"), why="x", now=now),
    ]
    await model.lists.add(items)
    await scanner(model).scan()
    assert [one.volume_name for one in await model.lists.of("n1")] == ["pv-2"]
    assert len(await model.lists.of("gone")) == 1
    model.clock.advance(31 * 24 * 3600)
    await scanner(model).scan()
    assert await model.lists.of("gone") == ()


async def test_the_nodes_of_ten_thousand_records_are_looked_up_a_few_times(model: StorageModel) -> None:
    for number in range(10_000):
        node = "gone" if number % 500 == 0 else "n1"
        name = f"pv-{number:05}"
        await model.records.create(name, value_of([entry(node, f"pod-{number}")]))
    report = await scanner(model).scan()
    assert (report.records, len(report.stale)) == (10_000, 20)
    assert model.nodes.asked < 50
