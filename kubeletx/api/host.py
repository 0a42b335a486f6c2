"""Arguments of a runtime plugin's factory (`RuntimeFactory`): the configured `Endpoint`, and the agent's `Host`.

The *host* is the kubeletx agent, which loads the plugin.
"""

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
    """One runtime that an operator has configured, such as an entry of ``--container-runtime-endpoint``.

    `name`: unique name on the node. `workload_type`: container, vm, or a type that a plugin declares. `url`:
    without the parameters ``plugin=`` and ``isolation=``, which the agent reads. `kind`: name of the plugin's
    runtime kind that serves the endpoint. `image_url`: separate endpoint for images; None: `url` serves images
    too. `isolation`: process: the plugin runs in a process of its own; none: in the agent's process; empty: the
    configuration or the plugin's distribution decides.
    """

    name: RuntimeName
    workload_type: str
    url: str
    kind: str = ""
    image_url: str | None = None
    isolation: str = ""
    origin: str = "flag"
    """Where the endpoint is configured: flag, configuration file, or the drop-in file's path."""


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True):
    """Object that an event is about. `kind`: Pod, Node or Runtime.

    `field`: part of the object, such as spec.containers{web} (fieldPath of a v1 Event); empty: the whole object.
    """

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field: str = ""


class EventSink(Protocol):
    """Records events for users, as the kubelet's event recorder does. It aggregates events and limits their number."""

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        """Record an event about the object `ref`; never blocks.

        `type`: Normal or Warning. `reason`: a constant of `names.Event`. `message`: text for users.
        """
        ...


class Clock(Protocol):
    """Source of time and timers. Tests replace it by `kubeletx.testing.FakeClock`."""

    def now(self) -> datetime:
        """Return the wall-clock time, as an aware datetime in UTC. It jumps if the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds, for measuring durations and setting timers."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this number of seconds, measured on the monotonic clock."""
        ...

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Schedule one call of `callback` at the monotonic time `when`, and return a function that cancels it.

        The returned function may be called any number of times, also after the call.
        """
        ...


class Blocking(Protocol):
    """Type of a function that runs blocking functions on threads, such as `Host.blocking`.

    Raises Unavailable when all its threads are busy with earlier calls.
    """

    def __call__(self, function: Callable[..., R], /, *args: Any) -> Awaitable[R]:
        """Call `function` with `args` on a thread and return its result."""
        ...


class PodAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of a pod in the pod network, from the result of the CNI plugins. `ips`: in CIDR form.

    `netns`: path of the network namespace that was attached. `interface`: name of the interface in it. `mac`:
    that interface's address. `result`: the CNI result as JSON values.
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
        """Attach a pod's network namespace to the pod network and return its addresses.

        `uid`, `name`, `namespace`: identify the pod. `netns`: path of the network namespace. `ports`: CNI
        portMappings. A repeated call with the same pod and `netns` returns the stored result of the first one.
        The namespace's ``lo`` is not changed: its creator has to bring it up.
        """
        ...

    async def problem(self) -> str:
        """Return why no pod can be attached now, such as a missing CNI configuration; empty if pods can be attached."""
        ...

    async def check(self, uid: PodUid) -> bool:
        """Return True if the pod is attached, and the command CHECK of its CNI plugins succeeds.

        CHECK is left out if the CNI configuration disables it, or is older than version 0.4.0.
        """
        ...

    async def delete(self, uid: PodUid) -> None:
        """Detach the pod and free its addresses; succeeds if it was never attached."""
        ...


class HostServices(Protocol):
    """Services of the agent for one registered object of a plugin, such as one runtime or one health check."""

    @property
    def node_name(self) -> str:
        """The node's name."""
        ...

    @property
    def state_directory(self) -> Path:
        """Directory that only this object uses, with mode 0700. Its files survive restarts of the agent."""
        ...

    @property
    def clock(self) -> Clock:
        """Clock that the plugin must use to wait and to read the time."""
        ...

    @property
    def events(self) -> EventSink:
        """Sink through which the plugin records events for users."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` on one of this object's few daemon threads, and return its result.

        Raises Unavailable immediately when all these threads are busy with earlier calls. A call that hangs
        occupies its thread until it returns.
        """
        ...


class Host(HostServices, Protocol):
    """Services that the agent offers to one runtime; each runtime gets its own object."""

    @property
    def agent_id(self) -> str:
        """Identity of this agent, the value of label ``kubeletx.io/agent-id``."""
        ...

    @property
    def pod_network(self) -> PodNetwork | None:
        """The node's CNI network; None if the agent has no CNI configuration directory."""
        ...


RuntimeFactory = Callable[[Endpoint, Any, Host], Runtime]
"""Function that makes a runtime from its endpoint, the plugin's settings (None if it declares none) and a `Host`.

Must not do I/O, which belongs in `Runtime.open`.
"""
