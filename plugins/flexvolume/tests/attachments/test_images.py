"""Volumes that have one image: each image has at most one volume, whatever its nodes do at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from kubeletx_flexvolume.attachments.record import image_record, is_image_record
from kubeletx_flexvolume.attachments.stale import Scanner
from kubeletx_flexvolume.values import Holder, StorageVolume

from kubeletx.api import Conflict, KubeletxError, Record, Unavailable
from plugins.flexvolume.tests.attachments.attachment_model import (
    RWX,
    NodeModel,
    StorageModel,
    holder,
    volume,
)

IMAGE = image_record("loop default/img")


def of(name: str, *modes: Any) -> StorageVolume:
    return msgspec.structs.replace(volume(name, *modes), image="img")


def node(model: StorageModel, name: str = "n1") -> NodeModel:
    model.storage.has_images = True
    return NodeModel(model, name)


@pytest.fixture
def model() -> StorageModel:
    return StorageModel("n1", "n2", "n3")


@pytest.mark.parametrize("second", ["n1", "n2"])
@pytest.mark.parametrize("modes", [(), (RWX,)])
async def test_a_second_name_is_refused_with_its_holder_until_the_first_is_released(
    model: StorageModel, second: str, modes: Any
) -> None:
    one = node(model)
    other = one if second == "n1" else node(model, second)
    taken = await one.take(of("a", *modes), "first")
    one.local.mount(of("a", *modes), taken)
    with pytest.raises(
        Conflict, match=r"its image is attached as volume a .* for pod default/first on node n1"
    ):
        await other.take(of("b", *modes), "second")
    assert {name for name in model.records.records if not is_image_record(name)} == {"a"}
    await one.local.drop(of("a"), why="its pod has ended")
    assert model.records.records == {}
    await other.take(of("b", *modes), "second")
    assert await model.holders(IMAGE) == await model.holders("b") == [f"{second}/second"]


@pytest.mark.parametrize("write", [1, 2])
async def test_of_two_names_at_the_same_moment_one_gets_the_image(model: StorageModel, write: int) -> None:
    """`write`: write of the first before which all of the second happens."""
    one, other = node(model), node(model, "n2")
    results = list[Holder | KubeletxError]()

    async def take(of_node: NodeModel, name: str) -> None:
        try:
            results.append(await of_node.take(of(name), name))
        except KubeletxError as error:
            results.append(error)

    async def before() -> None:
        if write == 2:
            model.records.before = lambda: take(other, "b")
        else:
            await take(other, "b")

    model.records.before = before
    await take(one, "a")
    (winner,) = (one for one in results if isinstance(one, Holder))
    (loser,) = (one for one in results if isinstance(one, Conflict))
    assert "its image is attached as volume" in str(loser)
    assert await model.holders(winner.pod) == await model.holders(IMAGE) == [f"{winner.node}/{winner.pod}"]
    assert len(model.records.records) == 2


@pytest.mark.parametrize("seed", range(40))
async def test_an_image_never_has_two_volumes(seed: int) -> None:
    """Three nodes take and release two volumes of one image, in random order, and lose answers and writes."""
    model, dice = StorageModel("n1", "n2", "n3"), random.Random(seed)
    using = list[str]()
    get = model.records.get

    async def slow(name: str) -> Record:
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
        return await get(name)

    async def trouble() -> None:
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
        if dice.random() < 0.1:
            setattr(model.records, dice.choice(("lose_answers", "lose_writes")), 1)

    model.records.get = slow  # type: ignore[method-assign]
    model.records.trouble = trouble  # type: ignore[method-assign]

    async def live(of_node: NodeModel) -> None:
        for number in range(6):
            name = dice.choice("ab")
            wanted = of_node.holder(f"pod-{number}")
            with contextlib.suppress(KubeletxError):
                await of_node.book.take(of(name, RWX), wanted)
                using.append(name)
                assert len(set(using)) == 1
                await asyncio.sleep(0)
                using.remove(name)
            while True:
                with contextlib.suppress(KubeletxError):
                    await of_node.book.release(of(name), wanted)
                    break

    await asyncio.gather(*(live(node(model, name)) for name in model.nodes.known))
    model.records.lose_answers = model.records.lose_writes = 0
    assert model.records.records == {}


async def test_the_lock_of_another_volume_is_broken_with_a_proof_only(model: StorageModel) -> None:
    one, other = node(model), node(model, "n2")
    await one.take(of("a"), "first")
    model.nodes.change("n1", boot_id="n1-boot-2")
    taken = await other.take(of("b"), "second")
    assert "node n1 has restarted since" in taken.reason
    assert await model.holders("a") == []
    assert await model.holders(IMAGE) == ["n2/second"]
    (item,) = await model.lists.of("n1")
    assert (item.volume_name, item.images) == ("a", (IMAGE,))


async def test_a_volume_that_is_still_to_be_removed_keeps_its_image(model: StorageModel) -> None:
    one = node(model)
    one.guard.pending = {"a": frozenset((IMAGE,))}
    with pytest.raises(Unavailable, match="its lock was broken"):
        await one.take(of("b"))


async def test_an_image_that_is_attached_here_without_an_entry_is_not_taken(model: StorageModel) -> None:
    one = node(model)
    taken = await one.take(of("a"), "first")
    one.local.mount(of("a"), taken)
    await one.book.release(of("a"), taken)
    with pytest.raises(Unavailable, match="volume a is attached on this node for pod default/first"):
        await one.take(of("b"), "second")
    assert one.guard.lost.is_set()


async def test_a_scan_removes_a_gone_node_from_records_of_images_and_reports_volumes(
    model: StorageModel,
) -> None:
    await node(model).take(of("a"))
    del model.nodes.known["n1"]
    report = await Scanner(model.stores).scan()
    assert [one.volume for one in report.stale] == ["a"]
    assert (report.records, report.entries, report.problems) == (1, 1, ())
    assert model.records.records == {}
    assert [name for name, _, _ in model.events.seen] == ["a"]
    assert [one.volume_name for one in await model.lists.of("n1")] == ["a"]


async def test_what_a_lost_journal_leaves_in_records_of_images_is_removed_after_its_volume(
    model: StorageModel, tmp_path: Any
) -> None:
    one = node(model)
    await one.take(of("a"))
    reconciler = one.reconciler(tmp_path / "store")
    one.local.fails.add("a")
    await reconciler.clean_returned()
    assert await model.holders(IMAGE) == ["n1/web-0"]
    one.local.fails.clear()
    await reconciler.clean_returned()
    assert model.records.records == {}


async def test_a_cluster_whose_definition_drops_fields_is_named(model: StorageModel) -> None:
    create = model.records.create

    async def pruned(name: str, value: Mapping[str, Any]) -> Record:
        entries = [{key: one[key] for key in one if key != "images"} for one in value["attachments"]]
        return await create(name, {**value, "attachments": entries})

    model.records.create = pruned  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="its definition is of an earlier version"):
        await node(model).take(of("a"))


async def test_holders_of_one_volume_share_its_image(model: StorageModel) -> None:
    one, other = node(model), node(model, "n2")
    for at, pod in ((one, "x"), (one, "y"), (other, "z")):
        await at.take(of("a", RWX), pod)
    assert await model.holders(IMAGE) == ["n1/x", "n1/y", "n2/z"]
    await one.book.release(of("a"), holder("n1", "x"))
    assert await model.holders(IMAGE) == ["n1/y", "n2/z"]


async def test_a_pool_that_hangs_is_asked_once_and_delays_no_other_volume(model: StorageModel) -> None:
    images, calls, gate = model.storage.images, list[str](), asyncio.Event()

    async def hanging(volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        calls.append(volume.name)
        if volume.name == "a":
            await gate.wait()
        return await images(volume)

    model.storage.images = hanging  # type: ignore[method-assign]
    one = node(model)
    for number in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one.take(of("a"), f"pod-{number}"), 0.01)
        await one.take(volume("c"), f"pod-{number}")
    assert calls.count("a") == 1
    gate.set()
