"""No quick test sleeps: what an event reports is awaited, a clock is faked, and the rest is asked by `kubeletx_testing.waiting`.

A test that needs real time, because a real process, thread, socket or timer of the event loop is its subject, is listed here
with the reason. ``sleep(0)`` is a turn of the event loop and free.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = [
    ROOT / "tests" / "unit",
    ROOT / "tests" / "regressions",
    ROOT / "testing" / "tests",
    *ROOT.glob("plugins/*/tests"),
    *ROOT.glob("examples/plugins/*/tests"),
    *ROOT.glob("sdk/*/tests"),
]
ALLOWED = {
    "tests/regressions/test_two_agents.py": (
        1,
        "real requests take real time while the fake clock is moved",
    ),
    "tests/unit/agent/host/test_watchdog.py": (
        3,
        "the watchdog's thread measures how long the loop really stands",
    ),
    "tests/unit/docs/test_edge.py": (1, "the commands of a page run as real processes"),
    "tests/unit/plugins/test_health.py": (1, "a check that really holds the event loop"),
    "tests/unit/runtimes/isolation/isolated_fake.py": (2, "calls that hang until their process is killed"),
    "tests/unit/server/api_client.py": (1, "buffers of the kernel fill while nothing is read"),
    "tests/unit/streaming/test_websocket.py": (
        1,
        "a ping's deadline passes while a command takes its input",
    ),
    "tests/unit/streaming/test_idle.py": (1, "the limit is a timer of the event loop"),
}
"""File: how many sleeps, and why."""


def sleeps(tree: ast.AST) -> Iterator[int]:
    """Lines that call time.sleep or asyncio.sleep for another time than 0."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in (
            "time.sleep",
            "asyncio.sleep",
            "sleep",
        ):
            continue
        if not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0):
            yield node.lineno


def test_only_listed_tests_sleep() -> None:
    found = {}
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_text()
            if "sleep(" not in text or "integration" in path.parts:
                continue
            lines = list(sleeps(ast.parse(text)))
            if lines:
                found[str(path.relative_to(ROOT))] = lines
    expected = {path: count for path, (count, _) in ALLOWED.items()}
    assert {path: len(lines) for path, lines in found.items()} == expected, found


def test_a_sleep_is_found() -> None:
    source = "await asyncio.sleep(0)\nawait asyncio.sleep(0.1)\ntime.sleep(seconds)\nclock.sleep(3)"
    assert sorted(
        sleeps(ast.parse("async def f():\n" + "\n".join(f"  {line}" for line in source.splitlines())))
    ) == [3, 4]
