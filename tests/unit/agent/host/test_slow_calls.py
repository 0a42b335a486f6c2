"""A slow call of plugin code is logged while it lasts; only a marked import or factory of the start has a limit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.agent.host.slow_calls import SlowCalls
from kubeletx.runtimes.plugins.identity import PluginIdentity
from kubeletx_testing.waiting import block_until

ACME = PluginIdentity("acme", "kubeletx-acme", "1.0")


def events(lines: list[Any]) -> list[str]:
    return [one["event"] for one in lines]


def slow_calls(root: Path, limit_seconds: float, action: str, codes: list[int]) -> SlowCalls:
    return SlowCalls(root, limit_seconds, action, codes.append, log_seconds=0.01)


def test_a_slow_call_is_logged_with_distribution_and_stack_and_its_end(tmp_path: Path) -> None:
    codes: list[int] = []
    slow = slow_calls(tmp_path, 3600, "restart", codes)
    with capture_logs() as lines:
        with slow.watch("import", "acme", ACME, True):
            block_until(lambda: len(lines) >= 2)
        block_until(lambda: "Waited for a plugin" in events(lines))
    assert events(lines)[0] == "Waiting for a plugin"
    assert lines[0]["distribution"] == "kubeletx-acme 1.0"
    assert "test_slow_calls.py" in lines[0]["stack"]
    assert not codes


def test_a_marked_import_ends_the_agent_at_the_limit(tmp_path: Path) -> None:
    codes: list[int] = []
    with (
        capture_logs(),
        slow_calls(tmp_path, 0.02, "restart", codes).watch("import", "acme", ACME, True),
    ):
        block_until(lambda: codes)
    assert codes == [3]
    (dump,) = (tmp_path / "dumps").iterdir()
    assert "import of plugin acme" in dump.read_text()


@pytest.mark.parametrize(
    ("action", "call", "is_marked"),
    [("log", "import", True), ("restart", "make", True), ("restart", "import", False)],
)
def test_other_calls_are_only_logged(tmp_path: Path, action: str, call: str, is_marked: bool) -> None:
    codes: list[int] = []
    slow = slow_calls(tmp_path, 0.02, action, codes)
    with capture_logs() as lines, slow.watch(call, "acme", ACME, is_marked):
        block_until(lambda: len(lines) >= 4)
    assert not codes


def test_a_call_on_another_thread_is_only_logged(tmp_path: Path) -> None:
    codes: list[int] = []
    slow = slow_calls(tmp_path, 0.02, "restart", codes)

    def load() -> None:
        with slow.watch("import", "acme", ACME, True):
            block_until(lambda: len(lines) >= 4)

    with capture_logs() as lines:
        thread = threading.Thread(target=load, name="reload")
        thread.start()
        thread.join()
    assert not codes
