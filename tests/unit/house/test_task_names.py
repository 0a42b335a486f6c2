"""Every task of the host and of the plugins has a name, so that a log or a dump of tasks says what hangs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.unit.house.sources import host_and_plugins, place, tree


def unnamed(module: ast.AST) -> Iterator[int]:
    """Lines that make a task without a name; a function may also name it with `set_name`."""
    for function in ast.walk(module):
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


def test_every_task_has_a_name() -> None:
    found = {place(path, line) for path in host_and_plugins() for line in unnamed(tree(path))}
    assert sorted(found) == []
