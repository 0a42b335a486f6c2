"""Tests import what they share by its full name: no test or conftest changes where Python looks for modules."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILES = [
    path
    for folder in ("tests", "testing/tests", "plugins", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "src" not in path.parts
]


def test_no_test_changes_the_path_of_modules() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path"
    ]
    assert found == []


def test_shared_models_are_imported_by_their_full_name() -> None:
    shared = {path.stem for path in FILES if not path.stem.startswith(("test_", "__"))}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} imports {node.module}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in shared
    ]
    assert found == []
