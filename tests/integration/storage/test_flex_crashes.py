"""The agent is killed at every write of its FlexVolume journal; nothing is left, and no data is lost."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.storage.flex_drivers import LOOP, StorageNode, read

ROOT = Path(__file__).parents[3]
WRITES = {"prepare": 8, "release": 4}
"""Number of writes of the journal during each method."""
STEPS = [
    (method, number, when)
    for method, writes in WRITES.items()
    for number in range(1, writes + 1)
    for when in ("before", "after")
]

Kill = Callable[[StorageNode, str, int, str], bool]


@pytest.fixture(scope="module")
def kill() -> Iterator[Kill]:
    """Function that runs `killed_agent`. It returns True if the agent killed itself, False if it came to its end."""
    program = [sys.executable, "-m", "tests.integration.storage.killed_agent"]
    with subprocess.Popen(
        program, cwd=ROOT, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        write, answer = process.stdin.write, process.stdout.readline

        def run(node: StorageNode, method: str, number: int, when: str) -> bool:
            node.install(LOOP)
            write(json.dumps([str(node.directory), method, number, when]) + "\n")
            code = int(answer())
            assert code in {0, -9}
            return code == -9

        yield run
        process.stdin.close()


@pytest.mark.parametrize(("method", "number", "when"), STEPS)
async def test_an_agent_killed_at_any_write_of_the_journal_leaves_nothing_after_the_release(
    flex_node: StorageNode, kill: Kill, method: str, number: int, when: str
) -> None:
    assert await asyncio.to_thread(kill, flex_node, method, number, when), "correct WRITES"
    volumes = flex_node.make()
    await volumes.open()
    try:
        request = flex_node.request("data", LOOP, persistent_volume="pv-1")
        await volumes.release(request)
        assert [one for one in flex_node.left() if one not in flex_node.journal()] == []
        for name in flex_node.journal():  # kept without uses, only after an interrupted format
            assert name == "pv-1"
        request = flex_node.request("data", LOOP, persistent_volume="pv-1")
        await volumes.prepare(request)
        if method == "release":
            assert read(request) == "kept"
        await volumes.release(request)
        assert flex_node.left() == []
    finally:
        await volumes.close()


async def test_the_steps_of_the_crash_test_are_all_steps(flex_node: StorageNode, kill: Kill) -> None:
    for method in ("release", "prepare"):  # the second one leaves the volume
        assert not await asyncio.to_thread(kill, flex_node, method, WRITES[method] + 1, "before")
    volumes = flex_node.make()
    await volumes.open()
    await volumes.release(flex_node.request("data", LOOP, persistent_volume="pv-1"))
    await volumes.close()
