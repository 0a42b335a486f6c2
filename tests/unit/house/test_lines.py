"""Text that others write is cut at line feeds only."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = sorted(
    path
    for folder in (ROOT / "kubeletx", *ROOT.glob("plugins/*/src"), *ROOT.glob("examples/plugins/*/src"))
    for path in folder.rglob("*.py")
    if "testing" not in path.parts
)


def test_no_text_is_cut_where_python_sees_the_end_of_a_line() -> None:
    """`str.splitlines` also cuts at ``\\v``, ``\\f``, ``\\x1c``, ``\\x85``, ``\\u2028`` ..., which names may hold."""
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Attribute) and node.attr in ("splitlines", "readlines")
    ]
    assert not calls, f"write .split('\\n') at {', '.join(calls)}"
