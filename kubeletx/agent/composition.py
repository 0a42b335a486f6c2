"""`Composition`: collects the agent's components (`Part`), opens the state database for them, and closes them.

add, add, … ─► open: tables of all parts, then `load` of each in order ─► … ─► close of each in reverse order
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType, TracebackType
from typing import Protocol, Self, TypeVar

from kubeletx.api import AlreadyExists, ClusterObjects
from kubeletx.pods import ExtrasProvider, StatusBoard
from kubeletx.server.views import PartHealth
from kubeletx.store import Store

from .parts.part import Close, Part


class HasPart(Protocol):
    """Protocol of the objects that the factories in `parts/` return: each has a `Part`, and the objects it built."""

    @property
    def part(self) -> Part:
        """The component of the agent that the factory built: its tables, tasks, servers and health checks."""
        ...


R = TypeVar("R", bound=HasPart)


class Composition:
    """Collects the agent's components in the order of `add`. Leaving the context closes them in reverse order."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._objects: dict[str, ClusterObjects] = {}
        self._extras: dict[str, ExtrasProvider] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The components, in the order of `add`."""
        return tuple(self._parts)

    @property
    def objects(self) -> Mapping[str, ClusterObjects]:
        """Access to the API objects that pods refer to, by name of the pods' source.

        The mapping is a live view: it shows components that are added later.
        """
        return MappingProxyType(self._objects)

    @property
    def extras(self) -> Mapping[str, ExtrasProvider]:
        """Providers of further mounts, environment variables and annotations for containers, by name.

        The mapping is a live view: it shows components that are added later.
        """
        return MappingProxyType(self._extras)

    def sources(self) -> frozenset[str]:
        """Return the names of all pod sources."""
        return frozenset(name for part in self._parts for name in part.sources)

    def health(self) -> tuple[PartHealth, ...]:
        """Run the health checks of all components, and return the results in the order of `add`."""
        return tuple(found for part in self._parts for check in part.health for found in check())

    def add(self, room: R) -> R:
        """Add the component `room.part`, and return `room`.

        Raises AlreadyExists if another component has an `ExtrasProvider` (see `extras`) of the same name.
        """
        part = room.part
        if taken := sorted(self._extras.keys() & part.extras.keys()):
            raise AlreadyExists(f"{part.name}: another part has providers of extras {taken}")
        self._parts.append(part)
        self._objects.update(part.objects)
        self._extras.update(part.extras)
        for close in part.close:
            self._stack.push_async_callback(_close, close)
        return room

    async def open(self, store: Store, board: StatusBoard) -> None:
        """Subscribe the components' status listeners to `board`, open the state database, and load the components.

        The database gets the tables of all components; their `load` functions are called in the order of `add`.
        """
        for part in self._parts:
            for listener in part.status_listeners:
                board.subscribe(listener)
        await store.begin([metadata for part in self._parts for metadata in part.tables])
        for part in self._parts:
            if part.load is not None:
                await part.load()


async def _close(close: Close) -> None:
    done = close()
    if inspect.isawaitable(done):
        await done
