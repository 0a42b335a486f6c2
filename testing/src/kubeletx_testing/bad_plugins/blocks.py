"""A runtime that blocks the event loop: it calls ``time.sleep`` in a coroutine.

Fault: a blocking call in a coroutine (``time.sleep``, ``requests.get``, ``subprocess.run``, a lock). While it lasts, no
other task of the agent runs.
What the agent does: the watchdog's thread logs runtime, method and stack after half a second, and again after each
doubling of that time. After ``kubeletx.pluginStallTimeout`` it ends the agent, whose next start runs the plugin in a
process of its own.
Correct code calls blocking libraries in a thread: ``await asyncio.to_thread(function)``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kubeletx.api import Endpoint, Host, RegisterRuntime, SandboxSummary, hookimpl
from kubeletx.testing import FakeRuntime

SECONDS = 3600.0


class BlockingRuntime(FakeRuntime):
    """A `FakeRuntime` whose `list_sandboxes` blocks its thread for an hour."""

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        """Block the thread, then list the sandboxes."""
        time.sleep(SECONDS)  # noqa: ASYNC251 - the fault
        return await super().list_sandboxes(match)


def make(endpoint: Endpoint, _settings: object, _host: Host) -> BlockingRuntime:
    """Make the runtime of an endpoint."""
    return BlockingRuntime(endpoint.name)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``blocks``."""
    register("blocks", make, workload_types=("container",), schemes=("bad",))
