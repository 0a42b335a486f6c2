"""A runtime whose `capability` returns an object without the methods of the capability, and raises for another one.

Fault: `capability` returns an object for each protocol, whether the object implements it or not.
What the agent does: it does not use these capabilities, and logs each of them when it opens the runtime, with the class
and the missing methods. The other capabilities and the runtime are not affected.
Correct code returns None for a capability that it does not have; `BaseRuntime` does that.
"""

from __future__ import annotations

from typing import TypeVar, cast

from kubeletx.api import (
    Endpoint,
    Host,
    RegisterRuntime,
    SupportsExec,
    SupportsPortForward,
    SupportsStats,
    hookimpl,
)
from kubeletx.testing import FakeRuntime

T = TypeVar("T")


class HalfExec:
    """Has one of the methods of `SupportsExec`."""

    async def exec_sync(self) -> None:
        """Return nothing."""


class LackingRuntime(FakeRuntime):
    """A `FakeRuntime` whose `capability` is wrong for `SupportsStats`, `SupportsExec` and `SupportsPortForward`."""

    def capability(self, protocol: type[T]) -> T | None:
        """Return objects that lack methods, and raise KeyError for `SupportsPortForward`."""
        if protocol in (SupportsStats, SupportsExec):
            return cast("T", HalfExec())  # the fault
        if protocol is SupportsPortForward:
            raise KeyError(protocol.__name__)  # the fault
        return super().capability(protocol)


def make(endpoint: Endpoint, _settings: object, _host: Host) -> LackingRuntime:
    """Make the runtime of an endpoint."""
    return LackingRuntime(endpoint.name)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``lacks-methods``."""
    register("lacks-methods", make, workload_types=("container",), schemes=("bad",))
