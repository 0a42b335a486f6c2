"""Bindings: durable, unchanging, and never in the way of stopping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeletx.api import Conflict, NotFound, PodUid, RuntimeName, Unavailable
from kubeletx.runtimes.binding.bindings import METADATA, Binding, Bindings
from kubeletx.store import Store


def binding(uid: str, runtime: str = "one") -> Binding:
    return Binding(
        uid=PodUid(uid),
        runtime=RuntimeName(runtime),
        kind="fake",
        namespace="default",
        name="p",
        source="file",
        bound_at=datetime(2030, 1, 1, tzinfo=UTC),
        why="default of type container",
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "s.db", [METADATA], later_seconds=0.0)
    yield store
    await store.close()


async def again(store: Store) -> Bindings:
    bindings = Bindings(store)
    await bindings.load()
    return bindings


async def break_writes(store: Store) -> None:
    await store.read(lambda c: c.exec_driver_sql("PRAGMA query_only=ON") and None)


async def mend_writes(store: Store) -> None:
    await store.read(lambda c: c.exec_driver_sql("PRAGMA query_only=OFF") and None)


async def test_a_binding_is_read_back_unchanged(store: Store) -> None:
    bindings = Bindings(store)
    await bindings.bind(binding("a"))
    assert (await again(store)).get(PodUid("a")) == binding("a")
    with pytest.raises(NotFound):
        bindings.get(PodUid("b"))


async def test_without_the_database_no_pod_is_bound(store: Store) -> None:
    bindings = Bindings(store)
    await break_writes(store)
    with pytest.raises(Unavailable):
        await bindings.bind(binding("a"))
    assert bindings.find(PodUid("a")) is None
    await mend_writes(store)
    await bindings.bind(binding("a"))


async def test_two_binds_at_once_agree(store: Store) -> None:
    bindings = Bindings(store)
    results = await asyncio.gather(
        bindings.bind(binding("a")), bindings.bind(binding("a", "two")), return_exceptions=True
    )
    assert results[0] == binding("a")
    assert isinstance(results[1], Conflict)
    assert (await again(store)).get(PodUid("a")).runtime == "one"


async def test_a_cancelled_bind_leaves_memory_and_disk_equal(store: Store) -> None:
    bindings = Bindings(store)
    task = asyncio.create_task(bindings.bind(binding("a")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await bindings.bind(binding("a"))
    assert (await again(store)).all == bindings.all


async def test_an_ended_pod_does_not_wait_for_the_database(store: Store) -> None:
    bindings = Bindings(store)
    await bindings.bind(binding("a"))
    await break_writes(store)
    await bindings.unbind(PodUid("a"))
    assert bindings.find(PodUid("a")) is None
    with pytest.raises(Unavailable):
        await bindings.settle()
    await mend_writes(store)
    await bindings.settle()
    assert (await again(store)).all == {}


async def test_a_pod_bound_again_is_not_deleted_by_the_late_deletion(store: Store) -> None:
    bindings = Bindings(store)
    await bindings.bind(binding("a"))
    await break_writes(store)
    await bindings.unbind(PodUid("a"))
    await mend_writes(store)
    await asyncio.gather(bindings.bind(binding("a", "two")), bindings.settle())
    assert (await again(store)).get(PodUid("a")).runtime == "two"


async def test_a_restored_binding_is_written_even_if_the_disk_was_full_then(store: Store) -> None:
    bindings = Bindings(store)
    await break_writes(store)
    assert bindings.restore(binding("a"))
    assert not bindings.restore(binding("a", "two"))
    await mend_writes(store)
    await bindings.settle()
    assert (await again(store)).get(PodUid("a")) == binding("a")


async def test_bindings_of_one_runtime(store: Store) -> None:
    bindings = Bindings(store)
    for uid, runtime in (("a", "one"), ("b", "two"), ("c", "one")):
        await bindings.bind(binding(uid, runtime))
    assert [b.uid for b in bindings.of_runtime("one")] == ["a", "c"]


async def test_an_unreadable_database_does_not_stop_the_start_and_is_read_later(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    first = await Store.open(tmp_path / "db" / "s.db", [METADATA])
    await Bindings(first).bind(binding("a"))
    await first.close()
    (tmp_path / "db").rename(tmp_path / "hidden")
    (tmp_path / "db").write_text("in the way")
    store = await Store.open(tmp_path / "db" / "s.db", [METADATA])
    bindings = Bindings(store)
    assert not await bindings.load()
    assert bindings.restore(binding("b"))
    with pytest.raises(Unavailable):
        await bindings.settle()
    (tmp_path / "db").unlink()
    (tmp_path / "hidden").rename(tmp_path / "db")
    await bindings.settle()
    assert set(bindings.all) == {"a", "b"}
    assert set((await again(store)).all) == {"a", "b"}
    await store.close()
