"""`ChildControl`: serves one runtime in a child process. Processes of the runtime itself, such as containers, outlive it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
import structlog

from kubeletx.api import (
    CAPABILITIES,
    BoundedThreadPool,
    Clock,
    Endpoint,
    EventSink,
    Internal,
    PodNetwork,
    Runtime,
    SystemClock,
)

from ..plugins.failures import failure_text, package_of
from ..plugins.required_methods import capability_problem
from .child import ChildEvents, extend_path
from .control import NETWORK, RUNTIME, Init, Opened
from .peer import Peer
from .remote import Served, remote_class
from .wire import find_object

P = ParamSpec("P")
R = TypeVar("R")

log = structlog.get_logger(__name__)


class ChildHost:
    """The `kubeletx.api.Host` that the runtime's plugin gets in the child process."""

    def __init__(self, init: Init, peer: Peer) -> None:
        self.agent_id = init.agent_id
        self.node_name = init.node_name
        self.state_directory = Path(init.state_directory)
        self.clock: Clock = SystemClock()
        self.events: EventSink = ChildEvents(peer)
        self.pod_network: PodNetwork | None = None
        if init.has_network:
            self.pod_network = remote_class(PodNetwork)(lambda: peer, NETWORK)
        self._threads = BoundedThreadPool(init.endpoint.name)

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._threads.run(function, *args, **kwargs)


class ChildControl:
    """Handles the agent's calls that control the child, such as `init` and `open`; implements `Control`.

    `served`: gets the runtime and its capabilities. `peer`: the connection to the agent.
    """

    def __init__(self, served: Served, peer: Peer) -> None:
        self._served = served
        self._peer = peer
        self._runtime: Runtime | None = None

    async def init(self, init: Init) -> None:
        """Make the runtime object with the plugin's factory, and let the agent call it."""
        extend_path(init.sys_path)
        settings: Any = None
        if init.settings_type:
            settings = msgspec.convert(init.settings, find_object(init.settings_type))
        factory: Callable[[Endpoint, Any, ChildHost], Runtime] = find_object(init.factory)
        self._runtime = factory(init.endpoint, settings, ChildHost(init, self._peer))
        self._served.put(RUNTIME, self._runtime, Runtime)

    async def open(self) -> Opened:
        runtime = self._made()
        await runtime.open()
        names = []
        for protocol in CAPABILITIES:
            capability = _capability(runtime, protocol)
            if capability is not None:
                names.append(protocol.__name__)
                self._served.put(protocol.__name__, capability, protocol)
        return Opened(traits=runtime.traits(), capabilities=tuple(names))

    async def close(self) -> None:
        await self._made().close()

    async def ping(self) -> None:
        return

    def _made(self) -> Runtime:
        if self._runtime is None:
            raise Internal("the runtime was not made yet")
        return self._runtime


def _capability(runtime: Runtime, protocol: type) -> Any:
    """Return the runtime's object for a capability; None, with a log line, if the plugin's object is unusable."""
    try:
        capability: Any = runtime.capability(protocol)
        problem = capability_problem(capability, protocol)
    except BaseException as error:  # noqa: BLE001 - a fault of the plugin costs one capability
        capability, problem = None, failure_text(error, package_of(type(runtime).__module__))
    if not problem:
        return capability
    log.error("Failed to query a capability", capability=protocol.__name__, err=problem)
    return None
