"""Parses the runtime endpoints of the configuration; if it has none, looks for the well-known CRI sockets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import structlog

from kubeletx.api import Endpoint, InvalidConfig
from kubeletx.runtimes.binding.selection import HANDLER_MARK
from kubeletx.runtimes.endpoints.discover import describe, discover
from kubeletx.runtimes.endpoints.grammar import is_name, parse_endpoints
from kubeletx.runtimes.endpoints.isolation_rule import check_isolation
from kubeletx.runtimes.endpoints.kinds import KindTable
from kubeletx.runtimes.endpoints.problems import raise_all

from .tree import AgentConfig

log = structlog.get_logger(__name__)


def read_endpoints(config: AgentConfig, kinds: KindTable) -> tuple[Endpoint, ...]:
    """Return the runtime endpoints of flags and configuration file, in order.

    Without any of them, returns no endpoint if there are drop-in files, else the first well-known CRI socket on which
    a runtime listens. Raises InvalidConfig naming each wrong item, Unavailable if no such socket exists. `kinds`: the
    runtime kinds that an endpoint may have.
    """
    images = tuple(endpoint.text for endpoint in config.runtimes.image_endpoints)
    image_places = tuple(endpoint.place for endpoint in config.runtimes.image_endpoints)
    if config.runtimes.endpoints:
        return _read_texts(config, kinds)
    if any(config.runtimes_directory.glob("*.*")):
        return parse_endpoints([], images, kinds, image_places=image_places)
    sockets = discover()
    first = next((endpoint for endpoint in sockets if endpoint.listens), sockets[0])
    log.info("Took the first well-known CRI socket", endpoint=first.item, found=describe(sockets))
    return parse_endpoints([first.item], images, kinds, "discovered", image_places=image_places)


def check_classes(config: AgentConfig, endpoints: Sequence[Endpoint]) -> None:
    """Raise InvalidConfig naming each configured runtime class that refers to no runtime.

    If there are drop-in files in ``runtimes.d``, only the format of the runtime's name is checked: its runtime may be
    added while the agent runs.
    """
    known = {str(endpoint.name) for endpoint in endpoints}
    may_come = any(config.runtimes_directory.glob("*.*"))
    problems = []
    for name, target in config.runtimes.classes.items():
        runtime = target.partition(HANDLER_MARK)[0]
        if is_name(runtime) and (may_come or runtime in known):
            continue
        problems.append(
            InvalidConfig(
                obj=config.origins.get("runtimes.classes", ""),
                field=f"kubeletx.runtimeClasses[{name}]",
                problem=f"{target!r} names no runtime of this node",
                fix=f"write NAME or NAME--HANDLER with one of: {', '.join(sorted(known)) or 'none'}",
            )
        )
    raise_all(problems)


def check_plugins_part(
    config: AgentConfig, kinds: KindTable, others: Mapping[str, type[Any] | None] = MappingProxyType({})
) -> None:
    """Check the endpoints, the runtime classes and the plugins' own settings, which needs the loaded plugins.

    Raises InvalidConfig naming each wrong item. `kinds`: the runtime kinds of the plugins, with their settings.
    `others`: settings types of the plugins' other registrations, by name.
    """
    if config.runtimes.endpoints:
        check_classes(config, _read_texts(config, kinds))
    kinds.decode_settings(config.runtimes.plugins, others=others)
    check_plugin_isolation(config, kinds, tuple(others))


def check_plugin_isolation(config: AgentConfig, kinds: KindTable, others: Collection[str] = ()) -> None:
    """Raise InvalidConfig if ``kubeletx.pluginIsolation`` has an unknown name or value.

    `others`: names of what plugins register in addition to runtime kinds.
    """
    origin = config.origins.get("runtimes.plugin_isolation", "")
    check_isolation(config.runtimes.plugin_isolation, kinds, origin, others)


def _read_texts(config: AgentConfig, kinds: KindTable) -> tuple[Endpoint, ...]:
    texts, images = config.runtimes.endpoints, config.runtimes.image_endpoints
    origin = ", ".join(dict.fromkeys(endpoint.origin for endpoint in texts))
    return parse_endpoints(
        [endpoint.text for endpoint in texts],
        [image_endpoint.text for image_endpoint in images],
        kinds,
        origin,
        places=[endpoint.place for endpoint in texts],
        image_places=[image_endpoint.place for image_endpoint in images],
    )
