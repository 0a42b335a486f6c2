"""Optional helpers for authors of runtime plugins.

`BaseRuntime` implements the methods that are the same in most runtimes; `matching` and `stop_with_grace` are logic that
nearly every runtime needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from .host import Endpoint, Host
from .observed import RuntimeHealth, SandboxSummary, Traits, UnitSummary

T = TypeVar("T")
S = TypeVar("S", SandboxSummary, UnitSummary)


class BaseRuntime:
    """Optional base class of a `Runtime`; implements `traits`, `capability`, `open`, `close` and `health`.

    The plugin's author adds the other methods of `Runtime`. A runtime does not have to use this class.
    """

    declared: ClassVar[Traits] = Traits()
    """Value returned by `traits`."""
    capabilities: ClassVar[tuple[type, ...]] = ()
    """The capability protocols that this object itself implements."""

    def __init__(self, endpoint: Endpoint, settings: Any, host: Host) -> None:
        """Store the arguments that a `RuntimeFactory` gets. No I/O."""
        self.endpoint = endpoint
        self.settings = settings
        self.host = host

    async def open(self) -> None:
        """Do nothing. Override it to connect to a backend."""

    async def close(self) -> None:
        """Do nothing. Override it to disconnect from a backend."""

    def traits(self) -> Traits:
        """Return the class attribute `declared`."""
        return self.declared

    def capability(self, protocol: type[T]) -> T | None:
        """Return this object if `protocol` is one of the class attribute `capabilities`; else None."""
        return self if protocol in self.capabilities and isinstance(self, protocol) else None

    async def health(self) -> RuntimeHealth:
        """Always report that runtime and network are ready. Override it if there is a backend that can fail."""
        return RuntimeHealth(runtime_ready=True, network_ready=True)


def matching(summaries: Iterable[S], match: Mapping[str, str]) -> list[S]:
    """Return the summaries whose labels contain every pair of `match`, in the order given; all if `match` is empty."""
    return [summary for summary in summaries if match.items() <= summary.labels.items()]


async def stop_with_grace(
    *,
    ask: Callable[[], Awaitable[object]],
    kill: Callable[[], Awaitable[object]],
    wait: Callable[[], Awaitable[object]],
    grace_seconds: float,
) -> None:
    """Stop a unit as `Runtime.stop_unit` requires: call `ask`, wait up to `grace_seconds`, then `kill` it and wait.

    With `grace_seconds` 0, `ask` is not called and the unit is killed at once. `wait` must return once the unit
    has ended, immediately if it has ended already; it is cancelled at the end of the grace period. After `kill`
    it is called again without a time limit: the agent cancels the whole call at its deadline. Errors of all
    three functions are passed on.
    """
    import asyncio  # here: the command line imports this package and must start quickly

    if grace_seconds > 0:
        await ask()
        with suppress(TimeoutError):  # the grace period is over: kill
            async with asyncio.timeout(grace_seconds):
                await wait()
                return
    await kill()
    await wait()
