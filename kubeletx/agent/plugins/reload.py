"""`RunningPlugins`: the plugins of a running agent, and new ones that `kubeletx runtime reload` finds.

Only distributions that were not loaded before are loaded: running code is never replaced. A plugin that failed is tried
again, since its missing dependency may have been installed. Each new plugin is imported in a thread with a deadline,
registers into a table of its own, and is taken over on the event loop, so that one that fails or hangs leaves nothing
behind.

Registrations of a new plugin other than runtimes take effect at the next start of the agent; its state says so.

Python reads ``.pth`` files only at its start: an editable install (``pip install -e``) needs a restart of the agent.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
import structlog

from kubeletx.api import ENTRY_POINT_GROUP, BoundedThreadPool, KubeletxError, Unavailable
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind

from .loading import (
    FAILED,
    READY,
    SKIPPED,
    Candidate,
    LoadedPlugin,
    Plugins,
    load_candidate,
    log_plugin,
    take_over,
)
from .registrations import Registrations

log = structlog.get_logger(__name__)

LOAD_SECONDS = 30.0
"""Deadline of one plugin's import and hooks."""


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a reload. `notes`: changes that need a restart of the agent, one sentence each."""

    plugins: tuple[LoadedPlugin, ...] = ()
    notes: tuple[str, ...] = ()


class RunningPlugins:
    """The plugins of the running agent; `reload` adds new ones. Used from the event loop only."""

    def __init__(
        self,
        plugins: Plugins,
        *,
        on_settings: Callable[[str, Any], None],
        find: Callable[[], Iterable[EntryPoint]] = lambda: entry_points(group=ENTRY_POINT_GROUP),
    ) -> None:
        """`on_settings`: called with the name and the default settings of each new kind.

        `find`: returns the installed entry points.
        """
        self._loaded = {_key(one.distribution, one.name): one for one in plugins.loaded}
        self._kinds = plugins.kinds
        self._on_settings = on_settings
        self._find = find
        self._threads = BoundedThreadPool("plugins")
        self._turn = asyncio.Lock()

    @property
    def loaded(self) -> tuple[LoadedPlugin, ...]:
        """State of each plugin, sorted by name."""
        return tuple(sorted(self._loaded.values(), key=lambda one: one.name))

    def close(self) -> None:
        """End idle threads. A thread that hangs in a plugin does not delay the exit."""
        self._threads.close()

    async def reload(self) -> Reloaded:
        """Load the plugins of new distributions. Never raises for a plugin's failure; its state reports it."""
        async with self._turn:
            points = await self._threads.run(self._scan)
            running = {_word(one.distribution) for one in self._loaded.values() if one.state != FAILED}
            new = [point for point in points if _word(_distribution(point)) not in running]
            found = tuple([await self._load(point) for point in sorted(new, key=lambda point: point.name)])
            return Reloaded(plugins=found, notes=(*self._claims(found), *self._changes(points)))

    def _scan(self) -> list[EntryPoint]:
        importlib.invalidate_caches()
        return list(self._find())

    async def _load(self, point: EntryPoint) -> LoadedPlugin:
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                candidate = await self._threads.run(load_candidate, point)
        except TimeoutError:
            reason = f"was not imported within {LOAD_SECONDS:g} s; reload again once it is repaired"
            candidate = Candidate(about=_about(point, reason))
        except Unavailable as error:
            candidate = Candidate(about=_about(point, str(error)))
        loaded = self._take_over(candidate)
        log_plugin(loaded)
        self._loaded[_key(loaded.distribution, loaded.name)] = loaded
        return loaded

    def _take_over(self, candidate: Candidate) -> LoadedPlugin:
        try:
            # Defaults only: a section of an unknown plugin would have been refused at start.
            settings = KindTable(candidate.kinds).decode_settings({})
        except KubeletxError as error:
            return msgspec.structs.replace(candidate.about, state=FAILED, reason=str(error), kinds=())
        late = ", ".join(one.label for one in candidate.registrations)
        if late and candidate.about.state == READY and not candidate.kinds:
            reason = f"registers {late}: restart the agent to use it"
            return msgspec.structs.replace(candidate.about, state=SKIPPED, reason=reason)
        loaded = take_over(msgspec.structs.replace(candidate, registrations=()), self._kinds, Registrations())
        if late and loaded.state == READY:
            reason = f"registers {late} too: restart the agent to use it"
            loaded = msgspec.structs.replace(loaded, reason=reason)
        if loaded.state == READY:
            for kind, value in settings.items():
                self._on_settings(kind, value)
        return loaded

    def _claims(self, found: Iterable[LoadedPlugin]) -> Iterable[str]:
        """Yield a note for each new kind that claims the same endpoints as another kind."""
        new = {name for plugin in found for name in plugin.kinds}
        for kind in self._kinds:
            rivals = [other.name for other in self._kinds if kind.name in new and _are_rivals(kind, other)]
            if rivals:
                yield (
                    f"kind {kind.name} claims endpoints that {', '.join(rivals)} claims too: name one with "
                    "?plugin=KIND in each such endpoint, or the agent refuses them when it starts again"
                )

    def _changes(self, points: Iterable[EntryPoint]) -> Iterable[str]:
        """Yield a note for each difference between the loaded and the installed plugins."""
        installed = {_key(_distribution(point), point.name): point for point in points}
        for key, loaded in sorted(self._loaded.items()):
            point = installed.pop(key, None)
            if loaded.state == FAILED:
                continue
            if point is None:
                yield f"plugin {loaded.name} is no longer installed; it runs on until the agent is restarted"
            elif (version := _version(point)) != loaded.version:
                yield (
                    f"plugin {loaded.name} {loaded.version} runs on; restart the agent to use the installed "
                    f"{version}"
                )
        for _, point in sorted(installed.items()):
            yield (
                f"plugin {point.name} is new in {_distribution(point)}, which is loaded already; restart the "
                "agent to use it"
            )


def _about(point: EntryPoint, reason: str) -> LoadedPlugin:
    return LoadedPlugin(
        name=point.name,
        distribution=_distribution(point),
        version=_version(point),
        state=FAILED,
        reason=reason,
    )


def _are_rivals(one: RuntimeKind, other: RuntimeKind) -> bool:
    return (
        one is not other
        and one.default_claim
        and other.default_claim
        and not set(one.workload_types).isdisjoint(other.workload_types)
        and not set(one.schemes).isdisjoint(other.schemes)
    )


def _key(distribution: str, name: str) -> tuple[str, str]:
    return _word(distribution), name


def _word(distribution: str) -> str:
    """A distribution's name in normalised form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else ""


def _version(point: EntryPoint) -> str:
    return point.dist.version if point.dist is not None else ""
