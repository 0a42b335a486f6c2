"""Records in the node's database: the contract, and tables that are missing, foreign or hold nonsense."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import Column, MetaData, String, Table, insert, select
from sqlalchemy.engine import Connection

from kubeletx.api import InvalidConfig, NotFound, RecordPut, Records, RecordsSynced, Unavailable
from kubeletx.store import Store
from kubeletx.store.records import StoreRecords
from kubeletx.testing.contract import RecordsContract


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A database without any table."""
    made = await Store.open(tmp_path / "state.db", [])
    yield made
    await made.close()


class TestContract(RecordsContract):
    """One kind; another one beside it must not be seen."""

    at_once = 64

    @pytest_asyncio.fixture
    async def open_records(self, store: Store) -> Callable[[], Records]:
        kinds = StoreRecords(store)
        await kinds.of("other").create("one", {"of": "another kind"})
        return lambda: kinds.of("mine")


@pytest.fixture
def records(store: Store) -> Records:
    return StoreRecords(store).of("mine")


def altered(store: Store, *statements: str) -> None:
    """Change the file behind the store's back."""
    with sqlite3.connect(store.path) as connection:
        for one in statements:
            connection.execute(one)
    connection.close()


def test_kinds_are_named_as_records_are(store: Store) -> None:
    with pytest.raises(InvalidConfig, match="kind of records"):
        StoreRecords(store).of("No Kind")


async def test_records_outlive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = await Store.open(path, [])
    made = await StoreRecords(store).of("mine").create("one", {"a": 1})
    await store.close()
    store = await Store.open(path, [])
    assert await StoreRecords(store).of("mine").get("one") == made
    await store.close()


async def test_a_table_that_is_gone_is_made_again(store: Store, records: Records) -> None:
    await records.create("one", {})
    altered(store, "DROP TABLE records")
    assert (await records.list_page()).records == ()
    altered(store, "DROP TABLE records")
    await records.create("one", {"a": 2})
    assert (await records.get("one")).value == {"a": 2}


async def test_a_foreign_table_of_that_name_is_kept_aside(store: Store, records: Records) -> None:
    altered(store, "CREATE TABLE records (name TEXT, colour TEXT)", "INSERT INTO records VALUES ('a', 'red')")
    await records.create("one", {"a": 1})
    assert (await records.get("one")).value == {"a": 1}
    with sqlite3.connect(store.path) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        (aside,) = [one for one in tables if one.startswith("records_unusable_")]
        assert connection.execute(f"SELECT colour FROM {aside}").fetchall() == [("red",)]
    connection.close()


async def test_a_table_with_another_order_and_one_column_more_is_used(store: Store, records: Records) -> None:
    altered(
        store,
        "CREATE TABLE records (json TEXT, name TEXT, colour TEXT, version TEXT, kind TEXT, PRIMARY KEY (kind, name))",
    )
    made = await records.create("one", {"a": 1})
    assert await records.get("one") == made
    assert (await records.replace("one", {"a": 2}, expected_version=made.version)).value == {"a": 2}


@pytest.mark.parametrize("json", ["'{'", "'[1]'", "x'ff'", "7", "'null'"])
async def test_a_row_that_makes_no_sense_counts_as_not_there(
    store: Store, records: Records, json: str
) -> None:
    await records.create("a", {})
    made = await records.create("one", {"a": 1})
    await records.create("z", {})
    altered(store, f"UPDATE records SET json = {json} WHERE name = 'one'")
    assert [one.name for one in (await records.list_page()).records] == ["a", "z"]
    for call in (
        records.get("one"),
        records.replace("one", {}, expected_version=made.version),
        records.delete("one", expected_version=made.version),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await records.create("one", {"a": 2})).value == {"a": 2}


async def test_a_damaged_table_harms_no_other_write(tmp_path: Path) -> None:
    """Writes that wait together share a transaction: one that meets the damage must not undo the others."""
    metadata = MetaData()
    things = Table("things", metadata, Column("name", String))
    store = await Store.open(tmp_path / "state.db", [metadata])
    records = StoreRecords(store).of("mine")
    await records.create("one", {})
    with sqlite3.connect(store.path) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'records'").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with store.path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    connection.execute("INSERT INTO things VALUES ('a')")  # so that the store reads its pages again
    connection.commit()
    connection.close()

    def write(connection: Connection) -> None:
        connection.execute(insert(things).values(name="b"))

    try:
        ends = await asyncio.gather(
            store.write(write), records.create("two", {}), store.write(write), return_exceptions=True
        )
        assert [type(one) for one in ends] == [type(None), Unavailable, type(None)]
        with pytest.raises(Unavailable, match="restart the agent"):
            await records.get("one")
        names = await store.read(lambda c: list(c.execute(select(things.c.name)).scalars()))
        assert sorted(names) == ["a", "b", "b"]
    finally:
        await store.close()


async def test_pages_go_on_behind_rows_that_make_no_sense(store: Store, records: Records) -> None:
    for number in range(9):
        await records.create(f"r{number}", {})
    altered(store, "UPDATE records SET json = 'x' WHERE name BETWEEN 'r2' AND 'r6'")
    names, page = [], await records.list_page(limit=2)
    names += [one.name for one in page.records]
    while page.next_token:
        page = await records.list_page(token=page.next_token, limit=2)
        names += [one.name for one in page.records]
    assert names == ["r0", "r1", "r7", "r8"]


async def test_a_closed_store_is_unavailable(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "state.db", [])
    await store.close()
    with pytest.raises(Unavailable):
        await StoreRecords(store).of("mine").get("one")


async def test_a_watch_hears_of_a_write_whose_caller_was_cancelled(records: Records) -> None:
    async with aclosing(records.watch()) as watch, asyncio.timeout(60):
        assert await anext(watch) == RecordsSynced()
        task = asyncio.create_task(records.create("one", {"a": 1}))
        await asyncio.sleep(0)
        task.cancel()
        event = await anext(watch)
        assert isinstance(event, RecordPut)
        assert event.record == await records.get("one")


def test_an_agent_without_records_imports_none_of_it() -> None:
    late = ["api.records", "linux.records", "store.records", "kube.types.job", "kube.types.custom"]
    late += [f"kube.client.{name}" for name in ("definitions", "lease_lock", "records", "statuses")]
    assert all(find_spec(f"kubeletx.{one}") for one in late)  # a module that was moved is never imported
    program = (
        "import sys, kubeletx.agent.assembly, kubeletx.cli\n"
        f"print([one for one in {late!r} if f'kubeletx.{{one}}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
