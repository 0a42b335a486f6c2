"""A runtime that writes to a descriptor that it did not open: the socket between its process and the agent.

Fault: code that writes to descriptors by number, such as a library that keeps the number of a closed file.
What the agent does: it closes the connection at the first message that breaks docs/plugin-wire.md. Calls that wait for
an answer fail with Unavailable and name the broken rule, and the process is started again.
Correct code writes only to files that it has open.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kubeletx.api import Endpoint, Host, RegisterRuntime, RuntimeVersion, hookimpl
from kubeletx.testing import FakeRuntime

GARBAGE = b"Segmentation fault\n"


class GarbageWritingRuntime(FakeRuntime):
    """A `FakeRuntime` whose `version` writes `GARBAGE` to every socket of its process."""

    async def version(self) -> RuntimeVersion:
        """Write `GARBAGE` to every socket of this process, then return the version."""
        write_garbage()
        return await super().version()


def write_garbage() -> None:
    """Write `GARBAGE` to every socket of this process."""
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if Path(f"/proc/self/fd/{number}").exists() and stat.S_ISSOCK(os.fstat(number).st_mode):
            os.write(number, GARBAGE)  # the fault


def make(endpoint: Endpoint, _settings: object, _host: Host) -> GarbageWritingRuntime:
    """Make the runtime of an endpoint."""
    return GarbageWritingRuntime(endpoint.name)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``writes-garbage``."""
    register("writes-garbage", make, workload_types=("container",), schemes=("bad",))
