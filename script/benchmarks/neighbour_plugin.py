"""Plugin for the benchmarks: a runtime whose flood of events is just below the rate at which the agent closes a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from kubeletx.api import Endpoint, Host, RuntimeEvent, hookimpl
from kubeletx.testing import FakeRuntime
from kubeletx_testing.bad_plugins.floods_events import unknown_events

EVENTS_PER_SECOND = 950
_PAUSE_SECONDS = 0.001


class SteadyFlood(FakeRuntime):
    """A runtime in memory with `EVENTS_PER_SECOND` events, most of them alone: each wakes its reader."""

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield events without end, also those that a late wake-up has missed."""
        next_event, sent = unknown_events(), 0
        began = self.clock.monotonic()
        while True:
            while sent < (self.clock.monotonic() - began) * EVENTS_PER_SECOND:
                sent += 1
                yield next_event()
            await self.clock.sleep(_PAUSE_SECONDS)


def make_runtime(endpoint: Endpoint, _settings: Any, host: Host) -> SteadyFlood:
    """Make a runtime that sends events without end."""
    return SteadyFlood(endpoint.name, clock=host.clock)


@hookimpl
def kubeletx_register_runtimes(register: Any) -> None:
    """Register the runtime kind ``steady-flood``."""
    register("steady-flood", make_runtime, workload_types=("container",), schemes=("steady",))
