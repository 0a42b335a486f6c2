from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.static.last_good import LastGoodManifests


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal"


def test_the_last_text_of_each_manifest_is_found_after_a_restart(path: Path) -> None:
    first = LastGoodManifests(path.parent)
    first.save("a", b"one", 1)
    first.save("b", "zwölf\n".encode(), 1)
    first.save("a", b"two", 2)
    first.close()
    second = LastGoodManifests(path.parent)
    assert second.find("a") == b"two"
    assert second.find("b") == "zwölf\n".encode()
    assert second.find("c") is None
    second.close()


def test_what_is_forgotten_stays_forgotten(path: Path) -> None:
    memory = LastGoodManifests(path.parent)
    memory.save("a", b"one", 1)
    memory.forget("a")
    memory.close()
    assert memory.find("a") is None
    memory.close()


def test_the_same_text_is_written_once(path: Path) -> None:
    memory = LastGoodManifests(path.parent)
    memory.save("a", b"one", 1)
    size = path.stat().st_size
    memory.save("a", b"one", 1)
    memory.close()
    memory.save("a", b"one", 1)
    assert path.stat().st_size == size
    memory.close()


def test_a_torn_last_line_does_not_count(path: Path) -> None:
    memory = LastGoodManifests(path.parent)
    memory.save("a", b"one", 1)
    memory.save("b", b"two", 1)
    memory.close()
    path.write_bytes(path.read_bytes()[:-5])
    assert memory.find("a") == b"one"
    assert memory.find("b") is None
    memory.save("c", b"three", 1)
    memory.close()
    assert memory.find("c") == b"three"
    memory.close()


def test_a_journal_of_old_texts_is_rewritten_when_opened(path: Path) -> None:
    memory = LastGoodManifests(path.parent)
    for number in range(100):
        memory.save("a", b"text %d" % number, number)
    memory.save("b", b"kept", 1)
    memory.close()
    size = path.stat().st_size
    assert memory.find("a") == b"text 99"
    assert memory.find("b") == b"kept"
    assert path.stat().st_size < size / 10
    memory.close()


def test_names_that_are_not_utf8_are_remembered_too(path: Path) -> None:
    memory = LastGoodManifests(path.parent)
    memory.save("dir/\udcff.yaml", b"one", 1)
    memory.close()
    assert memory.find("dir/\udcff.yaml") == b"one"
    memory.close()


def test_a_journal_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    memory = LastGoodManifests(tmp_path / "state")
    with capture_logs() as logs:
        memory.save("a", b"one", 1)
        memory.save("b", b"one", 1)
        assert memory.find("a") is None
    assert [line["event"] for line in logs] == ["Failed to store manifests"]
