"""A process that prepares or releases a volume, and kills itself at one write of the journal.

    killed_agent.py DIRECTORY prepare|release NUMBER before|after

NUMBER: which write, from 1. It prints ``done`` and exits with 0 if there were fewer writes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletx_flexvolume.host import journal

from tests.integration.storage.flex_drivers import LOOP, StorageNode


def killing(function: Callable[..., None], number: int, when: str) -> Callable[..., None]:
    """Return the function of the journal, which kills the process at its call with this number."""

    def call(*args: Any) -> None:
        COUNTER.append(1)
        is_last = len(COUNTER) == number
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        function(*args)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)

    return call


COUNTER: list[int] = []


async def main(directory: str, method: str, number: str, when: str) -> None:
    """Run one method, with the journal's functions replaced."""
    node = StorageNode(Path(directory))
    volumes = node.make()
    await volumes.open()
    request = node.request("data", LOOP, persistent_volume="pv-1")
    if method == "release":
        await volumes.prepare(request)
        (Path(request.target) / "file").write_text("kept")
    write, remove = journal.write_file, journal.remove_file
    journal.write_file = killing(write, int(number), when)
    journal.remove_file = killing(remove, int(number), when)
    await getattr(volumes, method)(request)
    print("done", flush=True)
    await volumes.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
