"""Finding and loading plugins: entry points in group ``kubeletx``; one broken plugin never stops the others."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Set
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import msgspec
import pluggy
import structlog

from kubeletx.api import ENTRY_POINT_GROUP, InvalidConfig, KubeletxError, hookspecs
from kubeletx.runtimes.endpoints.kinds import Kind, KindTable

log = structlog.get_logger(__name__)

READY: Final = "ready"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"


class LoadedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin that was found. `state`: ready, skipped (registers nothing) or failed, with the reason."""

    name: str
    distribution: str
    version: str
    state: str
    reason: str = ""
    kinds: tuple[str, ...] = ()
    workload_types: tuple[str, ...] = ()


class Plugins(msgspec.Struct, frozen=True, kw_only=True):
    """All plugins, by name, and the kinds that they registered."""

    loaded: tuple[LoadedPlugin, ...]
    kinds: KindTable


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that was imported, and the kinds that it wants to register. `about.state` may be failed already."""

    about: LoadedPlugin
    kinds: tuple[Kind, ...] = ()


def load_plugins(found: Iterable[EntryPoint] | None = None) -> Plugins:
    """Load every installed plugin, in order of name. `found`: instead of the installed ones."""
    points = entry_points(group=ENTRY_POINT_GROUP) if found is None else found
    kinds = KindTable()
    loaded = [take_over(load_candidate(point), kinds) for point in sorted(points, key=lambda p: p.name)]
    return Plugins(loaded=tuple(loaded), kinds=kinds)


def log_plugins(plugins: Plugins) -> None:
    """One line for each plugin."""
    for plugin in plugins.loaded:
        log_plugin(plugin)


def log_plugin(plugin: LoadedPlugin) -> None:
    """One line."""
    report = log.warning if plugin.state == FAILED else log.debug
    report("Loaded plugin", plugin=plugin.name, version=plugin.version, state=plugin.state, err=plugin.reason)


def load_candidate(point: EntryPoint) -> Candidate:
    """Import one plugin and call its hooks. Never raises; may run in a thread."""
    dist = point.dist
    about = LoadedPlugin(
        name=point.name,
        distribution=dist.name if dist is not None else "",
        version=dist.version if dist is not None else "",
        state=FAILED,
    )
    before = set(sys.modules)
    try:
        return _register(about, point.load())
    except KubeletxError as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code: whatever it raises, the others go on
        reason = f"{type(error).__name__}: {error}"
    _forget_modules(point, before)
    return Candidate(about=msgspec.structs.replace(about, reason=reason))


def take_over(candidate: Candidate, kinds: KindTable) -> LoadedPlugin:
    """Add the candidate's kinds to the table: all of them or none."""
    try:
        KindTable((*kinds, *candidate.kinds))  # raises before the first of them is taken over
    except KubeletxError as error:
        return msgspec.structs.replace(candidate.about, state=FAILED, reason=str(error))
    for kind in candidate.kinds:
        kinds.add(kind)
    if candidate.about.state == FAILED:
        return candidate.about
    types = tuple(sorted({word for kind in candidate.kinds for word in kind.workload_types}))
    return msgspec.structs.replace(
        candidate.about, kinds=tuple(kind.name for kind in candidate.kinds), workload_types=types
    )


def _register(about: LoadedPlugin, plugin: object) -> Candidate:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=about.name)
    manager.check_pending()
    own = KindTable()
    result = manager.hook.kubeletx_register_runtimes(register=own.registrar(about.name))
    if any(inspect.iscoroutine(one) for one in result):
        raise InvalidConfig(
            obj=about.name,
            field="kubeletx_register_runtimes",
            problem="the hook is a coroutine function",
            fix="make it a plain function: hooks only register",
        )
    kinds = tuple(own)
    if not kinds:
        return Candidate(about=msgspec.structs.replace(about, state=SKIPPED, reason="registers no runtime"))
    return Candidate(about=msgspec.structs.replace(about, state=READY), kinds=kinds)


def _forget_modules(point: EntryPoint, before: Set[str]) -> None:
    """Unload what a failed import left of the plugin's own package, so that it can be tried again whole."""
    package = point.module.partition(".")[0]
    if package in before:
        return
    for name in list(sys.modules):
        if name == package or name.startswith(f"{package}."):
            del sys.modules[name]
