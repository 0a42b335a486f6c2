"""`VolumeGuard`: keeps the taking of a volume and the clearing of what is left of it apart, within one agent.

Background tasks clear volumes: they check whether the record still has an entry of this node, and if it has none, they
drop the volume. Between the check and the drop, no pod may enter the record. A task cannot wait for a mount,
since `LocalVolumes.drop` waits for the mount's lock; so both sides give up instead of waiting, and are tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from kubeletx.api import Unavailable


class VolumeGuard:
    """Names of the volumes that are being taken or cleared."""

    def __init__(self) -> None:
        self._taking: Counter[str] = Counter()
        self._clearing: dict[str, str] = {}

    @contextmanager
    def taking(self, name: str) -> Iterator[None]:
        """Hold off the clearing of a volume. Raises Unavailable, with the reason, if it is being cleared."""
        self.check(name)
        self._taking[name] += 1
        try:
            yield
        finally:
            self._taking[name] -= 1
            if not self._taking[name]:
                del self._taking[name]

    @contextmanager
    def clearing(self, name: str, why: str) -> Iterator[bool]:
        """Hold off new takes of a volume. Yields False, and holds off nothing, if it is being taken or cleared now."""
        if name in self._taking or name in self._clearing:
            yield False
            return
        self._clearing[name] = why
        try:
            yield True
        finally:
            del self._clearing[name]

    def check(self, name: str) -> None:
        """Raise Unavailable if the volume is being cleared."""
        if name in self._clearing:
            raise Unavailable(f"volume {name} is being removed from this node: {self._clearing[name]}")
