"""A program that we start cannot ask: its standard input is not ours, and its session has no terminal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.house.sources import ROOT, nodes

FOLDERS = ("kubeletx", "testing/src", "script")
STARTS = {
    "subprocess": {"run", "Popen", "call", "check_call", "check_output"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "loop": {"subprocess_exec", "subprocess_shell"},
    "os": {"posix_spawn", "posix_spawnp", "system", "popen", "forkpty"},
}
ANY = frozenset().union(*STARTS.values())
NAMES = ANY - {"run", "call", "system", "popen"}
ITS_FILE_ACTIONS = {"posix_spawn"}
"""Its standard input is in `file_actions`; tests of its module check it."""


def starts(path: Path) -> Iterator[ast.Call]:
    """The calls that start a program."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in NAMES or (name in ANY and name in STARTS.get(ast.unparse(node.func.value), ())):
                yield node


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_program_gets_its_own_standard_input_and_session(folder: str) -> None:
    paths = [path for found in ROOT.glob(folder) for path in found.rglob("*.py")]
    calls = [(path, call) for path in paths for call in starts(path)]
    assert calls, f"{folder} starts programs"
    wrong = []
    for path, call in calls:
        given = {one.arg: ast.unparse(one.value) for one in call.keywords}
        has_input = given.get("stdin", "None") != "None" or "input" in given
        has_session = "True" in (given.get("start_new_session"), given.get("setsid"))
        if ast.unparse(call.func).rpartition(".")[2] in ITS_FILE_ACTIONS:
            has_input = "file_actions" in given
        if not (has_input and has_session):
            wrong.append(f"{path.relative_to(ROOT)}:{call.lineno}: stdin={has_input} session={has_session}")
    assert wrong == [], "give stdin=DEVNULL and start_new_session=True"


def test_plugins_start_programs_through_the_room_linux() -> None:
    paths = [path for found in ROOT.glob("plugins/*/src") for path in found.rglob("*.py")]
    assert [str(path) for path in paths if any(starts(path))] == [], "use kubeletx.linux.programs"
