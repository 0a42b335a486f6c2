"""A sink for a reflector of pods that keeps only the pods' names."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletx.kube.types.core import ObjectMeta, Pod


class NamesSink:
    """Implements `kubeletx.kube.client.ReflectorSink`, and keeps the names of the existing pods in `names`.

    A pod that cannot be decoded fails the test.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()

    def replace(self, items: Sequence[Pod], unreadable: Sequence[ObjectMeta]) -> None:
        """Replace all names by the names of `items`."""
        assert not unreadable
        self.names = {item.name for item in items}

    def put(self, item: Pod) -> None:
        """Add the pod's name."""
        self.names.add(item.name)

    def drop(self, item: Pod) -> None:
        """Remove the pod's name."""
        self.names.discard(item.name)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Fail the test, since a pod cannot be decoded."""
        raise AssertionError(problem)
