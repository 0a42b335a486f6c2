"""Helpers for plugin authors; a plugin may do without all of them.

`BaseRuntime` has the methods that most runtimes implement alike; `matching` and `stop_with_grace` are logic that nearly
every runtime needs.
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
    """Optional base class of a `Runtime`: `traits`, `capability`, `open`, `close` and `health` for most backends.

    The author adds the other methods. Any class with the methods of `Runtime` will do as well.
    """

    declared: ClassVar[Traits] = Traits()
    """Value returned by `traits`."""
    capabilities: ClassVar[tuple[type, ...]] = ()
    """The capability protocols that this object itself implements."""

    def __init__(self, endpoint: Endpoint, settings: Any, host: Host) -> None:
        """Store the arguments that every `RuntimeFactory` gets. No I/O."""
        self.endpoint = endpoint
        self.settings = settings
        self.host = host

    async def open(self) -> None:
        """Do nothing: there is no backend to connect to. Override it if there is one."""

    async def close(self) -> None:
        """Do nothing: there is no backend to disconnect from."""

    def traits(self) -> Traits:
        """Return `declared`, the traits that the class declares."""
        return self.declared

    def capability(self, protocol: type[T]) -> T | None:
        """Return this object for a protocol in `capabilities`, None for all others."""
        return self if protocol in self.capabilities and isinstance(self, protocol) else None

    async def health(self) -> RuntimeHealth:
        """Report that the runtime is ready, always: without a backend nothing can be down."""
        return RuntimeHealth(runtime_ready=True, network_ready=True)


def matching(summaries: Iterable[S], match: Mapping[str, str]) -> list[S]:
    """Return the summaries whose labels contain every pair of `match`, in order. An empty `match` keeps all."""
    return [one for one in summaries if match.items() <= one.labels.items()]


async def stop_with_grace(
    *,
    ask: Callable[[], Awaitable[object]],
    kill: Callable[[], Awaitable[object]],
    wait: Callable[[], Awaitable[object]],
    grace_seconds: float,
) -> None:
    """Stop something as `Runtime.stop_unit` must: `ask`, wait `grace_seconds` (0: do not ask), `kill`, wait.

    `wait` returns once the thing has ended, immediately if it has ended already. It is cancelled when the
    grace period is over, and called again after `kill`, then without a limit, since the host sets deadlines.
    Errors of all three functions are passed on.
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
