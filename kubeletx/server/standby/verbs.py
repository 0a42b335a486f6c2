"""`StandbyVerbs`: operations of the admin socket that freeze, hibernate and wake pods; a part of `AdminBackend`."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ..views import PodTarget, View


class StandbyView(View, frozen=True, kw_only=True):
    """Standby of one pod.

    `power`: the requested state: running, standby or hibernated. `containers`: the present state of each container that
    has not ended, such as running, paused (frozen) or suspended (hibernated). `since`: time since which the pod is
    frozen, or runs again; None if it was never frozen. `took_seconds`: duration of the last freeze, hibernation or thaw
    of the whole pod; None if there was none since the agent started. `memory_before_bytes` and `memory_after_bytes`:
    memory of a hibernated pod before and after the hibernation; None if it was not measured.
    """

    namespace: str
    name: str
    runtime: str
    power: str
    containers: dict[str, str] = {}
    since: datetime | None = None
    took_seconds: float | None = None
    memory_before_bytes: int | None = None
    memory_after_bytes: int | None = None


class StandbyVerbs(Protocol):
    """Operations that freeze, hibernate and wake pods."""

    async def set_standby(self, target: PodTarget, verb: str, timeout_seconds: float) -> StandbyView:
        """Request a state of the pod, and wait until all its containers have it.

        `verb`: standby, hibernate or activate. The request is stored, and valid until the next one. Raises TimedOut
        after `timeout_seconds`, and Conflict if a container cannot be changed; the request is kept and tried again.
        Raises Unsupported if the pod's runtime cannot freeze containers.
        """
        ...
