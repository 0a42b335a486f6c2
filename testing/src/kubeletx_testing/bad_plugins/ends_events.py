"""A runtime whose event stream ends at once, each time that it is opened.

Fault: the iterator of `events` stops although the runtime is open and answers.
What the agent does: it opens the stream again after growing delays, at most every 10 s in the end, lists the runtime
each second meanwhile, and logs the loss of the stream once.
Correct code ends the stream only if the runtime is closed or does not answer any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from kubeletx.api import Endpoint, Host, RegisterRuntime, RuntimeEvent, hookimpl
from kubeletx.testing import FakeRuntime


class EndingEventsRuntime(FakeRuntime):
    """A fake runtime whose event stream ends at once."""

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield nothing."""
        self.counts["events"] += 1
        nothing: tuple[RuntimeEvent, ...] = ()
        for event in nothing:
            yield event


def _make(endpoint: Endpoint, _settings: object, host: Host) -> EndingEventsRuntime:
    return EndingEventsRuntime(endpoint.name, clock=host.clock)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``ends-events``."""
    register("ends-events", _make, workload_types=("container",), schemes=("bad",))
