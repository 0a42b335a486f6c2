"""The ports that the agent opens by its configuration, and the features that its Node declares."""

from __future__ import annotations

from typing import Final

from .tree import AgentConfig

EXTEND_WEBSOCKETS: Final = "ExtendWebSocketsToKubelet"
"""Feature with which exec, attach and port-forward over WebSocket end at the node, not at the API server.

Source: component-helpers, nodedeclaredfeatures/features/extendwebsocketstokubelet.
"""

ALWAYS_DECLARED: Final = (
    "InPlacePodLevelResourcesVerticalScaling",
    "RestartAllContainersOnContainerExits",
)
"""Features that API servers and schedulers allow only on nodes that declare them; sorted."""


def kubelet_port(config: AgentConfig) -> int | None:
    """Port of the kubelet's API; None if it is not served.

    Without a cluster it is served only if the port was set and authorization needs no webhook; a kubelet's
    configuration file usually sets both port and Webhook, and must not fail for that.
    """
    if not config.server.enabled or not config.server.port:
        return None
    is_alone = "server.port" in config.origins and config.auth.mode == "AlwaysAllow"
    return config.server.port if config.cluster.kubeconfig is not None or is_alone else None


def declared_features(config: AgentConfig) -> tuple[str, ...]:
    """Features for status.declaredFeatures, sorted."""
    if kubelet_port(config) is None or not config.server.debugging_handlers:
        return ALWAYS_DECLARED
    return tuple(sorted((*ALWAYS_DECLARED, EXTEND_WEBSOCKETS)))


def listens(config: AgentConfig) -> tuple[tuple[str, int], ...]:
    """(address, port) of all servers; port 0: the server is off."""
    server = config.server
    return (
        (server.healthz_bind_address, server.healthz_port),
        (server.address, server.read_only_port),
        (server.address, kubelet_port(config) or 0),
    )
