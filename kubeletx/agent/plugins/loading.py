"""Finds and loads plugins, which are entry points in group ``kubeletx``.

One broken plugin never stops the others.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Set
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec
import pluggy
import structlog

from kubeletx.api import ENTRY_POINT_GROUP, InvalidConfig, KubeletxError, hookspecs
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind

from .registrations import Registration, Registrations, check_kind_names, registrars

log = structlog.get_logger(__name__)

READY: Final = "ready"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"


class LoadedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin that was found, with its state: ready, skipped (registers nothing) or failed, and the reason."""

    name: str
    distribution: str
    version: str
    state: str
    reason: str = ""
    kinds: tuple[str, ...] = ()
    workload_types: tuple[str, ...] = ()
    registrations: tuple[Registration, ...] = ()
    """Its registrations other than runtime kinds."""


class Plugins(msgspec.Struct, frozen=True, kw_only=True):
    """All plugins by name, and their registrations."""

    loaded: tuple[LoadedPlugin, ...]
    kinds: KindTable
    registrations: Registrations = msgspec.field(default_factory=Registrations)

    def decode_settings(self, sections: Mapping[str, Any], origin: str = "") -> dict[str, Any]:
        """Decode the settings of every kind and registration, by name; see `KindTable.decode_settings`."""
        return self.kinds.decode_settings(sections, origin, self.registrations.settings())


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An imported plugin and what it wants to register. `about.state` is failed if the import or a hook failed."""

    about: LoadedPlugin
    kinds: tuple[RuntimeKind, ...] = ()
    registrations: tuple[Registration, ...] = ()


def load_plugins(found: Iterable[EntryPoint] | None = None) -> Plugins:
    """Load every plugin, in the order of names. `found`: entry points to load instead of the installed ones."""
    points = entry_points(group=ENTRY_POINT_GROUP) if found is None else found
    kinds, registrations = KindTable(), Registrations()
    loaded = [
        take_over(load_candidate(point), kinds, registrations)
        for point in sorted(points, key=lambda p: p.name)
    ]
    return Plugins(loaded=tuple(loaded), kinds=kinds, registrations=registrations)


def log_plugins(plugins: Plugins) -> None:
    """Log one line for each plugin."""
    for plugin in plugins.loaded:
        log_plugin(plugin)


def log_plugin(plugin: LoadedPlugin) -> None:
    """Log one line for the plugin."""
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
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything, SystemExit too; the others go on
        reason = f"{type(error).__name__}: {error}"
    _forget_modules(point, before)
    return Candidate(about=msgspec.structs.replace(about, reason=reason))


def take_over(candidate: Candidate, kinds: KindTable, registrations: Registrations) -> LoadedPlugin:
    """Add the candidate's registrations to the tables, all of them or none. Returns the plugin with its state."""
    try:  # raises before the first of them is taken over
        all_kinds = KindTable((*kinds, *candidate.kinds))
        check_kind_names(Registrations((*registrations, *candidate.registrations)), all_kinds)
    except KubeletxError as error:
        return msgspec.structs.replace(candidate.about, state=FAILED, reason=str(error))
    for kind in candidate.kinds:
        kinds.add(kind)
    for registration in candidate.registrations:
        registrations.add(registration)
    if candidate.about.state == FAILED:
        return candidate.about
    types = tuple(sorted({word for kind in candidate.kinds for word in kind.workload_types}))
    return msgspec.structs.replace(
        candidate.about,
        kinds=tuple(kind.name for kind in candidate.kinds),
        workload_types=types,
        registrations=candidate.registrations,
    )


def _register(about: LoadedPlugin, plugin: object) -> Candidate:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=about.name)
    manager.check_pending()
    own_kinds, own = KindTable(), Registrations()
    hooks = {"kubeletx_register_runtimes": own_kinds.registrar(about.name), **registrars(own, about.name)}
    for name, register in hooks.items():
        _refuse_coroutines(about.name, name, getattr(manager.hook, name)(register=register))
    kinds, registrations = tuple(own_kinds), tuple(own)
    if not kinds and not registrations:
        return Candidate(about=msgspec.structs.replace(about, state=SKIPPED, reason="registers nothing"))
    ready = msgspec.structs.replace(about, state=READY)
    return Candidate(about=ready, kinds=kinds, registrations=registrations)


def _refuse_coroutines(plugin: str, hook: str, results: Iterable[object]) -> None:
    for result in results:
        if inspect.iscoroutine(result):
            result.close()
            raise InvalidConfig(
                obj=plugin,
                field=hook,
                problem="the hook is a coroutine function",
                fix="make it a plain function: hooks only register",
            )


def _forget_modules(point: EntryPoint, before: Set[str]) -> None:
    """Unload the modules that a failed import left, so that the whole plugin can be imported again."""
    package = point.module.partition(".")[0]
    if package in before:
        return
    for name in list(sys.modules):
        if name == package or name.startswith(f"{package}."):
            del sys.modules[name]
