"""A runtime whose calls raise at once, although it opens and reports that it is ready.

Fault: `health` reports a runtime that serves calls, and each call raises.
What the agent does: it repeats the calls after growing delays, at most every 10 s in the end, with an event for each pod.
Correct code reports in `health` that the runtime is not ready.
"""

from __future__ import annotations

from kubeletx.api import Endpoint, Host, Internal, RegisterRuntime, hookimpl
from kubeletx.testing import FakeRuntime, RecordedCall, Script

CONNECTION = ("open", "close", "version", "health")


class FailingRuntime(FakeRuntime):
    """A fake runtime whose calls raise at once after `fail`, while it opens and reports that it is ready."""

    error: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Raise this error in every call from now on, except those that belong to the connection."""
        self.error = error

    async def _enter(self, method: str, key: str) -> Script | None:
        if self.error is None or method in CONNECTION:
            return await super()._enter(method, key)
        self.counts[method] += 1
        self.journal.append(RecordedCall(method, key, self.clock.monotonic()))
        raise self.error


def _make(endpoint: Endpoint, _settings: object, host: Host) -> FailingRuntime:
    runtime = FailingRuntime(endpoint.name, clock=host.clock)
    runtime.fail(Internal("broken"))
    return runtime


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``fails-at-once``."""
    register("fails-at-once", _make, workload_types=("container",), schemes=("bad",))
