"""Journals on disk: round trips, damaged files, and crashes between two writes."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.agent.journal import Content, Mark, Use
from kubeletx_flexvolume.agent.progress import recovered
from kubeletx_flexvolume.agent.stored import JournalFiles
from kubeletx_flexvolume.backends.backend import AttachedSource, SourceType
from kubeletx_flexvolume.values import file_stem

from kubeletx.api import Unavailable
from plugins.flexvolume.tests.agent.agent_model import BOOT, holder, journal, volume

SOURCE = AttachedSource(type=SourceType.DEVICE, source="/dev/loop0")


@pytest.fixture
def store(tmp_path: Path) -> JournalFiles:
    (tmp_path / "volumes").mkdir()
    return JournalFiles(tmp_path / "volumes")


def test_a_journal_is_read_as_it_was_written(store: JournalFiles, tmp_path: Path) -> None:
    uses = (Use(holder=holder(), taken=Mark.YES, bound=Mark.MAY), Use(holder=holder("u2"), is_wanted=False))
    one = journal(uses=uses, attached=Mark.YES, source=SOURCE, content=Content.FORMATTING, is_forced=True)
    store.put(one)
    store.put(msgspec.structs.replace(journal(), volume=volume("a")))
    assert [each.volume.name for each in store.load_all()] == ["a", "pv-1"]
    assert store.load_all()[1] == one
    assert stat.S_IMODE((tmp_path / "volumes" / "pv-1.json").stat().st_mode) == 0o600
    store.remove("pv-1")
    store.remove("pv-1")
    assert [each.volume.name for each in store.load_all()] == ["a"]


@given(st.text("abcdefgh.-", min_size=1, max_size=253))
def test_every_name_has_a_file_name_of_its_own(name: str) -> None:
    assert len(file_stem(name)) <= 200
    assert "/" not in file_stem(name)
    assert file_stem(name) != file_stem(name[:-1] + "z")


@pytest.mark.parametrize(
    "text",
    ['{"volume":', msgspec.json.encode(msgspec.structs.replace(journal(), volume=volume("b"))).decode()],
)
def test_a_damaged_or_renamed_journal_is_set_aside(store: JournalFiles, tmp_path: Path, text: str) -> None:
    path = tmp_path / "volumes" / "pv-1.json"
    path.write_text(text)
    assert store.load_all() == ()
    assert path.with_name("pv-1.json.damaged").read_text() == text


def test_a_journal_of_a_newer_agent_stops_the_start(store: JournalFiles, tmp_path: Path) -> None:
    store.put(msgspec.structs.replace(journal(), version=9))
    with pytest.raises(
        Unavailable, match=r"pv-1\.json has version 9, and this program reads versions up to 1"
    ):
        store.load_all()
    assert (tmp_path / "volumes" / "pv-1.json").exists()


OF_0_1 = (
    '{"volume":{"name":"pv-1","backend":"model","image":"pv-1"},"bootId":"boot-1","kubeletRoot":"/kubelet",'
    '"globalDir":"/kubelet/plugins/kubeletx.io/storage/mounts/pv-1","attached":"yes",'
    '"source":{"type":"device","source":"/dev/loop0","fs_type":"","mount_options":[]},"content":"formatting",'
    '"uses":[{"holder":{"node":"node-a","bootID":"boot-1","podNamespace":"default","pod":"pod-u1","podUID":"u1",'
    '"mountDir":"/kubelet/pods/u1/volumes/kubeletx.io~storage/pv-1","readOnly":false,"device":"","since":"",'
    '"status":"Attaching","reason":"","images":[]},"taken":"yes","bound":"may"}]}'
)
"""A journal as version 0.1.0 has written it."""


def test_a_journal_of_the_first_version_is_read(store: JournalFiles, tmp_path: Path) -> None:
    (tmp_path / "volumes" / "pv-1.json").write_text(OF_0_1)
    use = Use(holder=holder(), taken=Mark.YES, bound=Mark.MAY)
    assert store.load_all() == (
        journal(uses=(use,), attached=Mark.YES, source=SOURCE, content=Content.FORMATTING),
    )


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
