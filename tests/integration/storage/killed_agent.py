"""A process that forks agents, each of which kills itself at one write of its journal.

Standard input has one JSON array for each agent: directory of the node, ``prepare`` or ``release``, the number of the
write (from 1), and ``before`` or ``after``. After its end a line with its exit code is printed: -9, or 0 if there were
fewer writes. Forking costs a fraction of the time in which a new interpreter imports the host.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletx_flexvolume.host import journal

from tests.integration.storage.flex_drivers import LOOP, StorageNode


def killing(function: Callable[..., None], number: int, when: str, writes: list[int]) -> Callable[..., None]:
    """Return the function of the journal, which kills the process at its call with this number.

    `writes`: has an item for each write so far.
    """

    def call(*args: Any) -> None:
        writes.append(1)
        is_last = len(writes) == number
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        function(*args)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)

    return call


async def run(directory: str, method: str, number: int, when: str) -> None:
    """Run one method, with the journal's functions replaced."""
    node = StorageNode(Path(directory))
    volumes = node.make()
    await volumes.open()
    request = node.request("data", LOOP, persistent_volume="pv-1")
    if method == "release":
        await volumes.prepare(request)
        (Path(request.target) / "file").write_text("kept")
    writes: list[int] = []
    journal.write_file = killing(journal.write_file, number, when, writes)
    journal.remove_file = killing(journal.remove_file, number, when, writes)
    await getattr(volumes, method)(request)
    await volumes.close()


def forked(line: str) -> int:
    """Run one agent in a child process; return its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        asyncio.run(run(*json.loads(line)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()  # the host logs there
        os._exit(code)


if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(2, 1)
    for one in sys.stdin:
        os.write(answers, b"%d\n" % forked(one))
