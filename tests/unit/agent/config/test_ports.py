"""What the node declares about its port."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.agent.config.ports import EXTEND_WEBSOCKETS, declared_features
from kubeletx.agent.config.tree import AgentConfig, ClusterSettings, ServerSettings

IN_A_CLUSTER = ClusterSettings(kubeconfig=Path("/etc/kubeletx/kubeconfig"))


@pytest.mark.parametrize(
    ("server", "cluster", "is_declared"),
    [
        (ServerSettings(), IN_A_CLUSTER, True),
        (ServerSettings(), ClusterSettings(), False),
        (ServerSettings(port=0), IN_A_CLUSTER, False),
        (ServerSettings(debugging_handlers=False), IN_A_CLUSTER, False),
    ],
)
def test_websockets_end_at_the_node_only_where_it_serves_streams(
    server: ServerSettings, cluster: ClusterSettings, is_declared: bool
) -> None:
    declared = declared_features(AgentConfig(server=server, cluster=cluster))
    assert (EXTEND_WEBSOCKETS in declared) is is_declared
    assert list(declared) == sorted(declared)
