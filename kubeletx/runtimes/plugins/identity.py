"""`PluginIdentity`: which plugin some code belongs to, as messages show it; and whether it is one of this repository."""

from __future__ import annotations

import re
from typing import Final

import msgspec

OWN_DISTRIBUTIONS: Final = frozenset(
    {"kubeletx", "kubeletx-containerd", "kubeletx-libvirt", "kubeletx-quark", "kubeletx-flexvolume"}
)
"""The distributions of this repository, by normalised name. The examples are not among them."""


class PluginIdentity(msgspec.Struct, frozen=True):
    """Name of a plugin's entry point, and name and version of its distribution; empty if unknown."""

    name: str = ""
    distribution: str = ""
    version: str = ""

    def __str__(self) -> str:
        """Return a text such as ``plugin wasm (kubeletx-wasm 0.1.0)``."""
        source = " ".join(part for part in (self.distribution, self.version) if part)
        return f"plugin {self.name or '?'}" + (f" ({source})" if source else "")

    @property
    def key(self) -> tuple[str, str]:
        """Normalised name of the distribution, and name of the plugin: equal for all versions of one plugin."""
        return normal_name(self.distribution), self.name

    @property
    def is_own(self) -> bool:
        """True if the distribution belongs to this repository, or is unknown: then the agent itself has the code."""
        return not self.distribution or normal_name(self.distribution) in OWN_DISTRIBUTIONS


def normal_name(distribution: str) -> str:
    """Return the distribution's name in normalised form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
