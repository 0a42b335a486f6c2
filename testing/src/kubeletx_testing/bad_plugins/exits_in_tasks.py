"""A runtime that raises SystemExit and KeyboardInterrupt in tasks, callbacks and a thread that it starts itself.

Fault: ``sys.exit`` in code that no call of the agent awaits. asyncio ends the event loop when SystemExit or
KeyboardInterrupt leaves a task or a callback, and with the loop the process.
What the agent does: it logs the exception with the plugin's distribution and line, once for each line, and its event
loop continues. Only the task, callback or thread ends.
Correct code raises an error in the call that needs the task, or catches its own exceptions and logs them.
"""

from __future__ import annotations

import asyncio
import sys
import threading

from kubeletx.api import Endpoint, Host, RegisterRuntime, hookimpl
from kubeletx.testing import FakeRuntime


class TaskExitingRuntime(FakeRuntime):
    """A `FakeRuntime` whose `open` starts a task, two callbacks and a thread that raise SystemExit or KeyboardInterrupt."""

    async def open(self) -> None:
        """Open the runtime, and start them."""
        await super().open()
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(_exit(), name="exits")
        loop.call_soon(sys.exit, "called soon")
        loop.call_later(0.01, _interrupt)
        threading.Thread(target=_exit_thread, name="exits").start()


async def _exit() -> None:
    sys.exit("in a task")  # the fault


def _interrupt() -> None:
    raise KeyboardInterrupt("called later")  # the fault


def _exit_thread() -> None:
    sys.exit("in a thread")  # the fault


def make(endpoint: Endpoint, _settings: object, _host: Host) -> TaskExitingRuntime:
    """Make the runtime of an endpoint."""
    return TaskExitingRuntime(endpoint.name)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``exits-in-tasks``."""
    register("exits-in-tasks", make, workload_types=("container",), schemes=("bad",))
