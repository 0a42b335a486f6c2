"""Finding and loading plugins: entry points in group ``kubeletx``; one broken plugin never stops the others."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import msgspec
import pluggy
import structlog

from kubeletx.api import ENTRY_POINT_GROUP, InvalidConfig, KubeletxError, hookspecs
from kubeletx.runtimes.endpoints.kinds import KindTable

log = structlog.get_logger(__name__)


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


def load_plugins(found: Iterable[EntryPoint] | None = None) -> Plugins:
    """Load every installed plugin, in order of name. `found`: instead of the installed ones."""
    points = entry_points(group=ENTRY_POINT_GROUP) if found is None else found
    kinds = KindTable()
    loaded = [_load(point, kinds) for point in sorted(points, key=lambda p: p.name)]
    return Plugins(loaded=tuple(loaded), kinds=kinds)


def log_plugins(plugins: Plugins) -> None:
    """One line for each plugin."""
    for plugin in plugins.loaded:
        report = log.warning if plugin.state == "failed" else log.debug
        report(
            "Loaded plugin", plugin=plugin.name, version=plugin.version, state=plugin.state, err=plugin.reason
        )


def _load(point: EntryPoint, kinds: KindTable) -> LoadedPlugin:
    dist = point.dist
    about = LoadedPlugin(
        name=point.name,
        distribution=dist.name if dist is not None else "",
        version=dist.version if dist is not None else "",
        state="failed",
    )
    try:
        return _register(about, point.load(), kinds)
    except KubeletxError as error:
        return msgspec.structs.replace(about, reason=str(error))
    except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises, the others go on
        return msgspec.structs.replace(about, reason=f"{type(error).__name__}: {error}")


def _register(about: LoadedPlugin, plugin: object, kinds: KindTable) -> LoadedPlugin:
    """Let one plugin register into a table of its own first, so that a half-failed one leaves nothing."""
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
    names = tuple(kind.name for kind in own)
    KindTable((*kinds, *own))  # raises before the first of them is taken over
    for kind in own:
        kinds.add(kind)
    if not names:
        return msgspec.structs.replace(about, state="skipped", reason="registers no runtime")
    types = tuple(sorted({word for kind in own for word in kind.workload_types}))
    return msgspec.structs.replace(about, state="ready", kinds=names, workload_types=types)
