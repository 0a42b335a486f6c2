"""Rooms from inside: no import circle, folders of a readable size, and few modules of pods that others import."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.house.sources import HOST, ROOT, nodes

MOST_FILES = 22
LARGER = {"api": 29, "agent/parts": 24, "health": 24}
"""Folders that are larger, and how large: they may shrink. They have a file for each subject."""
MOST_PARAMETERS = 8
OF_WORKLOADS = {"Nic", "NicState", "NicStatus", "Power", "PowerStep", "VirtualMachine", "Machine"}
"""Names that only a workload's own folder imports."""


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_name(path): path for path in sorted(HOST.rglob("*.py"))}


def _imported(module: str) -> Iterator[str]:
    """Modules of the host that a module imports, for types alone or inside functions too."""
    package = module.split(".") if FILES[module].name == "__init__.py" else module.split(".")[:-1]
    for node in nodes(FILES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                found = f"{base}.{alias.name}"
                yield from (one for one in [found if found in FILES else base] if one in FILES)


@cache
def imports() -> dict[str, set[str]]:
    return {module: set(_imported(module)) - {module} for module in FILES}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules left once all that import none of the others are taken away, and all that none imports."""
    left = {module: set(targets) & set(graph) for module, targets in graph.items()}
    while True:
        wanted = set().union(*left.values()) if left else set()
        free = {module for module, targets in left.items() if not targets or module not in wanted}
        if not free:
            return [sorted(left)] if left else []
        left = {module: targets - free for module, targets in left.items() if module not in free}


def test_a_circle_is_found_and_what_hangs_on_it_is_not() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_module_of_a_room_imports_itself_through_others() -> None:
    rooms = {module.split(".")[1] for module in FILES if "." in module}
    inside = {
        room: {m: found for m, found in imports().items() if m.split(".")[1:2] == [room]} for room in rooms
    }
    assert {room: found for room, graph in inside.items() if (found := circles(graph))} == {}


def test_folders_have_about_twenty_files_at_most() -> None:
    sizes: dict[str, int] = {}
    for path in FILES.values():
        folder = str(path.parent.relative_to(HOST))
        sizes[folder] = sizes.get(folder, 0) + (path.name != "__init__.py")
    large = {folder: size for folder, size in sizes.items() if size > MOST_FILES and "stubs" not in folder}
    assert {folder: size for folder, size in large.items() if size > LARGER.get(folder, MOST_FILES)} == {}
    assert set(LARGER) <= set(large), "take folders off the list that are small now"


def test_fewer_than_fifteen_modules_of_pods_are_imported_from_outside() -> None:
    outside = [found for module, found in imports().items() if not module.startswith("kubeletx.pods")]
    found = {one for names in outside for one in names if one.startswith("kubeletx.pods")}
    assert len(found) < 15, sorted(found)


def test_the_face_of_pods_gives_types_and_values_the_same_homes() -> None:
    face = importlib.import_module("kubeletx.pods")
    typed = {
        alias.name: node.module
        for node in nodes(FILES["kubeletx.pods"])
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert typed == face._HOMES
    for name in typed:
        assert getattr(face, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(face, "Nothing")  # noqa: B009


def test_no_function_of_pods_has_more_than_eight_parameters() -> None:
    found = []
    for module, path in FILES.items():
        if not module.startswith("kubeletx.pods."):
            continue
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
                if len([one for one in names if one not in ("self", "cls")]) > MOST_PARAMETERS:
                    found.append(f"{module}:{node.lineno} {node.name}")
    assert found == []


def test_the_neutral_core_of_pods_imports_no_network_card_and_no_power_state() -> None:
    """Workloads know them (`pods/workloads`); `model` and `plan` ask the table of workloads."""
    found = []
    for module, path in FILES.items():
        if module.startswith(("kubeletx.pods.model.", "kubeletx.pods.plan.")):
            for node in nodes(path):
                if isinstance(node, ast.ImportFrom):
                    bad = {alias.name for alias in node.names} & OF_WORKLOADS
                    deep = (node.module or "").startswith(("workloads.machine", "workloads.standby"))
                    found += [f"{module}:{node.lineno}"] if bad or deep else []
    assert found == []
