"""From the configured endpoint texts to endpoints; with none, the well-known CRI sockets are looked for."""

from __future__ import annotations

import structlog

from kubeletx.api import Endpoint
from kubeletx.runtimes.discover import describe, discover
from kubeletx.runtimes.endpoints import parse_endpoints
from kubeletx.runtimes.kinds import KindTable

from .config import AgentConfig

log = structlog.get_logger(__name__)


def read_endpoints(config: AgentConfig, kinds: KindTable) -> tuple[Endpoint, ...]:
    """The endpoints of flags and configuration, in order. Raises InvalidConfig naming each wrong item."""
    images = tuple(one.text for one in config.runtimes.image_endpoints)
    image_places = tuple(one.place for one in config.runtimes.image_endpoints)
    if config.runtimes.endpoints:
        return _read_texts(config, kinds)
    if any(config.runtimes_directory.glob("*.*")):
        return parse_endpoints([], images, kinds, image_places=image_places)
    found = discover()
    first = next((one for one in found if one.listens), found[0])
    log.info("Took the first well-known CRI socket", endpoint=first.item, found=describe(found))
    return parse_endpoints([first.item], images, kinds, "discovered", image_places=image_places)


def check_plugins_part(config: AgentConfig, kinds: KindTable) -> None:
    """What only plugins can judge: endpoints and settings of kinds. Raises InvalidConfig naming each wrong item."""
    if config.runtimes.endpoints:
        _read_texts(config, kinds)
    kinds.decode_settings(config.runtimes.plugins)


def _read_texts(config: AgentConfig, kinds: KindTable) -> tuple[Endpoint, ...]:
    texts, images = config.runtimes.endpoints, config.runtimes.image_endpoints
    origin = ", ".join(dict.fromkeys(one.origin for one in texts))
    return parse_endpoints(
        [one.text for one in texts],
        [one.text for one in images],
        kinds,
        origin,
        places=[one.place for one in texts],
        image_places=[one.place for one in images],
    )
