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
from pathlib import Path

from kubeletx_flexvolume.host.journal import VERSION, FlexEntry

from kubeletx.linux.json_files import JsonFiles
from tests.integration.storage.flex_drivers import LOOP, StorageNode


class KillingFiles(JsonFiles[FlexEntry]):
    """Files of a journal that kill the process at one write or removal."""

    number = 0
    """Number of the write, from 1; 0: none."""
    when = "before"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, FlexEntry, version=VERSION, name=lambda entry: entry.key)
        self._writes = 0

    def arm(self, number: int, when: str) -> None:
        """Count from now on."""
        self.number, self.when, self._writes = number, when, 0

    def put(self, value: FlexEntry) -> None:
        self._begin()
        super().put(value)
        self._end()

    def remove(self, name: str) -> bool:
        self._begin()
        is_done = super().remove(name)
        self._end()
        return is_done

    def _begin(self) -> None:
        self._writes += 1
        if self._writes == self.number and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)

    def _end(self) -> None:
        if self._writes == self.number:
            os.kill(os.getpid(), signal.SIGKILL)


async def run(directory: str, method: str, number: int, when: str) -> None:
    """Run one method on files that kill."""
    node = StorageNode(Path(directory))
    files = KillingFiles(node.host.state_directory / "volumes")
    volumes = node.make(entries=files)
    await volumes.open()
    request = node.request("data", LOOP, persistent_volume="pv-1")
    if method == "release":
        await volumes.prepare(request)
        (Path(request.target) / "file").write_text("kept")
    files.arm(number, when)
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
