from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.linux.inotify import (
    IN_CLOSE_WRITE,
    IN_DELETE_SELF,
    IN_IGNORED,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_Q_OVERFLOW,
    Inotify,
    InotifyEvent,
)


class Seen:
    def __init__(self) -> None:
        self.events: list[InotifyEvent] = []
        self.queue = Inotify(self.events.extend)

    async def wait(self, mask: int, name: str = "") -> InotifyEvent:
        async with asyncio.timeout(60):
            while True:
                for event in self.events:
                    if event.mask & mask and event.name == name:
                        return event
                await asyncio.sleep(0)


@pytest.fixture
async def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.queue.close()


async def test_changes_in_a_directory_are_reported_by_name(seen: Seen, tmp_path: Path) -> None:
    watch = seen.queue.watch_directory(str(tmp_path))
    (tmp_path / "a file").write_text("x")
    assert (await seen.wait(IN_CLOSE_WRITE, "a file")).watch == watch
    (tmp_path / "a file").rename(tmp_path / "ünï")
    await seen.wait(IN_MOVED_FROM, "a file")
    await seen.wait(IN_MOVED_TO, "ünï")
    (tmp_path / "\udcff").write_text("x")
    await seen.wait(IN_CLOSE_WRITE, "\udcff")


async def test_the_end_of_the_directory_itself_is_reported(seen: Seen, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    seen.queue.watch_directory(str(tmp_path / "sub"))
    (tmp_path / "sub").rmdir()
    await seen.wait(IN_DELETE_SELF)
    await seen.wait(IN_IGNORED)


async def test_watching_the_same_directory_twice_is_one_watch(seen: Seen, tmp_path: Path) -> None:
    assert seen.queue.watch_directory(str(tmp_path)) == seen.queue.watch_directory(f"{tmp_path}/")


async def test_what_is_not_a_directory_cannot_be_watched(seen: Seen, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError):
        seen.queue.watch_directory(str(tmp_path / "file"))
    with pytest.raises(FileNotFoundError):
        seen.queue.watch_directory(str(tmp_path / "missing"))


async def test_a_watch_can_be_given_back(seen: Seen, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    watch = seen.queue.watch_directory(str(tmp_path / "sub"))
    seen.queue.unwatch(watch)
    seen.queue.unwatch(watch)
    assert (await seen.wait(IN_IGNORED)).watch == watch


async def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    queue = Inotify(lambda events: None)
    queue.close()
    queue.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_an_overflow_is_recognised() -> None:
    assert InotifyEvent(-1, IN_Q_OVERFLOW, "").is_overflow
