"""Prepared hooks: their protocols exist, and registrations are refused with the reason.

The protocols show what a plugin will have to implement. A plugin that registers one is *failed* with the reason, so
that no operator believes it to be in effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from .identity import PodUid
from .plugin_host import PluginHost


class VolumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One volume of one pod, for a driver. `options`: fields of the volume's source, as JSON values."""

    uid: PodUid
    name: str
    options: Mapping[str, Any] = {}
    read_only: bool = False


class VolumeDriver(Protocol):
    """Driver that makes volumes available on this node. Every call may be repeated."""

    async def prepare(self, request: VolumeRequest, target: Path) -> None:
        """Make the volume available at `target`; succeeds if it is there already. A failure leaves nothing behind."""
        ...

    async def release(self, request: VolumeRequest, target: Path) -> None:
        """Remove the volume from `target`; succeeds if it is gone. Also called after a restart of the agent."""
        ...


class RemedyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one remedy. `done` False: the next remedy is tried. `message`: one line for users."""

    done: bool
    message: str = ""


class Remedy(Protocol):
    """Remedy that brings a node that does not answer into a known state, such as switching its power off."""

    async def remedy(self, node: str) -> RemedyResult:
        """Apply the remedy to the node of this name. May be called twice for one outage."""
        ...


VolumeDriverFactory = Callable[[Any, PluginHost], VolumeDriver]
"""(own settings Struct or None, host) → driver. Must not do I/O."""
RemedyFactory = Callable[[Any, PluginHost], Remedy]
"""(own settings Struct or None, host) → remedy. Must not do I/O."""
