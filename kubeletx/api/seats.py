"""Protocol of a hook that the agent does not support yet: remedies for other nodes.

It shows what a plugin will have to implement. A plugin that registers such an object now is loaded as *failed*, with
the reason, so that no operator believes that the object is in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from .plugin_host import PluginHost


class RemedyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `Remedy.remedy`. `done` False: the next registered remedy is tried. `message`: one line for users."""

    done: bool
    message: str = ""


class Remedy(Protocol):
    """Brings a node that does not answer into a known state, for example by switching its power off."""

    async def remedy(self, node: str) -> RemedyResult:
        """Apply the remedy to the node with the name `node`. May be called more than once for the same outage."""
        ...


RemedyFactory = Callable[[Any, PluginHost], Remedy]
"""Function from the plugin's settings (None if there are none) and its `PluginHost` to the remedy. Must not do I/O."""
