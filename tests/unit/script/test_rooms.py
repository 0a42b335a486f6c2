"""Costs of imports: how they are attributed to modules, and summed up by room."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from script.benchmarks.import_watch import Imported
from script.benchmarks.model import Result
from script.benchmarks.rooms import LIBRARY, Room, by_room, room_figures, room_of, rooms_markdown

ROOT = Path(__file__).resolve().parents[3]
WATCHED = """
import sys, msgspec
from script.benchmarks.import_watch import ImportWatch, UseWatch
taken = 0
imports = ImportWatch(lambda: taken)
uses = UseWatch(imports)
imports.install()
uses.install()
import outer
outer.later()
sys.setprofile(None)
print(msgspec.json.encode([list(imports.imported.values()), sorted(uses.files)]).decode())
"""


def test_a_module_costs_what_its_inner_imports_do_not_and_is_used_if_a_function_is_called_later(
    tmp_path: Path,
) -> None:
    (tmp_path / "outer.py").write_text(
        "import __main__\n__main__.taken += 10\nimport inner\n__main__.taken += 5\n"
        "class Shape: pass\ndef later(): return inner\n"
    )
    (tmp_path / "inner.py").write_text(
        "import __main__\n__main__.taken += 100\ndef at_import(): pass\nat_import()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", WATCHED],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported, files = msgspec.json.decode(done.stdout, type=tuple[list[Imported], list[str]])
    found = {one.name: (one.importer, one.self_bytes) for one in imported}
    assert found == {"outer": ("", 15), "inner": ("outer", 100)}
    assert str(tmp_path / "outer.py") in files
    assert str(tmp_path / "inner.py") not in files


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("kubeletx", "kubeletx"),
        ("kubeletx.pods", "kubeletx.pods"),
        ("kubeletx.pods.model.facts", "kubeletx.pods"),
        ("kubeletx_libvirt.plugin", "kubeletx_libvirt"),
        ("sqlalchemy.sql.base", "sqlalchemy"),
        ("asyncio.tasks", LIBRARY),
    ],
)
def test_a_room_is_a_package_of_the_host_or_a_distribution(module: str, room: str) -> None:
    assert room_of(module) == room


def test_rooms_are_summed_up_and_shown_with_the_largest_first() -> None:
    traced = [
        Imported(name="asyncio", file="a", self_bytes=102400),
        Imported(name="kubeletx.pods.a", file="b", self_bytes=204800),
        Imported(name="kubeletx.pods.b", file="c", self_bytes=307200),
        Imported(name="click", file="d", self_bytes=1024),
    ]
    resident = [
        msgspec.structs.replace(one, self_bytes=4096, is_used=one.name != "kubeletx.pods.b") for one in traced
    ]
    found = by_room(traced, resident, {"kubeletx.pods.a": 0.002, "never.imported": 1.0})
    assert found["kubeletx.pods"] == Room(2, 1, 500.0, 300.0, 8.0, 2.0)
    assert [(one.label, one.value) for one in room_figures(found)] == [
        ("memory of imports, kubeletx", 0.49),
        ("memory of imports, other distributions", 0.0),
        (f"memory of imports, {LIBRARY}", 0.1),
    ]
    series = {name: list(msgspec.structs.astuple(room)) for name, room in found.items()}
    result = Result(name="rooms", figures=(), series=series, measured_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert rooms_markdown(result).split("\n")[2:] == [
        "| kubeletx.pods | 2 | 1 | 500 KiB | 300 KiB | 8 KiB | 2 ms |",
        f"| {LIBRARY} | 1 | 1 | 100 KiB | 0 KiB | 4 KiB | 0 ms |",
    ]
