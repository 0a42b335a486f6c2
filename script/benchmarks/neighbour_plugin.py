"""Plugin for the benchmarks: a runtime whose flood of events is just below the rate at which the agent closes a stream."""

from __future__ import annotations

from typing import Any

from kubeletx.api import Endpoint, Host, hookimpl
from kubeletx.testing.bad_plugins.floods_events import FloodingRuntime, unknown_events

EVENTS_PER_SECOND = 950


def make_runtime(endpoint: Endpoint, _settings: Any, host: Host) -> FloodingRuntime:
    """Make a runtime that sends events without end."""
    runtime = FloodingRuntime(endpoint.name, per_second=EVENTS_PER_SECOND, clock=host.clock)
    runtime.flood(unknown_events())
    return runtime


@hookimpl
def kubeletx_register_runtimes(register: Any) -> None:
    """Register the runtime kind ``steady-flood``."""
    register("steady-flood", make_runtime, workload_types=("container",), schemes=("steady",))
