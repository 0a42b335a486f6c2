"""The ports on which the agent listens, and the features that its Node declares, by the configuration."""

from __future__ import annotations

import ipaddress
from typing import Final

from .tree import AgentConfig

EXTEND_WEBSOCKETS: Final = "ExtendWebSocketsToKubelet"
"""Feature: the API server passes WebSocket streams of exec, attach and port-forward on to the node unchanged.

Source: component-helpers, nodedeclaredfeatures/features/extendwebsocketstokubelet.
"""

ALWAYS_DECLARED: Final = (
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
)
"""Features that the agent always declares, sorted; API servers and schedulers allow them only on nodes that do."""


def kubelet_port(config: AgentConfig) -> int | None:
    """Return the port of the kubelet's API; None if the API is not served.

    With a kubeconfig it is served unless it is disabled. Without a kubeconfig it is served only if the port is set
    explicitly and the authorization mode is AlwaysAllow; port and mode Webhook, which many kubelet configuration
    files set, are then not an error.
    """
    if not config.server.enabled or not config.server.port:
        return None
    is_alone = "server.port" in config.origins and config.auth.mode == "AlwaysAllow"
    return config.server.port if config.cluster.kubeconfig is not None or is_alone else None


def declared_features(config: AgentConfig) -> tuple[str, ...]:
    """Return the features for status.declaredFeatures of the Node, sorted."""
    if kubelet_port(config) is None or not config.server.debugging_handlers:
        return ALWAYS_DECLARED
    return tuple(sorted((*ALWAYS_DECLARED, EXTEND_WEBSOCKETS)))


def split_address(text: str) -> tuple[str, int]:
    """Split ``IP:PORT`` or ``[IPv6]:PORT``. Raises ValueError for anything else, and for port 0."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        ipaddress.IPv6Address(host)
    else:
        ipaddress.IPv4Address(host)
    if not (port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"{port!r} is not a port")
    return host, int(port)


def listens(config: AgentConfig) -> tuple[tuple[str, int], ...]:
    """Return (address, port) of the TCP servers: health, read-only, kubelet's API, sessions; port 0: it is off."""
    server = config.server
    address = config.sessions.address
    return (
        *((split_address(address),) if address is not None else ()),
        (server.healthz_bind_address, server.healthz_port),
        (server.address, server.read_only_port),
        (server.address, kubelet_port(config) or 0),
    )
