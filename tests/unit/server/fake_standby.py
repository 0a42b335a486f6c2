"""`FakeStandby`: implements the agent's operations on standby in memory, for `FakeAdminBackend`."""

from __future__ import annotations

from typing import Any

from kubeletx.api import NotFound
from kubeletx.server.views import PodTarget, StandbyView

_STATES = {
    "standby": ("standby", "paused"),
    "hibernate": ("hibernated", "suspended"),
    "activate": ("running", "running"),
}


class FakeStandby:
    """Implements `kubeletx.server.backend.StandbyVerbs` in memory.

    Every pod has one container, ``main``, and is changed at once.
    """

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        """`calls`: list to which each call is added."""
        self.calls = calls

    async def set_standby(self, target: PodTarget, verb: str, timeout_seconds: float) -> StandbyView:
        """Record the call, and return the state that `verb` leads to. Raises NotFound for an unknown verb."""
        if verb not in _STATES:
            raise NotFound(f"no verb {verb!r}")
        self.calls.append(("set_standby", target.ref, verb, timeout_seconds))
        power, state = _STATES[verb]
        return StandbyView(
            namespace=target.namespace,
            name=target.name,
            runtime="quark",
            power=power,
            containers={"main": state},
        )
