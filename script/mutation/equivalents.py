"""Reads ``equivalents.toml``: the mutants that do the same as the original, with a reason for each."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

from .mutators import Mutant

FILE = Path(__file__).with_name("equivalents.toml")


def is_equivalent(module: str, source: str, mutant: Mutant, entry: dict[str, Any]) -> bool:
    """Return whether `entry` of the file describes this mutant. `source`: the original text of the module."""
    if entry["module"] != module or entry["function"] != function_at(source, mutant.line):
        return False
    before, after = (text.splitlines() for text in (ast.unparse(ast.parse(source)), mutant.text))
    changed = [
        (one.strip(), other.strip()) for one, other in zip(before, after, strict=False) if one != other
    ]
    return changed == [(entry["before"], entry["after"])]


def function_at(source: str, line: int) -> str:
    """Return the function of a line with its class, such as ``Child.usage``; empty outside of functions."""
    names = [
        (node.lineno, node.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return ".".join(name for _, name in sorted(names))


def entries() -> list[dict[str, Any]]:
    """Return the entries of the file."""
    tables: list[dict[str, Any]] = tomllib.loads(FILE.read_text())["equivalent"]
    return tables
