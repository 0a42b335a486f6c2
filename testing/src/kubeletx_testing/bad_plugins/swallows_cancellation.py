"""A runtime whose coroutine catches its cancellation and continues.

Fault: ``except BaseException: continue`` (or ``except asyncio.CancelledError: pass``) in a loop that waits. The deadline
of a call cancels the coroutine once; a coroutine that continues then never returns to its caller.
What the agent does: it abandons the call one second after the deadline, counts it, and continues.
Correct code lets CancelledError pass, and cleans up in ``finally``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from kubeletx.api import Endpoint, Host, RegisterRuntime, RuntimeEvent, UnitSummary, hookimpl
from kubeletx.testing import FakeRuntime


class CancellationSwallowingRuntime(FakeRuntime):
    """A `FakeRuntime` whose `methods` never return, even when they are cancelled, until `release` is called.

    `methods`: names among list_units, close and events.
    """

    def __init__(self, name: str = "swallows", *, methods: Sequence[str] = ("list_units",)) -> None:
        super().__init__(name)
        self.methods = frozenset(methods)
        self._released = asyncio.Event()

    def release(self) -> None:
        """Make all calls that hang return, so that a test leaves no task behind."""
        self._released.set()

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        """Never return, if the method is among `methods`."""
        await self._hang("list_units")
        return await super().list_units(match)

    async def close(self) -> None:
        """Never return, if the method is among `methods`."""
        await self._hang("close")
        await super().close()

    def events(self) -> AsyncIterator[RuntimeEvent]:
        """Return a stream without events that ends only on `release`, if the method is among `methods`."""
        return self._silence() if "events" in self.methods else super().events()

    async def _silence(self) -> AsyncIterator[RuntimeEvent]:
        await self._hang("events")
        nothing: tuple[RuntimeEvent, ...] = ()
        for event in nothing:
            yield event

    async def _hang(self, method: str) -> None:
        while method in self.methods and not self._released.is_set():
            with contextlib.suppress(asyncio.CancelledError):  # the fault
                await self._released.wait()


def _make(endpoint: Endpoint, _settings: object, _host: Host) -> CancellationSwallowingRuntime:
    return CancellationSwallowingRuntime(endpoint.name)


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``swallows-cancellation``."""
    register("swallows-cancellation", _make, workload_types=("container",), schemes=("bad",))
