"""Freezing where files are missing, forbidden or vanish: one reason each, and the processes run again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from kubeletx_quark.freezer import Freezer, FreezerState

from kubeletx.api import Clock, Conflict, Internal, KubeletxError, NotFound, PermissionDenied, Unsupported
from kubeletx.testing import FakeClock

FILES = {1: ("freezer.state",), 2: ("cgroup.freeze", "cgroup.events")}
WORDS = {1: ("THAWED", "FROZEN"), 2: ("0", "1")}


def freezer(tmp_path: Path, version: int, text: str) -> Freezer:
    """A directory like a cgroup, whose files do not answer to what is written."""
    directory = tmp_path / "cgroup"
    directory.mkdir()
    for name in FILES[version]:
        (directory / name).write_text(text)
    return Freezer(directory, version)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_missing_file_is_named_and_none_is_made(tmp_path: Path, version: int) -> None:
    with pytest.raises(Unsupported, match=rf"{FILES[version][0]} does not exist"):
        await Freezer(tmp_path, version).freeze(FakeClock())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("error", "wanted", "message"),
    [
        (PermissionError(1, "Operation not permitted"), PermissionDenied, "the agent must be root"),
        (OSError(5, "Input/output error"), Internal, "cannot access .*: Input/output error"),
        (OSError(19, "No such device"), NotFound, "is gone"),
    ],
)
async def test_a_write_that_fails_is_one_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    error: OSError,
    wanted: type[KubeletxError],
    message: str,
) -> None:
    frozen = freezer(tmp_path, version, WORDS[version][0])

    def refuse(*_: Any) -> int:
        raise error

    monkeypatch.setattr(os, "open", refuse)  # as files of a cgroup do, and no others
    for change in (frozen.freeze, frozen.thaw):
        with pytest.raises(wanted, match=message):
            await change(FakeClock())
    assert (frozen.directory / FILES[version][0]).read_text() == WORDS[version][0]


class Removing(FakeClock):
    """A clock at whose first sleep a directory vanishes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(auto_advance=True)
        self._directory = directory

    async def sleep(self, seconds: float) -> None:
        for one in self._directory.iterdir():
            one.unlink()
        self._directory.rmdir()
        await super().sleep(seconds)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_cgroup_that_vanishes_while_it_freezes_is_gone(tmp_path: Path, version: int) -> None:
    freezing = OnceFreezing(freezer(tmp_path, version, "").directory, version)
    with pytest.raises(NotFound, match="is gone"):
        await freezing.freeze(Removing(freezing.directory))


class OnceFreezing(Freezer):
    """A freezer whose cgroup is freezing until it is gone."""

    def state(self) -> FreezerState:
        return FreezerState.FREEZING if self.directory.is_dir() else FreezerState.GONE


@pytest.mark.parametrize("version", [1, 2])
async def test_a_freeze_that_takes_too_long_is_undone(tmp_path: Path, version: int) -> None:
    freezing = OnceFreezing(freezer(tmp_path, version, "").directory, version)
    clock: Clock = FakeClock(auto_advance=True)
    with pytest.raises(
        Conflict, match=r"not frozen after 5 s, runs again: no thread is in uninterruptible sleep"
    ):
        await freezing.freeze(clock)
    assert (freezing.directory / FILES[version][0]).read_text().startswith(WORDS[version][0])


class Obedient(Freezer):
    """A freezer that is freezing for good once it is asked to."""

    def state(self) -> FreezerState:
        is_asked = self._file.read_text().startswith(("FROZEN", "1"))
        return FreezerState.FREEZING if is_asked else FreezerState.THAWED


@pytest.mark.parametrize("version", [1, 2])
async def test_a_thaw_during_a_freeze_is_not_undone(tmp_path: Path, version: int) -> None:
    obedient = Obedient(freezer(tmp_path, version, WORDS[version][0]).directory, version)
    clock = FakeClock()
    freeze = asyncio.create_task(obedient.freeze(clock), name="freeze")
    await asyncio.sleep(0)
    assert obedient.state() is FreezerState.FREEZING
    await obedient.thaw(clock)
    clock.advance(1)
    with pytest.raises(Conflict, match="thawed by another call or program"):
        await asyncio.wait_for(freeze, 5)
    assert obedient.state() is FreezerState.THAWED
