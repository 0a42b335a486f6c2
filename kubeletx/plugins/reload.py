"""`RunningPlugins`: the plugins of a running agent; loads new ones for `kubeletx runtime reload`.

Only plugins of distributions that are not loaded yet are loaded; running code is never replaced. A plugin that failed
is tried again, since a missing dependency may have been installed. A new plugin is imported in a child process, one of
this repository on a thread, with a deadline. Its registrations are added to the agent's tables only after that
succeeded. A plugin that fails or hangs therefore changes nothing.

Only the runtimes of a new plugin can be used at once. Its other registrations take effect at the next start of the
agent; the plugin's state says so.

Python reads ``.pth`` files only at its start: an editable install (``pip install -e``) needs a restart of the agent.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import structlog

from kubeletx.api import BoundedThreadPool, KubeletxError, Unavailable
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind
from kubeletx.runtimes.plugins.call_markers import CallMarkers
from kubeletx.runtimes.plugins.identity import normal_name

from .candidates import DISABLED, FAILED, READY, SKIPPED, Candidate, LoadedPlugin
from .claims import settle_claims
from .foreign import imported_elsewhere
from .installed import installed_plugins
from .loading import (
    LOAD_SECONDS,
    Plugins,
    disabled_candidate,
    is_disabled,
    load_candidate,
    log_plugin,
    take_over,
)
from .registrations import Registrations
from .settings import PluginLimits

log = structlog.get_logger(__name__)


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a reload. `plugins`: those loaded now, also failed ones. `notes`: sentences for the operator.

    A note names a conflict between runtime kinds, or a change that needs a restart of the agent.
    """

    plugins: tuple[LoadedPlugin, ...] = ()
    notes: tuple[str, ...] = ()


