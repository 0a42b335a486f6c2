"""The host's side of a runtime plugin: `Endpoint`, `Host`, and the signature of the factory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from .identity import PodUid, RuntimeName
from .runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``--container-runtime-endpoint``.

    `url` has the host's own parameters (``plugin=``, ``isolation=``) removed already; `image_url` is
    None when images are kept by the runtime endpoint itself.
    """

    name: RuntimeName
    workload_type: str
    url: str
    kind: str = ""
    image_url: str | None = None
    isolation: str = "none"
    origin: str = "flag"
    """Origin of the endpoint: flag, configuration file, or the drop-in file's path."""


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True):
    """Object of an event. `kind`: Pod, Node or Runtime; `field`: such as spec.containers{web}."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field: str = ""


class EventSink(Protocol):
    """Sink of events for users; bounded, aggregated, never blocking."""

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        """`type`: Normal or Warning. `reason`: a word of `names.Event`. Returns at once."""
        ...


class Clock(Protocol):
    """Time, injected so that tests do not wait."""

    def now(self) -> datetime:
        """Aware UTC wall-clock time; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; for measuring and waking."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once at a monotonic time; the returned function cancels it (any number of times)."""
        ...


class Blocking(Protocol):
    """Runs a blocking function on a thread of the caller's. Raises Unavailable when all threads hang."""

    def __call__(self, function: Callable[..., R], /, *args: Any) -> Awaitable[R]:
        """The function's result."""
        ...


class PodAddress(msgspec.Struct, frozen=True, kw_only=True):
    """CNI's result for a pod. `ips` in CIDR form; `netns` and `interface` as attached."""

    ips: tuple[str, ...]
    gateways: tuple[str, ...] = ()
    interface: str = "eth0"
    netns: str = ""
    mac: str = ""
    result: dict[str, Any] = {}


class PodNetwork(Protocol):
    """The node's CNI network, for runtimes that do not call CNI themselves (DECISIONS 22)."""

    async def add(
        self, uid: PodUid, name: str, namespace: str, netns: str, ports: list[dict[str, Any]]
    ) -> PodAddress:
        """Attach `netns` to the network; the result is journaled and the same call returns it again.

        The namespace's own ``lo`` is left as it is: who makes a namespace brings it up.
        """
        ...

    async def problem(self) -> str:
        """Reason no pod can be attached now, such as a missing configuration; empty if none is known."""
        ...

    async def check(self, uid: PodUid) -> bool:
        """Return True if the attachment is still in place."""
        ...

    async def delete(self, uid: PodUid) -> None:
        """Detach and free the addresses; succeeds if it was never attached."""
        ...


class Host(Protocol):
    """The host's side of the seam, one object per runtime."""

    @property
    def agent_id(self) -> str:
        """Identity of this agent (label ``kubeletx.io/agent-id``)."""
        ...

    @property
    def node_name(self) -> str:
        """The node's name."""
        ...

    @property
    def state_directory(self) -> Path:
        """A directory for this runtime alone (0700); survives restarts."""
        ...

    @property
    def clock(self) -> Clock:
        """The injected clock."""
        ...

    @property
    def events(self) -> EventSink:
        """Events for users."""
        ...

    @property
    def pod_network(self) -> PodNetwork | None:
        """The node's CNI network; None when no CNI configuration directory was given."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on this runtime's own few daemon threads.

        Raises Unavailable at once when all of them are stuck; a hung call keeps its thread.
        """
        ...


RuntimeFactory = Callable[[Endpoint, Any, Host], Runtime]
"""(endpoint, own settings Struct or None, host) → runtime. Must not do I/O: that is `open`'s job."""
