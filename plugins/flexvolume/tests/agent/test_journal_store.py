"""Journals on disk: round trips, damaged files, and crashes between two writes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubeletx_flexvolume.agent.journal import Content, Mark, Use
from kubeletx_flexvolume.agent.journal_store import JournalStore
from kubeletx_flexvolume.agent.progress import recovered
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.files import file_stem, private_directory, replace_file

from plugins.flexvolume.tests.agent.agent_model import BOOT, holder, journal, volume

SOURCE = AttachedSource(type=SourceType.DEVICE, source="/dev/loop0")


@pytest.fixture
def store(tmp_path: Path) -> JournalStore:
    one = JournalStore(tmp_path / "volumes")
    one.open()
    return one


def test_a_journal_is_read_as_it_was_written(store: JournalStore, tmp_path: Path) -> None:
    uses = (Use(holder=holder(), taken=Mark.YES, bound=Mark.MAY), Use(holder=holder("u2"), is_wanted=False))
    one = journal(uses=uses, attached=Mark.YES, source=SOURCE, content=Content.FORMATTING, is_forced=True)
    store.write(one)
    store.write(msgspec.structs.replace(journal(), volume=volume("a")))
    assert [each.volume.name for each in store.load()] == ["a", "pv-1"]
    assert store.load()[1] == one
    assert stat.S_IMODE((tmp_path / "volumes" / "pv-1.json").stat().st_mode) == 0o600
    store.remove("pv-1")
    store.remove("pv-1")
    assert [each.volume.name for each in store.load()] == ["a"]


@given(st.text("abcdefgh.-", min_size=1, max_size=253))
def test_every_name_has_a_file_name_of_its_own(name: str) -> None:
    assert len(file_stem(name)) <= 200
    assert "/" not in file_stem(name)
    assert file_stem(name) != file_stem(name[:-1] + "z")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.integers(0, 200))
def test_a_damaged_journal_is_set_aside(store: JournalStore, tmp_path: Path, junk: bytes, cut: int) -> None:
    text = msgspec.json.encode(journal())
    path = tmp_path / "volumes" / "pv-1.json"
    path.write_bytes(text[:cut] + junk)
    loaded = store.load()
    if loaded:
        assert loaded == (msgspec.json.decode(path.read_bytes(), type=type(journal())),)
    else:
        assert not path.exists()
        assert path.with_name("pv-1.json.damaged").read_bytes() == text[:cut] + junk


@pytest.mark.parametrize("changes", [{"version": 9}, {"volume": volume("another")}])
def test_a_journal_of_another_version_or_name_is_set_aside(
    store: JournalStore, tmp_path: Path, changes: dict[str, object]
) -> None:
    one = msgspec.structs.replace(journal(), **changes)
    (tmp_path / "volumes" / "pv-1.json").write_bytes(msgspec.json.encode(one))
    assert store.load() == ()


def test_a_replaced_file_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new" * 1000)
    assert path.read_bytes() == b"old"


def test_a_private_directory_is_private_from_the_first_moment(tmp_path: Path) -> None:
    os.umask(os.umask(0o000))
    made = private_directory(tmp_path / "a" / "b")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    made.chmod(0o777)
    assert stat.S_IMODE(private_directory(made).stat().st_mode) == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        private_directory(tmp_path / "file")


# --- recovery ---

MOUNTED = Use(holder=holder(), is_mounted=True, taken=Mark.YES, bound=Mark.YES)


def test_a_completed_mount_that_still_exists_stays() -> None:
    one = journal(uses=(MOUNTED,), attached=Mark.YES, source=SOURCE, mounted=Mark.YES)
    assert recovered(one, BOOT, frozenset({MOUNTED.holder.mount_dir})) == one


def test_a_completed_mount_that_is_gone_leaves() -> None:
    one = journal(uses=(MOUNTED,), attached=Mark.YES, source=SOURCE, mounted=Mark.YES)
    assert recovered(one, BOOT, frozenset()).staying == ()


def test_an_unfinished_mount_leaves_and_its_neighbour_stays() -> None:
    other = Use(holder=holder("u2"), taken=Mark.MAY, bound=Mark.MAY)
    mounted_on = frozenset({MOUNTED.holder.mount_dir, other.holder.mount_dir})
    found = recovered(journal(uses=(MOUNTED, other)), BOOT, mounted_on)
    assert [use.holder.pod_uid for use in found.staying] == ["u1"]


def test_after_a_reboot_no_mount_is_left_and_everything_leaves() -> None:
    one = journal(
        uses=(MOUNTED,), attached=Mark.YES, source=SOURCE, mounted=Mark.YES, content=Content.FORMATTING
    )
    found = recovered(one, "boot-2", frozenset({MOUNTED.holder.mount_dir}))
    assert (found.mounted, found.uses[0].bound, found.staying) == (Mark.NO, Mark.NO, ())
    assert (found.attached, found.content, found.boot_id) == (Mark.YES, Content.UNKNOWN, "boot-2")
    assert found.uses[0].holder.boot_id == BOOT


def test_a_write_that_fails_leaves_no_file(
    store: JournalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.write(journal())
    assert list((tmp_path / "volumes").iterdir()) == []


def test_a_half_written_file_of_a_former_run_is_removed(store: JournalStore, tmp_path: Path) -> None:
    store.write(journal())
    (tmp_path / "volumes" / ".pv-2.json.tmp").write_text("{")
    assert [one.volume.name for one in store.load()] == ["pv-1"]
    assert [one.name for one in (tmp_path / "volumes").iterdir()] == ["pv-1.json"]


def test_each_replaced_file_is_on_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss, a former journal would lack the mark of a format that was begun."""
    flushed = list[str]()
    monkeypatch.setattr(os, "fsync", lambda one: flushed.append(os.readlink(f"/proc/self/fd/{one}")))
    for number in (b"1", b"2"):
        replace_file(tmp_path / "one", number)
    assert flushed == [f"{tmp_path}/.one.tmp", str(tmp_path)] * 2
