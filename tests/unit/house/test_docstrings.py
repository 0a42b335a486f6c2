"""Every public name has a docstring, in the host and in every plugin."""

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


def undocumented(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    if tree.body and ast.get_docstring(tree) is None and path.name != "__init__.py":
        yield "the module"
    yield from _below(tree, "")


def _below(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name = child.name
        if name.startswith(("_", "test_")):
            continue  # tests of the contract suite are named as sentences
        if ast.get_docstring(child) is None and not _is_overload(child):
            yield f"{prefix}{name} (line {child.lineno})"
        if isinstance(child, ast.ClassDef):
            yield from _below(child, f"{prefix}{name}.")


def _is_overload(node: ast.AST) -> bool:
    marks = getattr(node, "decorator_list", ())
    names = {getattr(m, "id", getattr(m, "attr", "")) for m in marks}
    return bool(names & {"overload", "setter"})


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_public_name_has_a_docstring(path: Path) -> None:
    assert list(undocumented(path)) == []
