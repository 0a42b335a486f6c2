"""Every task of the host and of the plugins has a name, so that a log or a dump of tasks says what hangs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = [ROOT / "kubeletx", *ROOT.glob("plugins/*/src"), *ROOT.glob("examples/plugins/*/src")]
FILES = sorted(
    path
    for package in PACKAGES
    for path in package.rglob("*.py")
    if "stubs" not in path.parts and re.search("create_task|ensure_future", path.read_text())
)


def unnamed(tree: ast.AST) -> Iterator[int]:
    """Lines that make a task without a name; a function may also name it with `set_name`."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        calls = [one for one in ast.walk(function) if isinstance(one, ast.Call)]
        if any(_called(one) == "set_name" for one in calls):
            continue
        for one in calls:
            word = _called(one)
            has_name = any(keyword.arg == "name" for keyword in one.keywords)
            if word == "ensure_future" or (word == "create_task" and not has_name):
                yield one.lineno


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_task_has_a_name(path: Path) -> None:
    assert sorted(set(unnamed(ast.parse(path.read_text())))) == []
