"""A sink for a reflector of pods that keeps their names alone."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletx.kube.types.core import ObjectMeta, Pod


class NamesSink:
    """Implements `kube.client.ReflectorSink`; what cannot be read is a failure."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def replace(self, items: Sequence[Pod], unreadable: Sequence[ObjectMeta]) -> None:
        """The whole list."""
        assert not unreadable
        self.names = {one.name for one in items}

    def put(self, item: Pod) -> None:
        """One that is new or has changed."""
        self.names.add(item.name)

    def drop(self, item: Pod) -> None:
        """One that is gone."""
        self.names.discard(item.name)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """One that cannot be read any more."""
        raise AssertionError(problem)
