"""Modules, classes and functions have docstrings, in the host and in every plugin; methods only where authors read them.

A method that implements a protocol has its words there; a second docstring would only repeat the name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = [
    ROOT / "kubeletx",
    ROOT / "testing" / "src",
    *ROOT.glob("plugins/*/src"),
    *ROOT.glob("examples/plugins/*/src"),
]
FILES = sorted(
    path
    for package in PACKAGES
    for path in package.rglob("*.py")
    if "stubs" not in path.parts and not path.name.startswith("_pb")
)


CONTRACT = ROOT / "kubeletx" / "api"


def undocumented(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    if tree.body and ast.get_docstring(tree) is None and path.name != "__init__.py":
        yield "the module"
    yield from _below(tree, "", methods=CONTRACT in path.parents)


def _below(node: ast.AST, prefix: str, *, methods: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name = child.name
        if name.startswith(("_", "test_")):
            continue  # tests of the contract suite are named as sentences
        is_method = isinstance(node, ast.ClassDef) and not isinstance(child, ast.ClassDef)
        if (methods or not is_method) and ast.get_docstring(child) is None and not _is_overload(child):
            yield f"{prefix}{name} (line {child.lineno})"
        if isinstance(child, ast.ClassDef):
            yield from _below(child, f"{prefix}{name}.", methods=methods)


def _is_overload(node: ast.AST) -> bool:
    marks = getattr(node, "decorator_list", ())
    names = {getattr(m, "id", getattr(m, "attr", "")) for m in marks}
    return bool(names & {"overload", "setter"})


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_that_authors_and_newcomers_read_have_docstrings(path: Path) -> None:
    assert list(undocumented(path)) == []
