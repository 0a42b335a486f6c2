"""Conveniences for plugin authors: everything here can be done without, nothing here adds to the contract.

`BaseRuntime` answers what most runtimes answer alike; `matching` and `stop_with_grace` are the two pieces of
logic that nearly every runtime needs.
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
    """The part of a `Runtime` that declares and connects; the rest is the author's.

    A runtime need not inherit from it: any class with the methods of `Runtime` will do.
    """

    declared: ClassVar[Traits] = Traits()
    """Value returned by `traits`."""
    capabilities: ClassVar[tuple[type, ...]] = ()
    """The protocols that this object answers for itself, with the methods of each."""

    def __init__(self, endpoint: Endpoint, settings: Any, host: Host) -> None:
        """The shape of every factory: keeps what it is given, no I/O."""
        self.endpoint = endpoint
        self.settings = settings
        self.host = host

    async def open(self) -> None:
        """Do nothing: there is nothing to connect to."""

    async def close(self) -> None:
        """Do nothing: there is nothing to disconnect from."""

    def traits(self) -> Traits:
        """Return `declared`."""
        return self.declared

    def capability(self, protocol: type[T]) -> T | None:
        """This object for the protocols of `capabilities`, None for all others."""
        return self if protocol in self.capabilities and isinstance(self, protocol) else None

    async def health(self) -> RuntimeHealth:
        """Ready, always: the backend is the node itself."""
        return RuntimeHealth(runtime_ready=True, network_ready=True)


def matching(summaries: Iterable[S], match: Mapping[str, str]) -> list[S]:
    """Filter by labels that contain every pair of `match`, in order; an empty `match` keeps all."""
    return [one for one in summaries if match.items() <= one.labels.items()]


async def stop_with_grace(
    *,
    ask: Callable[[], Awaitable[object]],
    kill: Callable[[], Awaitable[object]],
    wait: Callable[[], Awaitable[object]],
    grace_seconds: float,
) -> None:
    """End something as `Runtime.stop_unit` has to: ask, wait `grace_seconds` (0: do not ask), kill, wait.

    `wait` returns once it has ended, at once if it has; it is cancelled when the grace is over and called again
    after the kill, then without a limit: the host sets deadlines. Errors of all three pass through.
    """
    import asyncio  # here: the command line imports this package and must start quickly

    if grace_seconds > 0:
        await ask()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await wait()
                return
    await kill()
    await wait()