class RunningPlugins:
    """The plugins of the running agent; `reload` adds new ones. Used from the event loop only."""

    def __init__(
        self,
        plugins: Plugins,
        *,
        on_settings: Callable[[str, Any], None],
        find: Callable[[], Iterable[LoadedPlugin]] = installed_plugins,
        sections: Mapping[str, Any] = MappingProxyType({}),
        settings: PluginLimits,
        markers: CallMarkers | None = None,
    ) -> None:
        """`on_settings`: called with the name and the settings of each new runtime kind.

        `find`: returns the installed plugins. `sections`: the plugins' sections of the configuration. `settings`: as for
        `load_agent_plugins`. `markers`: as for `load_plugins`.
        """
        self._settings = settings
        self._sections = sections
        self._disabled = settings.disabled
        self._markers = markers or CallMarkers(None)
        self._loaded = {plugin.identity.key: plugin for plugin in plugins.loaded}
        self._kinds = plugins.kinds
        self._on_settings = on_settings
        self._find = find
        self._threads = BoundedThreadPool("plugins")
        self._turn = asyncio.Lock()

    @property
    def loaded(self) -> tuple[LoadedPlugin, ...]:
        """State of each plugin, sorted by name."""
        return tuple(sorted(self._loaded.values(), key=lambda plugin: plugin.name))

    def close(self) -> None:
        """Let idle threads end; does not wait for a thread that hangs in the import of a plugin."""
        self._threads.close()

    async def reload(self) -> Reloaded:
        """Load the plugins of newly installed distributions, and plugins that failed before.

        A plugin's failure is not raised; it is in the plugin's state.
        """
        async with self._turn:
            installed = await self._threads.run(self._scan)
            running = {
                normal_name(plugin.distribution) for plugin in self._loaded.values() if plugin.state != FAILED
            }
            new = [plugin for plugin in installed if normal_name(plugin.distribution) not in running]
            candidates = await self._load(new)
            reloaded = tuple(self._enter(candidate) for candidate in settle_claims(candidates))
            return Reloaded(plugins=reloaded, notes=(*self._claims(reloaded), *self._changes(installed)))

    def _scan(self) -> list[LoadedPlugin]:
        importlib.invalidate_caches()
        return list(self._find())

    async def _load(self, plugins: Sequence[LoadedPlugin]) -> list[Candidate]:
        """Import the plugins and return them in their order. Child processes import plugins of other projects."""
        candidates = await imported_elsewhere(plugins, self._settings, self._sections)
        reported = {candidate.about.identity: candidate for candidate in candidates}
        return [reported.get(plugin.identity) or await self._load_here(plugin) for plugin in plugins]

    async def _load_here(self, plugin: LoadedPlugin) -> Candidate:
        if is_disabled(plugin, self._disabled):
            return disabled_candidate(plugin)
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                return await self._threads.run(load_candidate, plugin, self._markers)
        except TimeoutError:
            reason = f"was not imported within {LOAD_SECONDS:g} s; reload again once it is repaired"
            return Candidate(about=msgspec.structs.replace(plugin, reason=reason))
        except Unavailable as error:
            return Candidate(about=msgspec.structs.replace(plugin, reason=str(error)))

    def _enter(self, candidate: Candidate) -> LoadedPlugin:
        """Add the candidate to the agent's tables; return its state, which is logged too."""
        loaded = self._take_over(candidate)
        log_plugin(loaded)
        self._loaded[loaded.identity.key] = loaded
        return loaded

    def _take_over(self, candidate: Candidate) -> LoadedPlugin:
        try:
            # A section of a plugin that failed at start was not decoded then; of an unknown one it was refused.
            own = {kind.name for kind in candidate.kinds if kind.settings is not None}
            sections = {name: value for name, value in self._sections.items() if name in own}
            settings = KindTable(candidate.kinds).decode_settings(sections)
        except KubeletxError as error:
            about = msgspec.structs.replace(candidate.about, state=FAILED, reason=str(error))
            return take_over(msgspec.structs.replace(candidate, about=about), self._kinds, Registrations())
        late = ", ".join(registration.label for registration in candidate.registrations)
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

    def _claims(self, loaded: Iterable[LoadedPlugin]) -> Iterable[str]:
        """Yield a sentence for each new runtime kind that claims the same endpoints as another kind."""
        new = {name for plugin in loaded for name in plugin.kinds}
        for kind in self._kinds:
            rivals = [other.name for other in self._kinds if kind.name in new and _are_rivals(kind, other)]
            if rivals:
                yield (
                    f"kind {kind.name} claims endpoints that {', '.join(rivals)} claims too: name one with "
                    "?plugin=KIND in each such endpoint, or the agent refuses them when it starts again"
                )

    def _changes(self, scanned: Iterable[LoadedPlugin]) -> Iterable[str]:
        """Yield a sentence for each difference between the loaded and the installed plugins."""
        installed = {plugin.identity.key: plugin for plugin in scanned}
        for key, loaded in sorted(self._loaded.items()):
            new = installed.pop(key, None)
            if loaded.state in (FAILED, DISABLED):
                continue
            if new is None:
                yield f"plugin {loaded.name} is no longer installed; it runs on until the agent is restarted"
            elif new.reason:
                yield f"plugin {loaded.name} {loaded.version} runs on; its installed version is damaged: {new.reason}"
            elif new.version != loaded.version:
                yield (
                    f"plugin {loaded.name} {loaded.version} runs on; restart the agent to use the installed "
                    f"{new.version}"
                )
        for _, plugin in sorted(installed.items()):
            yield (
                f"plugin {plugin.name} is new in {plugin.distribution}, which is loaded already; restart the "
                "agent to use it"
            )


def _are_rivals(one: RuntimeKind, other: RuntimeKind) -> bool:
    return (
        one is not other
        and one.default_claim
        and other.default_claim
        and not set(one.workload_types).isdisjoint(other.workload_types)
        and not set(one.schemes).isdisjoint(other.schemes)
    )
