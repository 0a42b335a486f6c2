"""The contract suite of `kubeletx.api.Records`: records with versions, wherever they are stored."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kubeletx.api import (
    AlreadyExists,
    Conflict,
    InvalidConfig,
    KubeletxError,
    NotFound,
    Record,
    RecordEvent,
    RecordGone,
    RecordPut,
    Records,
    RecordsSynced,
)

from .calls import CheckedObject, PluginCalls, PluginFault, short
from .shared import Maker, NewObject, SuiteBase

PATIENCE_SECONDS = 60.0
VALUE: dict[str, Any] = {
    "node": "one",
    "count": 3,
    "ratio": 0.25,
    "large": 2**62,
    "is_on": False,
    "empty": {},
    "list": [1, "two", [3], {"four": ""}],
    "text": "ä\n\u0000\U0001f600",
}


class Attachment(msgspec.Struct, frozen=True):
    """Example of a Struct that is stored as the value of a record."""

    node: str
    count: int = 0


class RecordsContract(SuiteBase):
    """Tests that every implementation of `kubeletx.api.Records` must pass.

    Subclass it and define the fixture `open_records`.
    """

    races = 1000
    """Number of races between two writers: in half of them both create a record, in half both replace one."""
    at_once = 16

    @pytest.fixture
    def open_records(self) -> Callable[[], Records]:
        """Function that returns a new `Records` object at each call. You must override this.

        All these objects must store the same records. At the start of a test there are no records.
        """
        # A fixture cannot be abstract: pytest would leave a class with one uncollected and say nothing.
        raise NotImplementedError("override the fixture open_records in your subclass of RecordsContract")

    @pytest.fixture
    def new_records(self, open_records: Callable[[], Records], maker: Maker) -> NewObject[Records]:
        """The function of `open_records`; calls of its objects have time limits."""
        return maker.of(open_records, Records, CheckedRecords)

    @pytest_asyncio.fixture
    async def records(self, new_records: NewObject[Records]) -> Records:
        """One `Records` object under test."""
        return new_records()

    # --- one writer ---

    async def test_a_record_comes_back_as_it_was_written(self, records: Records) -> None:
        made = await records.create("one", VALUE)
        assert (made.name, made.value) == ("one", VALUE)
        assert made.version
        assert await records.get("one") == made

    async def test_a_value_has_the_type_that_its_reader_asks_for(self, records: Records) -> None:
        made = await records.create("one", msgspec.to_builtins(Attachment("a", 2)))
        assert made.as_type(Attachment) == Attachment("a", 2)

    async def test_a_name_is_taken_once(self, records: Records) -> None:
        await records.create("one", {"a": 1})
        with pytest.raises(AlreadyExists):
            await records.create("one", {"a": 2})
        assert (await records.get("one")).value == {"a": 1}

    async def test_what_does_not_exist_is_not_found(self, records: Records) -> None:
        with pytest.raises(NotFound):
            await records.get("none")
        made = await records.create("gone", {})
        await records.delete("gone", expected_version=made.version)
        with pytest.raises(NotFound):
            await records.get("gone")
        with pytest.raises(NotFound):
            await records.replace("gone", {}, expected_version=made.version)
        with pytest.raises(NotFound):
            await records.delete("gone", expected_version=made.version)

    async def test_a_replacement_has_another_version(self, records: Records) -> None:
        first = await records.create("one", {"a": 1, "b": {"c": 2}})
        second = await records.replace("one", {"b": {"d": 3}}, expected_version=first.version)
        assert second.value == {"b": {"d": 3}}
        assert second.version != first.version
        assert await records.get("one") == second

    async def test_an_equal_value_changes_nothing(self, records: Records) -> None:
        first = await records.create("one", {"a": 1})
        assert await records.replace("one", {"a": 1}, expected_version=first.version) == first

    async def test_an_old_version_is_a_conflict(self, records: Records) -> None:
        first = await records.create("one", {"a": 1})
        second = await records.replace("one", {"a": 2}, expected_version=first.version)
        for version in (first.version, "never-given-out", ""):
            with pytest.raises(Conflict):
                await records.replace("one", {"a": 3}, expected_version=version)
            with pytest.raises(Conflict):
                await records.delete("one", expected_version=version)
        assert await records.get("one") == second

    async def test_a_version_is_not_used_again(self, records: Records) -> None:
        first = await records.create("one", {"a": 1})
        await records.delete("one", expected_version=first.version)
        await records.create("one", {"a": 1})
        with pytest.raises(Conflict):
            await records.replace("one", {"a": 2}, expected_version=first.version)

    @pytest.mark.parametrize(
        "name", ["", "Upper", "under_score", "-a", "a-", "a..b", "a/b", "a b", "ä", "x" * 254]
    )
    async def test_other_names_are_refused(self, records: Records, name: str) -> None:
        with pytest.raises(InvalidConfig):
            await records.create(name, {})
        with pytest.raises(InvalidConfig):
            await records.get(name)
        with pytest.raises(InvalidConfig):
            await records.replace(name, {}, expected_version="1")
        with pytest.raises(InvalidConfig):
            await records.delete(name, expected_version="1")

    async def test_long_names_are_names(self, records: Records) -> None:
        name = ".".join(["a-1" * 20] * 4)
        await records.create(name, {})
        assert (await records.get(name)).name == name

    @pytest.mark.parametrize(
        "value",
        [
            {"a": None},
            {"a": [{"b": None}]},
            {"a": math.nan},
            {"a": math.inf},
            {"a": 2**63},
            {"a": {1}},
            {"a": b""},
            {1: "a"},
            {"a": "\ud800"},
            ["a"],
            {"a": "x" * 300_000},
        ],
        ids=lambda value: f"{value!r:.20}",
    )
    async def test_other_values_are_refused(self, records: Records, value: Any) -> None:
        with pytest.raises(InvalidConfig):
            await records.create("one", value)
        with pytest.raises(NotFound):
            await records.get("one")

    # --- lists ---

    async def test_pages_hold_every_record_once_in_order(self, records: Records) -> None:
        names = sorted(f"r{number}" for number in range(25))
        for name in reversed(names):
            await records.create(name, {"name": name})
        pages = [await records.list_page(limit=10)]
        while pages[-1].next_token:
            pages.append(await records.list_page(token=pages[-1].next_token, limit=10))
        listed = [record for page in pages for record in page.records]
        assert [record.name for record in listed] == names
        assert all(record.value == {"name": record.name} for record in listed)
        assert all(len(page.records) <= 10 for page in pages)
        assert listed[0] == await records.get(names[0])

    async def test_no_records_are_one_empty_page(self, records: Records) -> None:
        page = await records.list_page()
        assert (page.records, page.next_token) == ((), "")

    async def test_a_record_that_stays_is_listed_while_others_come_and_go(self, records: Records) -> None:
        made = [await records.create(f"r{number}", {}) for number in range(6)]
        first = await records.list_page(limit=2)
        await records.delete("r1", expected_version=made[1].version)
        await records.delete("r2", expected_version=made[2].version)
        await records.create("r0a", {})
        rest = await records.list_page(token=first.next_token, limit=100)
        names = [record.name for page in (first, rest) for record in page.records]
        assert {"r0", "r3", "r4", "r5"} <= set(names)
        assert len(names) == len(set(names))

    # --- several writers ---

    async def test_writers_see_each_other(self, new_records: NewObject[Records]) -> None:
        one, other = new_records(), new_records()
        made = await one.create("one", {"a": 1})
        assert await other.get("one") == made
        changed = await other.replace("one", {"a": 2}, expected_version=made.version)
        assert await one.get("one") == changed

    async def test_of_two_that_create_one_wins(self, new_records: NewObject[Records]) -> None:
        writers = new_records(), new_records()

        async def race(number: int) -> None:
            name = f"r{number}"
            ends = await _both(
                lambda: writers[0].create(name, {"by": 0}), lambda: writers[1].create(name, {"by": 1})
            )
            won = _winner(ends, AlreadyExists)
            assert (await writers[0].get(name)).value == {"by": won}

        await self._many(self.races // 2, race)

    async def test_of_two_that_replace_one_wins(self, new_records: NewObject[Records]) -> None:
        writers = new_records(), new_records()

        async def race(number: int) -> None:
            name = f"r{number}"
            version = (await writers[0].create(name, {})).version
            ends = await _both(
                lambda: writers[0].replace(name, {"by": 0}, expected_version=version),
                lambda: writers[1].replace(name, {"by": 1}, expected_version=version),
            )
            won = _winner(ends, Conflict)
            assert (await writers[0].get(name)).value == {"by": won}

        await self._many(self.races // 2, race)

    async def test_of_a_replacement_and_a_deletion_one_wins(self, new_records: NewObject[Records]) -> None:
        one, other = new_records(), new_records()

        async def race(number: int) -> None:
            name = f"r{number}"
            version = (await one.create(name, {})).version
            ends = await _both(
                lambda: one.replace(name, {"a": 1}, expected_version=version),
                lambda: other.delete(name, expected_version=version),
            )
            if _winner(ends, (Conflict, NotFound)) == 0:
                assert (await one.get(name)).value == {"a": 1}
            else:
                with pytest.raises(NotFound):
                    await one.get(name)

        await self._many(100, race)

    async def test_counting_together_loses_no_step(self, new_records: NewObject[Records]) -> None:
        """Read, compute and write, and repeat that after a Conflict: this is the intended use of records."""
        await new_records().create("sum", {"n": 0})

        async def count(records: Records) -> None:
            for _ in range(20):
                while True:
                    record = await records.get("sum")
                    try:
                        changed = {"n": record.value["n"] + 1}
                        await records.replace("sum", changed, expected_version=record.version)
                        break
                    except Conflict:
                        continue

        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(count(new_records()) for _ in range(4)))
        assert (await new_records().get("sum")).value == {"n": 80}

    async def _many(self, count: int, race: Callable[[int], Awaitable[None]]) -> None:
        numbers = itertools.count()

        async def run() -> None:
            while (number := next(numbers)) < count:
                await race(number)

        await asyncio.gather(*(run() for _ in range(self.at_once)))

    # --- watches ---

    async def test_a_watch_begins_with_what_exists(self, records: Records) -> None:
        made = [await records.create(name, {"a": name}) for name in ("one", "two")]
        async with aclosing(records.watch()) as watch:
            events = await _until(watch, RecordsSynced)
        assert sorted(event.record.name for event in events if isinstance(event, RecordPut)) == ["one", "two"]
        assert all(event.record in made for event in events if isinstance(event, RecordPut))

    async def test_a_watch_tells_changes_of_every_writer(self, new_records: NewObject[Records]) -> None:
        records, other = new_records(), new_records()
        async with aclosing(records.watch()) as watch:
            assert await _until(watch, RecordsSynced) == [RecordsSynced()]
            made = await other.create("one", {"a": 1})
            assert await _next(watch) == RecordPut(made)
            changed = await records.replace("one", {"a": 2}, expected_version=made.version)
            assert await _next(watch) == RecordPut(changed)
            await other.delete("one", expected_version=changed.version)
            assert await _next(watch) == RecordGone("one")

    async def test_a_watch_ends_with_the_present_state(self, new_records: NewObject[Records]) -> None:
        """A watch may leave out intermediate states, but not the last state of each name."""
        records, other = new_records(), new_records()
        known: dict[str, Record] = {}
        async with aclosing(records.watch()) as watch:
            await _until(watch, RecordsSynced)
            for number in range(60):
                name = f"r{number % 7}"
                try:
                    found = await other.get(name)
                except NotFound:
                    await other.create(name, {"n": number})
                    continue
                if number % 3:
                    await other.replace(name, {"n": number}, expected_version=found.version)
                else:
                    await other.delete(name, expected_version=found.version)
            last = await other.create("z-last", {})
            while known.get("z-last") != last:
                match await _next(watch):
                    case RecordPut(record):
                        known[record.name] = record
                    case RecordGone(name):
                        del known[name]
                    case RecordsSynced():
                        raise AssertionError("a watch is synced once")
            present = {record.name: record for record in (await other.list_page()).records}
            while known != present:
                match await _next(watch):
                    case RecordPut(record):
                        known[record.name] = record
                    case RecordGone(name):
                        del known[name]

    async def test_a_watch_that_was_left_hears_nothing(self, records: Records) -> None:
        watch = records.watch()
        await _until(watch, RecordsSynced)
        await watch.aclose()
        await records.create("one", {})
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    async def test_two_watches_hear_the_same(self, records: Records) -> None:
        async with aclosing(records.watch()) as one, aclosing(records.watch()) as other:
            await _until(one, RecordsSynced)
            await _until(other, RecordsSynced)
            made = await records.create("one", {})
            assert await _next(one) == await _next(other) == RecordPut(made)


class CheckedRecords(CheckedObject):
    """A checked `Records` object; each step of its watches has the time limit of a call."""

    def watch(self) -> CheckedWatch:
        """Start a watch."""
        return CheckedWatch(self.calls.call("watch", self.plugin.watch, (), {}), self.calls)


class CheckedWatch:
    """A watch whose steps have time limits."""

    def __init__(self, watch: Any, calls: PluginCalls) -> None:
        """`watch`: the asynchronous generator of the implementation."""
        if not (hasattr(watch, "__anext__") and hasattr(watch, "aclose")):
            raise PluginFault(
                f"watch returned {short(watch)}; write it as an asynchronous generator, with `yield`"
            )
        self._watch = watch
        self._calls = calls

    async def __anext__(self) -> RecordEvent:
        """Return the next event."""
        event: RecordEvent = await self._calls.limited("watch", self._watch.__anext__)
        return event

    async def aclose(self) -> None:
        """End the watch."""
        await self._calls.limited("watch", self._watch.aclose)


async def _next(watch: AsyncGenerator[RecordEvent, None]) -> RecordEvent:
    return await anext(watch)


async def _until(watch: AsyncGenerator[RecordEvent, None], kind: type[RecordEvent]) -> list[RecordEvent]:
    """Return the events of a watch up to and including the first of class `kind`."""
    events = [await _next(watch)]
    while not isinstance(events[-1], kind):
        events.append(await _next(watch))
    return events


async def _both(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*(call() for call in calls), return_exceptions=True)


def _winner(ends: list[Any], refusal: type[KubeletxError] | tuple[type[KubeletxError], ...]) -> int:
    """Return the index of the call that succeeded. `ends`: the result or exception of each call.

    Fails the test unless exactly one call succeeded and the others raised `refusal`.
    """
    won = [at for at, end in enumerate(ends) if not isinstance(end, BaseException)]
    lost = [end for end in ends if isinstance(end, BaseException)]
    assert len(won) == 1, ends
    assert all(isinstance(end, refusal) for end in lost), lost
    return won[0]
