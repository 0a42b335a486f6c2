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

    `url`: without the host's own parameters (``plugin=``, ``isolation=``); `image_url`: None if the runtime endpoint
    itself keeps images.
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
    """Receiver of events for users; bounded, aggregated, never blocking."""

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        """Record an event and return at once. `type`: Normal or Warning. `reason`: a word of `names.Event`."""
        ...


class Clock(Protocol):
    """Time, injected so that tests do not wait."""

    def now(self) -> datetime:
        """Wall-clock time, aware UTC; may jump."""
        ...

    def monotonic(self) -> float:
        """Monotonic seconds; for measuring and waking."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back once at a monotonic time; the returned function cancels it (any number of times)."""
        ...


class Blocking(Protocol):
    """Runs a blocking function on a thread. Raises Unavailable when all threads hang."""

    def __call__(self, function: Callable[..., R], /, *args: Any) -> Awaitable[R]:
        """Run the function; returns its result."""
        ...


class PodAddress(msgspec.Struct, frozen=True, kw_only=True):
    """CNI's result for a pod. `ips`: in CIDR form; `netns` and `interface`: as attached."""

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

        The namespace's own ``lo`` is not changed: the creator of the namespace brings it up.
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
    """The host as a runtime sees it; one object per runtime."""

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
        """Receiver of events for users."""
        ...

    @property
    def pod_network(self) -> PodNetwork | None:
        """The node's CNI network; None without a CNI configuration directory."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on this runtime's own few daemon threads.

        Raises Unavailable at once when all of them hang; a hung call keeps its thread.
        """
        ...


RuntimeFactory = Callable[[Endpoint, Any, Host], Runtime]
"""(endpoint, own settings Struct or None, host) → runtime. Must not do I/O: that is `open`'s job."""
