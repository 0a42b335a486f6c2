"""Chooses the strategy of a container: its pod's annotation, else the endpoint's URL, else what its runtime can do.

    containerd's runtime type of the handler       strategy
    io.containerd.quark.*                          signal    the requests that Quark's shim understands
    io.containerd.runc.*, or none is reported      freezer   its processes are in the container's cgroup
                                                   pause     if the node has no freezer, or the agent does not see
                                                             the container's cgroup
    any other, such as io.containerd.kata.v2       pause     its processes may be in a machine, outside the cgroup

Sandboxes have the annotation and the handler, so that both are known after a restart of the agent. The choices are
made from the lists of sandboxes that the agent requests anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletx.api import SandboxId, SandboxSummary, names

from .config import StrategyName

_QUARK = "io.containerd.quark."
_IN_CGROUPS = ("io.containerd.runc.", "io.containerd.runtime.v1.")
"""Prefixes of runtime types whose containers are processes of this node: runc, and crun with its shims."""


def choose(runtime_type: str, *, has_freezer: bool) -> tuple[StrategyName, str]:
    """Return the strategy for containers of a runtime type, and the reason in words.

    `runtime_type`: containerd's word; empty if it is unknown. `has_freezer`: a cgroup hierarchy with a freezer is mounted.
    """
    if runtime_type.startswith(_QUARK):
        return StrategyName.SIGNAL, f"runtime type {runtime_type} takes signals as requests"
    if runtime_type and not runtime_type.startswith(_IN_CGROUPS):
        return (
            StrategyName.PAUSE,
            f"processes of runtime type {runtime_type} may be outside the container's cgroup",
        )
    if not has_freezer:
        return StrategyName.PAUSE, "no cgroup hierarchy with a freezer is mounted"
    return StrategyName.FREEZER, "a cgroup hierarchy with a freezer is mounted"


class Choices:
    """Strategies of the sandboxes of one runtime; each applies to all containers of its sandbox."""

    def __init__(self, configured: StrategyName | None, handler: str) -> None:
        """`configured`, `handler`: strategy and runtime handler in the endpoint's URL; None or empty: not set."""
        self._configured = configured
        self._handler = handler
        self._types: Mapping[str, str] = {}
        self._has_freezer = False
        self._of: dict[SandboxId, StrategyName] = {}
        self._named: set[SandboxId] = set()

    def learn(self, types: Mapping[str, str], *, has_freezer: bool) -> None:
        """Set what the choices depend on. `types`: containerd's runtime type by handler; key "" is the default."""
        self._types, self._has_freezer = types, has_freezer

    def default(self) -> tuple[StrategyName, str]:
        """Return the strategy of pods without annotation on the endpoint's handler, and the reason in words."""
        return self._of_handler(self._handler)

    def known(self) -> tuple[StrategyName, ...]:
        """Return all strategies; the first is the default."""
        first, _ = self.default()
        return (first, *(name for name in StrategyName if name is not first))

    def add(self, sandbox_id: SandboxId, handler: str, annotations: Mapping[str, str]) -> None:
        """Choose the strategy of a sandbox. An annotation with an unknown value has no effect.

        `handler`: runtime handler of the sandbox; empty: the default one.
        """
        try:
            chosen = StrategyName(annotations[names.STANDBY_STRATEGY])
            self._named.add(sandbox_id)
        except (KeyError, ValueError):
            chosen, _ = self._of_handler(handler or self._handler)
        self._of[sandbox_id] = chosen

    def replace(self, listed: Iterable[SandboxSummary]) -> None:
        """Choose for all sandboxes of a list; drop all others."""
        self._of.clear()
        self._named.clear()
        self.extend(listed)

    def extend(self, listed: Iterable[SandboxSummary]) -> None:
        """Choose for the sandboxes of a list, in addition to the known ones."""
        for sandbox in listed:
            self.add(sandbox.id, sandbox.handler, sandbox.annotations)

    def find(self, sandbox_id: SandboxId) -> StrategyName | None:
        """Return the strategy of a sandbox; None if it was neither created nor listed."""
        return self._of.get(sandbox_id)

    def is_requested(self, sandbox_id: SandboxId) -> bool:
        """Return True if the strategy of a sandbox was requested, by its annotation or by the endpoint's URL."""
        return self._configured is not None or sandbox_id in self._named

    def remove(self, sandbox_id: SandboxId) -> None:
        self._of.pop(sandbox_id, None)
        self._named.discard(sandbox_id)

    def _of_handler(self, handler: str) -> tuple[StrategyName, str]:
        if self._configured is not None:
            return self._configured, "it is set in the endpoint's URL"
        return choose(self._types.get(handler, ""), has_freezer=self._has_freezer)
