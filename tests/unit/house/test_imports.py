"""Who may import whom across distributions; within kubeletx `lint-imports` checks it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PUBLIC = {"api", "cri", "kube", "streaming"}
DISTRIBUTIONS = sorted(
    path.parent
    for path in [*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("examples/plugins/*/pyproject.toml")]
)


def _imports(path: Path) -> Iterator[str]:
    """Dotted names that a file imports absolutely, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("directory", DISTRIBUTIONS, ids=lambda path: path.name)
def test_a_plugin_imports_only_public_rooms(directory: Path) -> None:
    for path in directory.rglob("*.py"):
        allowed = PUBLIC | ({"testing"} if "tests" in path.relative_to(directory).parts else set())
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "kubeletx":
                assert parts[1] in allowed, f"{path} imports {name}"


def test_the_host_imports_no_plugin() -> None:
    for path in (ROOT / "kubeletx").rglob("*.py"):
        for name in _imports(path):
            assert not name.startswith("kubeletx_"), f"{path} imports {name}"
