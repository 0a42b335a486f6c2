"""Modules, classes and functions have docstrings, in the host and in every plugin; methods only where authors read them.

A method that implements a protocol has its words there; a second docstring would only repeat the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.house.sources import HOST, place, tree, with_lab

CONTRACT = HOST / "api"


def undocumented(path: Path) -> Iterator[str]:
    module = tree(path)
    if module.body and ast.get_docstring(module) is None and path.name != "__init__.py":
        yield place(path, 1)
    for line, name in _below(module, "", methods=CONTRACT in path.parents):
        yield f"{place(path, line)}: {name}"


def _below(node: ast.AST, prefix: str, *, methods: bool) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name = child.name
        if name.startswith(("_", "test_")):
            continue  # tests of the contract suite are named as sentences
        is_method = isinstance(node, ast.ClassDef) and not isinstance(child, ast.ClassDef)
        if (methods or not is_method) and ast.get_docstring(child) is None and not _is_overload(child):
            yield child.lineno, f"{prefix}{name}"
        if isinstance(child, ast.ClassDef):
            yield from _below(child, f"{prefix}{name}.", methods=methods)


def _is_overload(node: ast.AST) -> bool:
    marks = getattr(node, "decorator_list", ())
    names = {getattr(m, "id", getattr(m, "attr", "")) for m in marks}
    return bool(names & {"overload", "setter"})


def test_names_that_authors_and_newcomers_read_have_docstrings() -> None:
    assert [found for path in with_lab() for found in undocumented(path)] == []
