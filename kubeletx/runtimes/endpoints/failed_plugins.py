"""`FailedPlugin`: an installed plugin that is not loaded, and whether it may serve an endpoint or register a name.

Such a plugin makes an endpoint a runtime that is not ready, with the reason; without it the agent refuses the endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from kubeletx.api import InvalidConfig

from ..plugins.identity import PluginIdentity


class ServingKind(Protocol):
    """The part of a `RuntimeKind` that says which endpoints it serves."""

    @property
    def name(self) -> str:
        """Unique name of the kind."""
        ...

    @property
    def workload_types(self) -> tuple[str, ...]:
        """The workload types that it serves."""
        ...

    def serves(self, workload_type: str, scheme: str) -> bool:
        """Return True if the kind serves this workload type and URL scheme."""
        ...


class PluginMissing(InvalidConfig):
    """No loaded plugin serves an endpoint, but an installed plugin that is not loaded may serve it.

    The message names these plugins, with the reason why each is not loaded.
    """


class FailedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """An installed plugin that is not loaded. `reason`: why, with what to do.

    `kinds`: the runtime kinds that it registers, if `knows_kinds`; without it they are unknown, since the plugin could
    not be imported. `names`: names of its other registrations.
    """

    plugin: PluginIdentity
    reason: str
    kinds: tuple[ServingKind, ...] = ()
    names: tuple[str, ...] = ()
    knows_kinds: bool = False

    def may_register(self, name: str) -> bool:
        """Return True if the plugin may register a runtime kind or another thing of this name."""
        return not self.knows_kinds or name in self.names or any(kind.name == name for kind in self.kinds)

    def is_named(self, name: str) -> bool:
        """Return True if the plugin, or a kind that it registers, has this name."""
        return any(kind.name == name for kind in self.kinds) or (
            not self.knows_kinds and self.plugin.name == name
        )

    def may_serve(self, workload_type: str, scheme: str) -> bool:
        """Return True if the plugin may serve this workload type and URL scheme."""
        return not self.knows_kinds or any(kind.serves(workload_type, scheme) for kind in self.kinds)


def describe_failed(plugins: Sequence[FailedPlugin]) -> str:
    """Return the names of the plugins, each with the reason why it is not loaded."""
    return "; ".join(f"{plugin.plugin} is not loaded: {plugin.reason}" for plugin in plugins)
