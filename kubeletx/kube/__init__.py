"""Kubernetes objects as frozen msgspec Structs, functions on them, and a client of an API server.

`types.core` has Pod and all its parts, `types.node` and `types.event` have Node and Event. `manifests.load` reads
manifests, `manifests.defaults` sets the defaults that an API server would set, and `validation` lists all mistakes in a
pod. Only `client` needs a cluster.
"""

from .types.core import Container, Pod, PodList, PodSpec, PodStatus
from .types.event import Event
from .types.node import Node

__all__ = ["Container", "Event", "Node", "Pod", "PodList", "PodSpec", "PodStatus"]
