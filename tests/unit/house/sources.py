"""Source files of the repository and their syntax trees, each parsed once for all house tests of a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOST = ROOT / "kubeletx"


@cache
def host_and_plugins() -> tuple[Path, ...]:
    """Files of the host, of every plugin and of the SDKs, without generated ones."""
    folders = ("plugins/*/src", "examples/plugins/*/src", "sdk/*/src")
    return _below(HOST, *(path for pattern in folders for path in ROOT.glob(pattern)))


@cache
def with_lab() -> tuple[Path, ...]:
    """Files of the host, of every plugin, of the SDKs, and of the distribution kubeletx-testing."""
    return (*host_and_plugins(), *_below(ROOT / "testing" / "src"))


@cache
def with_scripts() -> tuple[Path, ...]:
    """Files of `with_lab` and of the commands in ``script/``."""
    return (*with_lab(), *_below(ROOT / "script"))


@cache
def of_tests() -> tuple[Path, ...]:
    """Files of all tests."""
    folders = ("plugins/*/tests", "examples/plugins/*/tests", "sdk/*/tests", "testing/tests")
    return _below(ROOT / "tests", *(path for pattern in folders for path in ROOT.glob(pattern)))


def _below(*folders: Path) -> tuple[Path, ...]:
    return tuple(
        path for folder in folders for path in sorted(folder.rglob("*.py")) if "stubs" not in path.parts
    )


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, in the order of `ast.walk`, which takes longer than the parser."""
    return tuple(ast.walk(tree(path)))


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"
