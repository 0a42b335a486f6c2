"""`Store`: durability, group commit, history, and files that are full, corrupt, newer or gone."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Executable,
    Integer,
    MetaData,
    String,
    Table,
    event,
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError

from kubeletx.api import InvalidConfig, Unavailable
from kubeletx.store import Store, upsert

METADATA = MetaData()
THINGS = Table("things", METADATA, Column("name", String, primary_key=True), Column("size", Integer))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await Store.open(tmp_path / "state.db", [METADATA], later_seconds=0.01)
    yield store
    await store.close()


async def add(store: Store, name: str) -> None:
    await store.write(lambda c: c.execute(insert(THINGS).values(name=name, size=1)) and None)


def _execute(statement: Executable, row: dict[str, object], connection: Connection) -> None:
    connection.execute(statement, row)


async def names(store: Store) -> list[str]:
    return await store.read(
        lambda c: list(c.execute(select(THINGS.c.name).order_by(THINGS.c.name)).scalars())
    )


def on_disk(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        count = connection.execute("select count(*) from things").fetchone()[0]
    connection.close()
    return int(count)


async def test_a_write_is_on_disk_when_it_returns(store: Store) -> None:
    await add(store, "a")
    assert on_disk(store.path) == 1
    assert await names(store) == ["a"]


async def test_an_upsert_inserts_a_row_or_replaces_the_one_with_its_key(store: Store) -> None:
    statement = upsert(THINGS)
    for name, size in (("a", 1), ("b", 2), ("a", 3), ("b", None)):
        row: dict[str, object] = {"name": name, "size": size}
        await store.write(partial(_execute, statement, row))
    assert await store.read(lambda c: [tuple(row) for row in c.execute(select(THINGS))]) == [
        ("a", 3),
        ("b", None),
    ]


async def test_a_failed_write_is_undone_alone(store: Store) -> None:
    await add(store, "a")
    results = await asyncio.gather(add(store, "b"), add(store, "a"), add(store, "c"), return_exceptions=True)
    assert [type(r) for r in results] == [type(None), IntegrityError, type(None)]
    assert await names(store) == ["a", "b", "c"]


async def test_a_hundred_writes_at_once_share_their_commits(store: Store) -> None:
    commits: list[Connection] = []
    event.listen(Engine, "commit", note := commits.append)
    await asyncio.gather(*(add(store, f"n{i}") for i in range(100)))
    assert len(await names(store)) == 100
    event.remove(Engine, "commit", note)
    assert 1 <= len(commits) <= 10


async def test_history_is_written_soon_and_seen_by_reads_behind_it(store: Store) -> None:
    store.write_later(lambda c: c.execute(insert(THINGS).values(name="later", size=1)))
    async with asyncio.timeout(60):
        while await names(store) != ["later"]:
            await asyncio.sleep(0)


async def test_history_and_writes_are_made_in_the_order_in_which_they_were_queued(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "s.db", [METADATA], later_seconds=60)
    ready = threading.Event()
    made: list[int] = []

    def make(number: int, _connection: Connection) -> None:
        assert ready.wait(60)
        made.append(number)

    async with asyncio.TaskGroup() as group:
        group.create_task(store.write(partial(make, 0)))
        await asyncio.sleep(0)
        for number in range(1, 601):  # more than one batch of history
            store.write_later(partial(make, number))
        group.create_task(store.write(partial(make, 601)))
        await asyncio.sleep(0)
        store.write_later(partial(make, 602))
        ready.set()
    await store.close()
    assert made == list(range(603))


async def test_history_is_flushed_at_close(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "s.db", [METADATA], later_seconds=60)
    for i in range(1200):
        store.write_later(lambda c, i=i: c.execute(insert(THINGS).values(name=f"n{i}")))  # type: ignore[misc]
    await store.close()
    assert on_disk(store.path) == 1200
    with pytest.raises(Unavailable):
        await add(store, "x")


async def test_a_full_disk_makes_writes_unavailable_and_recovers_by_itself(store: Store) -> None:
    await add(store, "a")
    await store.read(lambda c: c.exec_driver_sql("PRAGMA max_page_count=1") and None)
    pages = await store.read(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
    await store.read(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count={pages}") and None)
    with pytest.raises(Unavailable, match="disk full; free space"):
        await asyncio.gather(*(add(store, "x" * 5000 + str(i)) for i in range(20)))
    assert store.problem
    assert await names(store) == ["a"]
    await store.read(lambda c: c.exec_driver_sql("PRAGMA max_page_count=100000") and None)
    await add(store, "b")
    assert not store.problem
    assert await names(store) == ["a", "b"]


async def test_history_is_bounded_while_the_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "ro").write_text("not a directory")
    store = await Store.open(tmp_path / "ro" / "s.db", [METADATA], later_seconds=0.0, later_limit=10)
    for _ in range(50):
        store.write_later(lambda _c: None)
    with pytest.raises(Unavailable, match="cannot be opened"):
        await add(store, "a")
    assert store.dropped >= 40
    (tmp_path / "ro").unlink()
    (tmp_path / "ro").mkdir()
    await add(store, "a")
    assert await names(store) == ["a"]
    await store.close()


async def test_a_corrupt_file_is_set_aside_and_said(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_bytes(b"this is no database" * 100)
    store = await Store.open(path, [METADATA])
    await add(store, "a")
    await store.close()
    assert store.lost is not None
    assert "kept as" in store.lost
    aside = [p for p in tmp_path.iterdir() if ".corrupt-" in p.name]
    assert [p.read_bytes()[:4] for p in aside] == [b"this"]


async def test_a_damaged_page_is_found_at_the_opening(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = await Store.open(path, [METADATA])
    await asyncio.gather(*(add(store, f"{i}" * 200) for i in range(200)))
    await store.close()
    data = bytearray(path.read_bytes())
    data[4096 : 4096 * 4] = b"\xff" * 4096 * 3
    path.write_bytes(data)
    again = await Store.open(path, [METADATA])
    assert again.lost is not None
    assert await names(again) == []
    await again.close()


async def test_a_missing_file_counts_as_lost_only_when_expected(tmp_path: Path) -> None:
    first = await Store.open(tmp_path / "a.db", [METADATA])
    assert first.lost is None
    await first.close()
    second = await Store.open(tmp_path / "b.db", [METADATA], expected=True)
    assert second.lost == f"the state database {tmp_path / 'b.db'} is missing"
    await second.close()


async def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=999")
    connection.close()
    with pytest.raises(InvalidConfig, match="999 is newer than this program's"):
        await Store.open(path, [METADATA])
    assert [p.name for p in tmp_path.iterdir() if "corrupt" in p.name] == []


@pytest.mark.parametrize("mode", [None, 0o644])
async def test_only_its_owner_may_read_the_database_for_it_holds_environments(
    tmp_path: Path, mode: int | None
) -> None:
    path = tmp_path / "s.db"
    if mode is not None:  # an earlier version left it so
        path.touch()
        path.chmod(mode)
    store = await Store.open(path, [METADATA])
    await add(store, "a")
    assert {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {
        "s.db": 0o600,
        "s.db-shm": 0o600,
        "s.db-wal": 0o600,
    }
    await store.close()


async def test_a_cancelled_writer_does_not_undo_its_write(store: Store) -> None:
    task = asyncio.create_task(add(store, "a"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await names(store) == ["a"]


async def test_data_survives_a_restart(tmp_path: Path) -> None:
    first = await Store.open(tmp_path / "s.db", [METADATA])
    await add(first, "a")
    await first.close()
    second = await Store.open(tmp_path / "s.db", [METADATA])
    assert await names(second) == ["a"]
    assert second.lost is None
    await second.close()
