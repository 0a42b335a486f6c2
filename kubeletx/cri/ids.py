"""`KnownIds`: table from the ids of sandboxes and containers to their pods and sandboxes.

It is needed because CRI's ContainerStatus does not name the sandbox, and containerd's events have only a container id.
Each create and each list adds entries. The table is only a cache: callers list again if an id is missing. It is emptied
when it has `LIMIT` ids, since ids that other agents remove would otherwise never be dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kubeletx.api import PodUid, SandboxId, SandboxSummary, UnitId, UnitSummary

LIMIT = 50_000
"""Maximum number of ids, about 15 MiB: three times the need of 5,000 pods with two containers each."""


class Owner(NamedTuple):
    """Entry of `KnownIds` for one id: the pod's UID and the sandbox to which the id belongs.

    `unit_id`: the id itself if it is a container's; None if it is a sandbox's.
    """

    uid: PodUid
    sandbox_id: SandboxId
    unit_id: UnitId | None


class KnownIds:
    """Cache from the ids of one runtime's sandboxes and containers to their `Owner`."""

    def __init__(self, limit: int = LIMIT) -> None:
        """`limit`: number of ids at which the table is emptied."""
        self._limit = limit
        self._owners: dict[str, Owner] = {}
        self._units: dict[SandboxId, set[UnitId]] = {}

    def find(self, some_id: str) -> Owner | None:
        """Return the entry for the id of a sandbox or unit; None if the table does not have the id."""
        return self._owners.get(some_id)

    def add_sandbox(self, sandbox_id: SandboxId, uid: PodUid) -> None:
        """Add a sandbox that was created or listed. `uid`: UID of its pod."""
        self._make_room()
        self._owners[sandbox_id] = Owner(uid, sandbox_id, None)

    def add_unit(self, unit_id: UnitId, sandbox_id: SandboxId, uid: PodUid) -> None:
        """Add a unit that was created or listed. `uid`: UID of its pod.

        If `uid` is empty, the UID in the sandbox's entry is used, if there is one.
        """
        self._make_room()
        sandbox = self._owners.get(sandbox_id)
        self._owners[unit_id] = Owner(uid or (sandbox.uid if sandbox else uid), sandbox_id, unit_id)
        self._units.setdefault(sandbox_id, set()).add(unit_id)

    def add_sandboxes(self, listed: Iterable[SandboxSummary]) -> None:
        """Add all sandboxes of a list from the server."""
        for item in listed:
            self.add_sandbox(item.id, item.uid)

    def add_units(self, listed: Iterable[UnitSummary]) -> None:
        """Add all units of a list from the server."""
        for item in listed:
            self.add_unit(item.id, item.sandbox_id, item.uid)

    def remove_unit(self, unit_id: UnitId) -> None:
        """Drop a unit that was removed."""
        owner = self._owners.pop(unit_id, None)
        if owner is not None:
            self._units.get(owner.sandbox_id, set()).discard(unit_id)

    def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Drop a sandbox that was removed, and its units."""
        self._owners.pop(sandbox_id, None)
        for unit_id in self._units.pop(sandbox_id, ()):
            self._owners.pop(unit_id, None)

    def forget(self, some_id: str) -> None:
        """Drop the sandbox (with its units) or the unit with this id, after an event has reported its removal."""
        owner = self._owners.get(some_id)
        if owner is not None and owner.unit_id is not None:
            self.remove_unit(owner.unit_id)
        else:
            self.remove_sandbox(SandboxId(some_id))

    def clear(self) -> None:
        """Drop all entries. The next list adds the objects that still exist."""
        self._owners.clear()
        self._units.clear()

    def _make_room(self) -> None:
        # Emptied as a whole: the next lists add what still exists, and no order of age has to be kept.
        if len(self._owners) >= self._limit:
            self.clear()
