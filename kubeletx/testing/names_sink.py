"""A sink for a reflector of pods that keeps their names alone."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletx.kube.types.core import ObjectMeta, Pod


class NamesSink:
    """Implements `kube.client.ReflectorSink`; an undecodable object fails the test."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def replace(self, items: Sequence[Pod], unreadable: Sequence[ObjectMeta]) -> None:
        """Replace all names."""
        assert not unreadable
        self.names = {one.name for one in items}

    def put(self, item: Pod) -> None:
        """Add a name."""
        self.names.add(item.name)

    def drop(self, item: Pod) -> None:
        """Remove a name."""
        self.names.discard(item.name)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Raise: the object cannot be decoded."""
        raise AssertionError(problem)
