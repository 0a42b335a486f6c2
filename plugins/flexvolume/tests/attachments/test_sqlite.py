"""Records in an SQLite file: the contract, file modes, several processes, damage."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, closing
from pathlib import Path

import pytest
import pytest_asyncio
from kubeletx_flexvolume.attachments.record import entries_of, value_of
from kubeletx_flexvolume.attachments.sqlite import SqliteStore
from kubeletx_flexvolume.attachments.views import entry_rows

from kubeletx.api import (
    Conflict,
    Internal,
    InvalidConfig,
    NotFound,
    RecordGone,
    RecordPut,
    Records,
    RecordsSynced,
    Unavailable,
)
from kubeletx.testing import FakeClock
from kubeletx.testing.contract import RecordsContract
from plugins.flexvolume.tests.attachments.attachment_model import entry


class TestInOneFile(RecordsContract):
    """Each `Records` object has a connection of its own, as another process would have."""

    races = 200

    @pytest_asyncio.fixture
    async def open_records(self, tmp_path: Path) -> AsyncIterator[Callable[[], Records]]:  # type: ignore[override]  # async
        stores: list[SqliteStore] = []

        def open_one() -> Records:
            stores.append(SqliteStore(tmp_path / "records" / "records.db", FakeClock(auto_advance=True)))
            return stores[-1].of("volumeattachments")

        yield open_one
        for store in stores:
            await store.close()


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "new" / "records.db", FakeClock(auto_advance=True))
    yield made
    await made.close()


async def test_only_the_owner_reads_the_files(store: SqliteStore, tmp_path: Path) -> None:
    await store.of("nodes").create("one", {"a": 1})
    files = list((tmp_path / "new").iterdir())
    assert {path.name for path in files} == {"records.db", "records.db-wal", "records.db-shm"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


async def test_a_file_that_others_could_read_is_closed_to_them(store: SqliteStore, tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.db"
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o644)
    await store.of("nodes").create("one", {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_directory_that_others_can_write_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new").chmod(0o777)
    with pytest.raises(InvalidConfig, match="other users can write"):
        await store.of("nodes").get("one")


async def test_a_link_is_not_a_file(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir(mode=0o700)
    (tmp_path / "new" / "records.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidConfig, match="not a regular file"):
        await store.of("nodes").get("one")


async def test_kinds_are_apart(store: SqliteStore) -> None:
    await store.of("nodes").create("one", {"a": 1})
    with pytest.raises(NotFound):
        await store.of("staleattachments").get("one")
    with pytest.raises(InvalidConfig):
        store.of("No Kind")


async def test_damage_is_named_and_nothing_is_deleted(store: SqliteStore, tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.db"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(InvalidConfig, match="is damaged") as error:
        await store.of("nodes").get("one")
    assert str(path) in error.value.message
    assert path.read_bytes().startswith(b"no database")


async def test_the_agents_set_a_damaged_file_aside_and_share_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.db"
    one, other = [SqliteStore(path, FakeClock(), sets_aside=True) for _ in range(2)]
    await one.of("nodes").create("one", {})
    before = await other.identity()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.write(b"no database " * 1000)
    await other.of("nodes").create("two", {"a": 1})
    for store in (one, other):
        assert (await store.of("nodes").get("two")).value == {"a": 1}
        assert await store.identity() != before
        with pytest.raises(NotFound):
            await store.of("nodes").get("one")
        await store.close()
    assert path.with_name("records.db.damaged").read_bytes().startswith(b"no database")


@pytest.mark.parametrize("value", ["'no JSON'", "'[]'", "x'ff'", "7", "''"])
async def test_a_row_that_cannot_be_decoded_hides_no_other(
    store: SqliteStore, tmp_path: Path, value: str
) -> None:
    records = store.of("volumeattachments")
    await records.create("pv-1", value_of([entry()]))
    with closing(sqlite3.connect(tmp_path / "new" / "records.db")) as connection, connection:
        connection.execute(f"INSERT INTO records VALUES ('volumeattachments', 'pv-0', 'v', {value})")
    page = await records.list_page()
    assert [one.name for one in page.records] == ["pv-0", "pv-1"]
    problems = list[str]()
    rows = await entry_rows(records, (), problems)
    assert [row["volume"] for row in rows] == ["pv-1"]
    assert "attachment record pv-0 cannot be read" in problems[0]
    with pytest.raises(Internal, match="attachment record pv-0 cannot be read"):
        entries_of(await records.get("pv-0"))


async def test_a_file_of_a_newer_version_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    await store.of("nodes").create("one", {})
    await store.close()
    connection = sqlite3.connect(tmp_path / "new" / "records.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    later = SqliteStore(tmp_path / "new" / "records.db", FakeClock())
    with pytest.raises(InvalidConfig, match="format 99"):
        await later.of("nodes").get("one")
    await later.close()


async def test_a_lock_that_is_held_too_long_is_unavailable(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "new" / "records.db", FakeClock(), busy_seconds=0.01)
    await store.of("nodes").create("one", {})
    other = sqlite3.connect(tmp_path / "new" / "records.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        await store.of("nodes").create("two", {})
    assert (await store.of("nodes").get("one")).value == {}
    other.execute("ROLLBACK")
    other.close()
    await store.of("nodes").create("two", {})
    await store.close()


async def test_a_file_has_an_identity_until_it_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.db"
    found = []
    for _ in range(2):
        store = SqliteStore(path, FakeClock())
        found.append(await store.identity())
        await store.close()
    assert found[0] == found[1]
    path.unlink()
    store = SqliteStore(path, FakeClock())
    assert await store.identity() != found[0]
    await store.close()


async def test_a_cancelled_write_leaves_a_record_that_can_be_read(store: SqliteStore) -> None:
    records = store.of("nodes")
    first = await records.create("one", {"n": 0})
    task = asyncio.create_task(
        records.replace("one", {"n": 1}, expected_version=first.version), name="replace"
    )
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found = await records.get("one")
    if found.value == {"n": 1}:
        with pytest.raises(Conflict):
            await records.replace("one", {"n": 2}, expected_version=first.version)


async def test_a_watch_sees_a_file_that_takes_the_place_of_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.db"
    one, other = [SqliteStore(path, FakeClock(auto_advance=True), sets_aside=True) for _ in range(2)]
    await one.of("nodes").create("one", {})
    async with aclosing(one.of("nodes").watch()) as watch, asyncio.timeout(60):
        assert [type(await anext(watch)) for _ in range(2)] == [RecordPut, RecordsSynced]
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            file.write(b"no database " * 1000)
        await other.of("nodes").create("two", {"a": 1})
        assert await anext(watch) == RecordGone("one")
        event = await anext(watch)
        assert isinstance(event, RecordPut)
        assert event.record.name == "two"
    await one.close()
    await other.close()


async def test_a_watch_sees_a_write_whose_caller_was_cancelled(store: SqliteStore) -> None:
    records = store.of("nodes")
    async with aclosing(records.watch()) as watch, asyncio.timeout(60):
        assert await anext(watch) == RecordsSynced()
        task = asyncio.create_task(records.create("one", {"a": 1}), name="create")
        await asyncio.sleep(0)
        task.cancel()
        assert isinstance(await anext(watch), RecordPut)
