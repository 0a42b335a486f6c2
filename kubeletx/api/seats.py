"""Protocols of hooks that the agent does not support yet: volume drivers, and remedies for other nodes.

They show what a plugin will have to implement. A plugin that registers such an object now is loaded as *failed*, with
the reason, so that no operator believes that the object is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from .identity import PodUid
from .plugin_host import PluginHost


class VolumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One volume of one pod, as a `VolumeDriver` gets it.

    `uid`: UID of the pod. `name`: name of the volume in the pod. `options`: fields of the volume's source, as
    JSON values.
    """

    uid: PodUid
    name: str
    options: Mapping[str, Any] = {}
    read_only: bool = False


class VolumeDriver(Protocol):
    """Driver that makes volumes available on this node. Every call may be repeated."""

    async def prepare(self, request: VolumeRequest, target: Path) -> None:
        """Make the volume available at the path `target`; succeeds if it is already there.

        A failed call leaves nothing behind.
        """
        ...

    async def release(self, request: VolumeRequest, target: Path) -> None:
        """Remove the volume from the path `target`; succeeds if it is not there.

        The volume may have been prepared before a restart of the agent.
        """
        ...


class RemedyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `Remedy.remedy`. `done` False: the next registered remedy is tried. `message`: one line for users."""

    done: bool
    message: str = ""


class Remedy(Protocol):
    """Brings a node that does not answer into a known state, for example by switching its power off."""

    async def remedy(self, node: str) -> RemedyResult:
        """Apply the remedy to the node with the name `node`. May be called more than once for the same outage."""
        ...


VolumeDriverFactory = Callable[[Any, PluginHost], VolumeDriver]
"""Function from the plugin's settings (None if there are none) and its `PluginHost` to the driver. Must not do I/O."""
RemedyFactory = Callable[[Any, PluginHost], Remedy]
"""Function from the plugin's settings (None if there are none) and its `PluginHost` to the remedy. Must not do I/O."""
