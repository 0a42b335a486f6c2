"""Text that others write is cut at line feeds only."""

from __future__ import annotations

import ast

from tests.unit.house.sources import host_and_plugins, nodes, place


def test_no_text_is_cut_where_python_sees_the_end_of_a_line() -> None:
    """`str.splitlines` also cuts at ``\\v``, ``\\f``, ``\\x1c``, ``\\x85``, ``\\u2028`` ..., which names may hold."""
    calls = [
        place(path, node.lineno)
        for path in host_and_plugins()
        if "testing" not in path.parts
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in ("splitlines", "readlines")
    ]
    assert not calls, f"write .split('\\n') at {', '.join(calls)}"
