"""Imports across distributions; within kubeletx `lint-imports` checks them.

A plugin may import the public rooms; every other room, also one that is added later, is closed to it. Indirect imports
need no check: a public room imports only rooms below it, which are public too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.house.sources import ROOT, nodes

PUBLIC = {"api", "cri", "kube", "linux", "streaming"}
ROOMS = {path.parent.name for path in (ROOT / "kubeletx").glob("*/__init__.py")}
DISTRIBUTIONS = sorted(
    path.parent
    for path in [*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("examples/plugins/*/pyproject.toml")]
)


def _imports(path: Path) -> Iterator[str]:
    """Dotted names that a file imports absolutely, wherever in the file."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("directory", DISTRIBUTIONS, ids=lambda path: path.name)
def test_a_plugin_imports_only_public_rooms(directory: Path) -> None:
    for path in directory.rglob("*.py"):
        in_tests = "tests" in path.relative_to(directory).parts
        closed = ROOMS - PUBLIC - ({"testing"} if in_tests else set())
        for name in _imports(path):
            parts = name.split(".")
            assert parts[0] != "kubeletx" or parts[1] not in closed, f"{path} imports {name}"


def test_below_the_public_rooms_are_only_public_rooms() -> None:
    layers = (ROOT / ".importlinter").read_text().partition("layers =")[2].partition("\n[")[0].split("\n")
    rooms = [set(re.findall(r"kubeletx\.(\w+)", line)) for line in layers]
    rooms = rooms[next(i for i, line in enumerate(rooms) if line & PUBLIC) :]
    assert set().union(*rooms) == PUBLIC


def test_the_host_imports_no_plugin() -> None:
    for path in (ROOT / "kubeletx").rglob("*.py"):
        for name in _imports(path):
            assert not name.startswith("kubeletx_"), f"{path} imports {name}"


def test_an_sdk_imports_nothing_of_kubeletx() -> None:
    """An application in a container has only the SDK and what it depends on."""
    for path in ROOT.glob("sdk/*/src/**/*.py"):
        for name in _imports(path):
            assert name.split(".")[0] != "kubeletx", f"{path} imports {name}"


def test_the_lab_and_the_api_server_double_import_public_rooms_and_one_module_more() -> None:
    more = ("kubeletx.server.views.", "kubeletx.fornax.stubs.", "kubeletx.sessions.stubs.")
    for path in (ROOT / "testing" / "src").rglob("*.py"):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "kubeletx" and not name.startswith(more):
                assert parts[1] in PUBLIC | {"testing"}, f"{path} imports {name}"
