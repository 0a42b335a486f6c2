"""Kubernetes objects as frozen values, and operations on them that need no cluster.

`core` holds Pod and everything inside it, `node` and `event` the other objects. `load` reads manifests, `defaults`
completes them as an API server would, `validation` lists everything that is invalid in them.
"""

from .types.core import Container, Pod, PodList, PodSpec, PodStatus
from .types.event import Event
from .types.node import Node

__all__ = ["Container", "Event", "Node", "Pod", "PodList", "PodSpec", "PodStatus"]
