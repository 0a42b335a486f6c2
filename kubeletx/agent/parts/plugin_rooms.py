"""What plugins register beside runtimes; imported and made only when there is some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubeletx.api import ObjectRef

from ..backend.node import NodeBackend
from ..config.tree import AgentConfig
from ..plugins import Plugins
from ..plugins.host_parts import PluginHostParts

if TYPE_CHECKING:
    from ..plugins.rooms import PluginRooms


def make_plugin_rooms(
    config: AgentConfig,
    plugins: Plugins,
    settings: Mapping[str, Any],
    parts: PluginHostParts,
    node: NodeBackend,
) -> PluginRooms | None:
    """The rooms; None when plugins register only runtimes. `settings`: of every name that declares some."""
    if not len(plugins.registrations):
        return None
    from ..plugins.rooms import PluginRooms

    return PluginRooms(
        plugins.registrations,
        parts=parts,
        own_settings=settings,
        settings=config.plugins,
        node=ObjectRef(kind="Node", name=parts.node_name, uid=parts.node_name),
        on_checks=node.checks_changed,
    )
