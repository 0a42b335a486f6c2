"""Kubernetes objects as frozen values, and what can be said about them without a cluster.

`core` holds Pod and everything inside it, `node` and `event` the other objects. `load` reads manifests,
`defaults` completes them as an API server would, `validation` says everything that is wrong with them.
"""

from .types.core import Container, Pod, PodList, PodSpec, PodStatus
from .types.event import Event
from .types.node import Node

__all__ = ["Container", "Event", "Node", "Pod", "PodList", "PodSpec", "PodStatus"]
