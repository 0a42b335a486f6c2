"""`IsolatedRuntime`: a `kubeletx.api.Runtime` whose plugin runs in a child process.

`open` starts the child process if there is none, or if it does not answer. The agent calls `open` again after every
outage, with back-off. A child that ends soon after its start is restarted with growing delays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, TypeVar, cast

import msgspec
import structlog

from kubeletx.api import (
    CAPABILITIES,
    Endpoint,
    Host,
    InvalidConfig,
    KubeletxError,
    PodNetwork,
    Runtime,
    RuntimeFactory,
    Traits,
)

from ..plugins.elsewhere import FactoryElsewhere
from .control import NETWORK, RUNTIME, Init
from .kept import KeptChild
from .notes import agent_objects
from .peer import Peer
from .process import ChildProcess, ChildUsage, import_path
from .remote import remote_class
from .wire import name_of

log = structlog.get_logger(__name__)
T = TypeVar("T")

CLOSE_SECONDS = 3.0


_RemoteRuntime: Any = remote_class(Runtime)


class IsolatedRuntime(_RemoteRuntime):  # type: ignore[misc]  # the class is made from the protocol
    """A `kubeletx.api.Runtime` whose plugin runs in a child process.

    `factory`, `settings`: the same as for a runtime in the agent's process; the factory and the class of the settings
    must be importable by name. `host`: the agent's side of the plugin interface. `program`: command of a program that
    speaks the format of docs/plugin-wire.md, instead of `factory`; empty: the child is Python.
    """

    def __init__(
        self,
        factory: RuntimeFactory | None,
        endpoint: Endpoint,
        settings: Any,
        host: Host,
        *,
        program: Sequence[str] = (),
    ) -> None:
        """Raise InvalidConfig if another process could not import the factory or the class of the settings."""
        super().__init__(self._peer, RUNTIME)
        self._endpoint = endpoint
        self._program = tuple(program)
        self.variables: Collection[str] = ()
        """Names of environment variables that the child gets beside the usual ones; see `child_environment`."""
        self._init = _init_of(factory, endpoint, settings, host)
        self._owner = f"runtime {endpoint.name}"
        self.kept = KeptChild(self._owner, self._start, lambda child: child.control.init(self._init))
        self._traits = Traits()
        self._capabilities: dict[str, Any] = {}
        self._server = agent_objects(host.events, runtime=endpoint.name)
        if host.pod_network is not None:
            self._server.put(NETWORK, host.pod_network, PodNetwork)

    @property
    def pid(self) -> int | None:
        return self.kept.pid

    def usage(self) -> ChildUsage | None:
        return self.kept.usage()

    # --- life ---

    async def open(self) -> None:
        """Open the runtime in the child process; start the child first if none runs and answers."""
        child = await self.kept.answering()
        opened = await child.control.open()
        self._traits = opened.traits
        self._capabilities = {
            name: remote_class(protocol)(self._peer, name)
            for protocol in CAPABILITIES
            if (name := protocol.__name__) in opened.capabilities
        }

    async def close(self) -> None:
        """Close the runtime and end the child process."""
        child = self.kept.take()
        if child is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await child.control.close()
        except (KubeletxError, TimeoutError) as error:
            log.debug("Failed to close an isolated runtime", runtime=self._endpoint.name, err=str(error))
        finally:
            await child.stop(CLOSE_SECONDS)

    def traits(self) -> Traits:
        """Return the traits that the runtime declared when it was last opened; the defaults before that."""
        return self._traits

    def capability(self, protocol: type[T]) -> T | None:
        """Return an object that forwards calls to the child; None if the runtime lacks the capability."""
        return cast("T | None", self._capabilities.get(protocol.__name__))

    # --- private ---

    def _peer(self) -> Peer:
        return self.kept.running().peer

    async def _start(self) -> ChildProcess:
        return await ChildProcess.start(self._owner, self._server, self._program, variables=self.variables)


def _names_of(factory: RuntimeFactory | None, settings: Any) -> tuple[str, str]:
    """Return the names of factory and settings type, for `Init`. Raises LookupError if they cannot be imported by name."""
    if factory is None:
        return "", ""  # a program gets plain values
    if isinstance(factory, FactoryElsewhere):
        if not factory.name:
            raise LookupError("its factory cannot be imported by name")
        if settings is not None and not factory.settings:
            raise LookupError("the class of its settings cannot be imported by name")
        return factory.name, factory.settings if settings is not None else ""
    return name_of(factory), name_of(type(settings)) if settings is not None else ""


def _init_of(factory: RuntimeFactory | None, endpoint: Endpoint, settings: Any, host: Host) -> Init:
    try:
        factory_name, settings_type = _names_of(factory, settings)
    except LookupError as error:
        raise InvalidConfig(
            obj=endpoint.origin,
            field=f"runtime {endpoint.name}",
            problem=f"it cannot run in a process of its own: {error}",
            fix="register a class or function of a module, or add isolation=none to the URL to run it in the agent's process",
        ) from error
    return Init(
        factory=factory_name,
        endpoint=endpoint,
        settings_type=settings_type,
        settings=msgspec.to_builtins(settings),
        agent_id=host.agent_id,
        node_name=host.node_name,
        state_directory=str(host.state_directory),
        has_network=host.pod_network is not None,
        sys_path=import_path(),
    )
