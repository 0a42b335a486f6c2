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
    """Runtime that an operator has configured: one entry of ``--container-runtime-endpoint``.

    `url`: without the parameters that the host reads itself (``plugin=``, ``isolation=``). `image_url`: None
    if the runtime endpoint keeps the images too.
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
    """Object that an event is about. `kind`: Pod, Node or Runtime; `field`: such as spec.containers{web}."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field: str = ""


class EventSink(Protocol):
    """Receiver of events that users see. It never blocks; it aggregates events and limits their number."""

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        """Record an event and return immediately. `type`: Normal or Warning. `reason`: a word of `names.Event`."""
        ...


class Clock(Protocol):
    """Source of time and timers, replaced in tests so that they do not wait."""

    def now(self) -> datetime:
        """Return the wall-clock time, as an aware datetime in UTC. It may jump."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds, for measuring durations and setting timers."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this time on the monotonic clock."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` once, at the monotonic time `when`. The returned function cancels that.

        The returned function may be called any number of times.
        """
        ...


class Blocking(Protocol):
    """Function that runs blocking functions on threads, such as `Host.blocking`.

    Raises Unavailable when all threads hang.
    """

    def __call__(self, function: Callable[..., R], /, *args: Any) -> Awaitable[R]:
        """Run the function on a thread and return its result."""
        ...


class PodAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Network attachment of a pod, from the result of its CNI plugins. `ips`: in CIDR form.

    `netns`, `interface`: the network namespace and interface that were attached. `result`: CNI's result as
    JSON values.
    """

    ips: tuple[str, ...]
    gateways: tuple[str, ...] = ()
    interface: str = "eth0"
    netns: str = ""
    mac: str = ""
    result: dict[str, Any] = {}


class PodNetwork(Protocol):
    """The node's CNI network, for runtimes that do not call CNI plugins themselves (DECISIONS 22)."""

    async def add(
        self, uid: PodUid, name: str, namespace: str, netns: str, ports: list[dict[str, Any]]
    ) -> PodAddress:
        """Attach the network namespace `netns` of a pod to the network.

        The result is stored, so that the same call returns it again. The namespace's ``lo`` is not changed:
        the creator of the namespace brings it up.
        """
        ...

    async def problem(self) -> str:
        """Return the reason for which no pod can be attached now; empty if none is known.

        For example, there is no valid configuration of the network.
        """
        ...

    async def check(self, uid: PodUid) -> bool:
        """Return True if the pod is attached and its CNI plugins find the attachment in order."""
        ...

    async def delete(self, uid: PodUid) -> None:
        """Detach the pod and free its addresses; succeeds if it was never attached."""
        ...


class Host(Protocol):
    """Services that the host offers to one runtime; each runtime gets an object of its own."""

    @property
    def agent_id(self) -> str:
        """Identity of this agent, the value of label ``kubeletx.io/agent-id``."""
        ...

    @property
    def node_name(self) -> str:
        """The node's name."""
        ...

    @property
    def state_directory(self) -> Path:
        """Directory for this runtime alone, with mode 0700; it survives restarts."""
        ...

    @property
    def clock(self) -> Clock:
        """Clock for all waits and times of the runtime."""
        ...

    @property
    def events(self) -> EventSink:
        """Receiver of events that users see."""
        ...

    @property
    def pod_network(self) -> PodNetwork | None:
        """The node's CNI network; None without a CNI configuration directory."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on one of this runtime's few daemon threads, and return its result.

        Raises Unavailable immediately when all of them hang in earlier calls. A call that hangs keeps its
        thread.
        """
        ...


RuntimeFactory = Callable[[Endpoint, Any, Host], Runtime]
"""(endpoint, own settings Struct or None, host) → runtime. Must not do I/O: that is `open`'s job."""
