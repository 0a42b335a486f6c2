"""Finds remedies that plugins register: entry points in group ``kubeletx`` with the hook `kubeletx_register_remedies`.

A plugin that cannot be loaded is logged, and does not stop the others. The agent checks plugins in more depth
(``kubeletx plugins``); here only remedies are of interest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy
import structlog

from kubeletx.api import ENTRY_POINT_GROUP, RemedyFactory, hookspecs

log = structlog.get_logger(__name__)


def load_remedies(points: Iterable[EntryPoint] | None = None) -> Mapping[str, RemedyFactory]:
    """Import all plugins and return the factories of their remedies, by name. Blocks while it imports.

    `points`: entry points to load; None: all installed ones. Of two remedies with one name the first one is used.
    """
    factories: dict[str, RemedyFactory] = {}
    found = entry_points(group=ENTRY_POINT_GROUP) if points is None else points
    for point in sorted(found, key=lambda point: point.name):
        own: dict[str, RemedyFactory] = {}

        def register(name: str, factory: RemedyFactory, own: dict[str, RemedyFactory] = own) -> None:
            if not name or not callable(factory):
                raise TypeError(f"remedy {name!r}: the factory is not callable")
            own[name] = factory

        try:
            _hook(point).kubeletx_register_remedies(register=register)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of a plugin may raise anything
            log.warning("Cannot load a plugin", plugin=point.name, err=f"{type(error).__name__}: {error}")
            continue
        for name, factory in own.items():
            if name in factories:
                log.warning("Another plugin has registered this remedy", plugin=point.name, remedy=name)
            factories.setdefault(name, factory)
    return factories


def _hook(point: EntryPoint) -> Any:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(point.load(), name=point.name)
    return manager.hook
