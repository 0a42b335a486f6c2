"""Remedies that plugins register: actions of ``kubeletx remedy``, the cluster's controller, on sick nodes.

The controller loads these plugins, not the agents of nodes. It stores each operation before it calls a plugin. After a crash, another
controller asks for the same operation again: a plugin must recognise its identity, and must never act twice for it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from .host import Clock

P = ParamSpec("P")
R = TypeVar("R")


class RemedyState(enum.Enum):
    """State of an operation of a remedy. Only DONE can release pods of the node."""

    NOT_STARTED = "not-started"
    """The operation has not acted, and will not act later unless it is asked for again."""
    RUNNING = "running"
    """It acts now; `Remedy.status` is asked again until the deadline."""
    DONE = "done"
    """It has succeeded, and the device has confirmed it."""
    FAILED = "failed"
    """It has ended without success."""
    UNKNOWN = "unknown"
    """It is not known whether the remedy has acted. For the controller the node is not safe."""


class RemedyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on one node.

    `operation`: identity of the operation; a retry of the administrator's remedy has another one. `node`, `node_uid`, `labels`,
    `provider_id`: of the Node. `boot_id`: of its last start, as the Node shows it. `step`: Isolation, Power-Management or Recovery.
    `reasons`: why the node counts as sick. `parameters`: of the remedyConfig. `seconds`: time until the controller gives up.
    """

    operation: str
    node: str
    node_uid: str = ""
    labels: Mapping[str, str] = {}
    provider_id: str = ""
    boot_id: str = ""
    step: str = ""
    reasons: tuple[str, ...] = ()
    parameters: Mapping[str, str] = {}
    seconds: float = 180.0


class RemedyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an operation. `message`: one line for users, without secrets."""

    state: RemedyState
    message: str = ""


class Remedy(Protocol):
    """Repairs nodes or makes them safe, for example by switching them off. Operations on several nodes run in parallel."""

    async def remedy(self, request: RemedyRequest) -> RemedyResult:
        """Carry out the operation, or start it and return RUNNING.

        May be called again with the same operation, also by another process. The second call must not act again: it returns the
        state of the first one. After an exception or a missed deadline the controller asks `status`.
        """
        ...

    async def status(self, request: RemedyRequest) -> RemedyResult:
        """Return the present state of the operation, without acting. UNKNOWN if it cannot be found out."""
        ...


class RemedyHost(Protocol):
    """Services of the controller for one registered remedy."""

    @property
    def name(self) -> str:
        """Name under which the plugin registered the remedy."""
        ...

    @property
    def clock(self) -> Clock:
        """Clock that the plugin must use to wait and to read the time."""
        ...

    async def secret(self, name: str) -> Mapping[str, bytes]:
        """Return the decoded data of a Secret in the controller's namespace. Raises NotFound, PermissionDenied, Unavailable."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` on one of this remedy's few threads. Raises Unavailable when all of them are busy."""
        ...


RemedyFactory = Callable[[Any, RemedyHost], Remedy]
"""Function from the settings (always None: parameters are in each request) and the `RemedyHost` to the remedy. No I/O."""
