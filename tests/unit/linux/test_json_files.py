"""`JsonFiles` against a dictionary: random changes, restarts, damage and files of newer versions."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kubeletx.api import Unavailable
from kubeletx.linux.json_files import JsonFiles, read_json

VERSION = 2
NAMES = st.sampled_from(["a", "b", "a.b", "C-1"])
DAMAGE = st.sampled_from(
    [b"", b"{", b"[]", b"\xff\xfe", b'{"version": "x"}', b'{"name": 5}', b'{"version": 1}']
)


class Item(msgspec.Struct, frozen=True):
    name: str
    number: int = 0
    version: int = VERSION


class FilesMachine(RuleBasedStateMachine):
    """`values`: what must be there. `newer`: names whose file is of a newer version."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp()) / "items"
        self.values: dict[str, Item] = {}
        self.newer: set[str] = set()

    @initialize()
    def open(self) -> None:
        self.files = JsonFiles(
            self.directory,
            Item,
            version=VERSION,
            name=lambda item: item.name,
            without=": the item is then made again",
        )
        self.files.load()

    @rule(name=NAMES, number=st.integers(-5, 5), version=st.integers(0, VERSION))
    def put(self, name: str, number: int, version: int) -> None:
        self.values[name] = Item(name, number, version)
        self.newer.discard(name)
        self.files.put(self.values[name])

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        assert self.files.remove(name) == (name in self.values or name in self.newer)
        self.values.pop(name, None)
        self.newer.discard(name)

    @rule(name=NAMES, data=DAMAGE)
    def damage(self, name: str, data: bytes) -> None:
        self.files.path(name).write_bytes(data)
        self.values.pop(name, None)
        self.newer.discard(name)
        assert self.files.read(name) is None
        assert self.files.path(name).with_suffix(".json.damaged").read_bytes() == data

    @rule(name=NAMES, other=NAMES)
    def copy(self, name: str, other: str) -> None:
        """A copy under another name is damaged: two objects would be one."""
        if name in self.values and name != other:
            shutil.copy(self.files.path(name), self.files.path(other))
            self.values.pop(other, None)
            self.newer.discard(other)
            assert self.files.read(other) is None

    @rule(name=NAMES)
    def upgrade(self, name: str) -> None:
        self.files.path(name).write_bytes(b'{"version": 3, "unknown": 1}')
        self.values.pop(name, None)
        self.newer.add(name)

    @rule(name=NAMES)
    def interrupt(self, name: str) -> None:
        (self.directory / f".{name}.json.new").write_bytes(b"{")

    @invariant()
    def everything_is_found_again(self) -> None:
        values, problems = self.files.load()
        assert values == self.values
        assert list(values) == sorted(values)
        assert set(problems) == self.newer
        for error in problems.values():
            assert "has version 3, and this program reads versions up to 2; install" in str(error)
            assert str(error).endswith("or remove the file: the item is then made again")
        assert not list(self.directory.glob(".*"))

    def teardown(self) -> None:
        shutil.rmtree(self.directory.parent)


TestJsonFiles = FilesMachine.TestCase
TestJsonFiles.settings = settings(max_examples=30, stateful_step_count=20)


def test_an_unreadable_file_is_kept_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file" / "a.json"
    path.parent.touch()  # ENOTDIR, also for root
    with pytest.raises(Unavailable, match="cannot be read: Not a directory; it is tried again"):
        read_json(path, Item, VERSION)
    path.parent.unlink()
    assert read_json(path, Item, VERSION) is None


def test_a_directory_in_the_place_of_a_file_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    assert read_json(tmp_path / "a.json", Item, VERSION) is None
    assert (tmp_path / "a.json.damaged").is_dir()
