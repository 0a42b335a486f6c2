"""Tests import what they share by its full name: no test or conftest changes where Python looks for modules."""

from __future__ import annotations

import ast

from tests.unit.house.sources import ROOT, nodes, place

FILES = [
    path
    for folder in ("tests", "testing/tests", "plugins", "examples", "sdk")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "src" not in path.parts
]


def test_no_test_changes_the_path_of_modules() -> None:
    found = [
        place(path, node.lineno)
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr == "path" and ast.unparse(node) == "sys.path"
    ]
    assert found == []


def test_shared_models_are_imported_by_their_full_name() -> None:
    shared = {path.stem for path in FILES if not path.stem.startswith(("test_", "__"))}
    found = [
        f"{place(path, node.lineno)} imports {node.module}"
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in shared
    ]
    assert found == []
