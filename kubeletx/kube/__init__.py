"""Kubernetes objects as frozen msgspec Structs, functions on them, and a client of an API server.

`types.core` has Pod and all its parts, `types.node` and `types.event` have Node and Event. `manifests.load` reads
manifests, `manifests.defaults` sets the defaults that an API server would set, and `validation` lists all mistakes in a
pod. Only `client` needs a cluster.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .types.core import Container, Pod, PodList, PodSpec, PodStatus
    from .types.event import Event
    from .types.node import Node

__all__ = ["Container", "Event", "Node", "Pod", "PodList", "PodSpec", "PodStatus"]


def __getattr__(name: str) -> object:
    """Import the type at its first use: a command that needs none of them is quicker without them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = {"Event": "event", "Node": "node"}.get(name, "core")
    return getattr(import_module(f"{__name__}.types.{home}"), name)
