"""Writes and results of a reclaim, its errors, and the limit of swap that it lifts."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kubeletx_quark import reclaim as module
from kubeletx_quark.reclaim import LEAST_BYTES, ROUNDS, Reclaimed, reclaim, restore_swap_limit

from kubeletx.api import Internal, KubeletxError, NotFound, PermissionDenied, Unsupported

V1 = {"memory.usage_in_bytes": "4096", "memory.force_empty": "-", "memory.stat": "rss 1\nswap 7\n"}
V2 = {"memory.current": "8192", "memory.reclaim": "-----", "memory.swap.current": "9"}
Write = Callable[[Path, str], None]


def cgroup(tmp_path: Path, files: dict[str, str]) -> Path:
    directory = tmp_path / "cgroup"
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def on_reclaim(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> list[str]:
    """Call `do` at each write to memory.reclaim or memory.force_empty; returns the list of these writes."""
    real: Write = module._write
    written: list[str] = []

    def write(file: Path, text: str) -> None:
        if file.name in ("memory.reclaim", "memory.force_empty"):
            written.append(text)
            do()
        else:
            real(file, text)

    monkeypatch.setattr(module, "_write", write)
    return written


def test_version_1_empties_and_version_2_reclaims_the_present_usage(tmp_path: Path) -> None:
    directory = cgroup(tmp_path, {**V1, **V2})
    assert reclaim(directory, 1, tmp_path / "note") == Reclaimed(before_bytes=4096, after_bytes=4096)
    assert (directory / "memory.force_empty").read_text() == "0"
    assert reclaim(directory, 2, tmp_path / "note") == Reclaimed(before_bytes=8192, after_bytes=8192)
    assert (directory / "memory.reclaim").read_text().startswith("8192")


def test_it_is_repeated_while_memory_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = cgroup(tmp_path, {**V2, "memory.current": str(3 * LEAST_BYTES)})
    left = [2 * LEAST_BYTES, LEAST_BYTES, LEAST_BYTES - 1, 0]

    def give_back() -> None:
        (directory / "memory.current").write_text(str(left.pop(0)))
        (directory / "memory.swap.current").write_text("109")

    written = on_reclaim(monkeypatch, give_back)
    reclaimed = reclaim(directory, 2, tmp_path / "note")
    assert written == [str(3 * LEAST_BYTES), str(2 * LEAST_BYTES), str(LEAST_BYTES)]
    assert reclaimed.freed_bytes == 2 * LEAST_BYTES + 1
    assert reclaimed.swapped_bytes == 100


def test_the_number_of_writes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = 1000 * LEAST_BYTES
    directory = cgroup(tmp_path, {**V2, "memory.current": str(left)})

    def give_back() -> None:
        nonlocal left
        left -= LEAST_BYTES
        (directory / "memory.current").write_text(str(left))

    assert len(on_reclaim(monkeypatch, give_back)) == 0
    reclaim(directory, 2, tmp_path / "note")
    assert left == (1000 - ROUNDS) * LEAST_BYTES


def test_growth_in_the_meantime_is_nothing_given_back() -> None:
    assert Reclaimed(before_bytes=10, after_bytes=12).freed_bytes == 0
    assert Reclaimed(before_bytes=12, after_bytes=10).freed_bytes == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_limit_of_swap_is_lifted_meanwhile_and_restored_also_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    directory, note = cgroup(tmp_path, {**V2, "memory.swap.max": "0\n\n\n"}), tmp_path / "notes" / "one"
    seen = []

    def look() -> None:
        seen.append(((directory / "memory.swap.max").read_text().strip(), note.read_text()))
        if fails:
            raise OSError(errno.EIO, "disk fault")

    on_reclaim(monkeypatch, look)
    if fails:
        with pytest.raises(Internal, match="disk fault"):
            reclaim(directory, 2, note)
    else:
        reclaim(directory, 2, note)
    assert seen == [("max", "0")]
    assert (directory / "memory.swap.max").read_text().split() == ["0ax"], "files of a test keep their tails"
    assert not note.exists()


def test_a_limit_that_an_earlier_agent_lifted_is_the_one_that_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, note = cgroup(tmp_path, {**V2, "memory.swap.max": "max"}), tmp_path / "notes" / "one"
    note.parent.mkdir()
    note.write_text("512")
    seen: list[str] = []
    on_reclaim(monkeypatch, lambda: seen.append(note.read_text()))
    reclaim(directory, 2, note)
    assert seen == ["512"]
    assert ((directory / "memory.swap.max").read_text(), note.exists()) == ("512", False)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_stopped_reclaim_begins_no_further_write_and_restores_the_limit_of_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    files = {**V2, "memory.current": str(9 * LEAST_BYTES), "memory.swap.max": "0\n\n\n"}
    directory, note, stop = cgroup(tmp_path, files), tmp_path / "notes" / "one", threading.Event()

    def give_back() -> None:
        (directory / "memory.current").write_text(str(LEAST_BYTES))
        stop.set()

    if not is_late:
        stop.set()
    written = on_reclaim(monkeypatch, give_back)
    reclaim(directory, 2, note, stop)
    assert len(written) == int(is_late)
    assert (directory / "memory.swap.max").read_text().startswith("0")
    assert not note.exists()


def test_a_limit_that_a_killed_agent_lifted_is_restored(tmp_path: Path) -> None:
    directory, note = cgroup(tmp_path, {"memory.swap.max": "max"}), tmp_path / "note"
    restore_swap_limit(directory, note)
    assert (directory / "memory.swap.max").read_text() == "max"
    note.write_text("4096")
    restore_swap_limit(directory, note)
    assert (directory / "memory.swap.max").read_text() == "4096"
    assert not note.exists()
    note.write_text("4096")
    restore_swap_limit(tmp_path / "gone", note)
    assert not note.exists()


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [
        (errno.EPERM, PermissionDenied, "the agent must be root"),
        (errno.EACCES, PermissionDenied, "the agent must be root"),
        (errno.ENODEV, NotFound, "is gone"),
        (errno.ENOENT, Unsupported, "does not exist on this node"),
        (errno.EIO, Internal, "memory cannot be reclaimed from"),
    ],
)
def test_each_error_is_one_clear_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[KubeletxError],
    message: str,
) -> None:
    def fail() -> None:
        raise OSError(number, "text", "memory.reclaim")

    on_reclaim(monkeypatch, fail)
    with pytest.raises(error, match=message):
        reclaim(cgroup(tmp_path, V2), 2, tmp_path / "note")


def test_a_kernel_without_the_file_and_a_cgroup_that_is_gone_are_distinguished(tmp_path: Path) -> None:
    directory = cgroup(tmp_path, {"memory.current": "8192"})
    with pytest.raises(Unsupported, match=r"memory.reclaim does not exist on this node"):
        reclaim(directory, 2, tmp_path / "note")
    assert not (directory / "memory.reclaim").exists()
    with pytest.raises(NotFound, match="is gone"):
        reclaim(tmp_path / "gone", 2, tmp_path / "note")
