"""`IsolatedRuntime`: a `kubeletx.api.Runtime` whose plugin runs in a child process.

`open` starts the child process if there is none, or if it does not answer. The agent calls `open` again after every
outage, with back-off. A child that ends soon after its start is restarted with growing delays.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
import structlog

from kubeletx.api import (
    Endpoint,
    Host,
    InvalidConfig,
    KubeletxError,
    PodNetwork,
    Runtime,
    RuntimeFactory,
    RuntimeHealth,
    RuntimeVersion,
    SandboxId,
    SandboxSpec,
    SandboxStatus,
    SandboxSummary,
    Traits,
    UnitId,
    UnitSpec,
    UnitStatus,
    UnitSummary,
)

from ..plugins.elsewhere import FactoryElsewhere
from .codec import Encoded
from .control import EVENTS, LOG, NETWORK, RUNTIME, EventNote, Init
from .kept import KeptChild
from .notes import text_of, write_log
from .peer import Emit, Peer
from .process import ChildProcess
from .remote import Served, remote_class
from .usage import ChildUsage
from .wire import name_of

log = structlog.get_logger(__name__)
T = TypeVar("T")

CLOSE_SECONDS = 3.0


class IsolatedRuntime:
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
        self._endpoint = endpoint
        self._host = host
        self._program = tuple(program)
        self.variables: Collection[str] = ()
        """Names of environment variables that the child gets beside the usual ones; see `child_environment`."""
        self._init = _init_of(factory, endpoint, settings, host)
        self._owner = f"runtime {endpoint.name}"
        self.kept = KeptChild(self._owner, self._start, lambda child: child.control.init(self._init))
        self._traits = Traits()
        self._capabilities: dict[str, Any] = {}
        self._remote = cast("Runtime", remote_class(Runtime)(self._peer, RUNTIME))
        self._server = HostServer(endpoint.name, host)

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while no child runs."""
        return self.kept.pid

    def usage(self) -> ChildUsage | None:
        """Return memory and CPU time of the child; None while no child runs. Blocks briefly."""
        return self.kept.usage()

    # --- life ---

    async def open(self) -> None:
        """Open the runtime in the child process; start the child first if none runs and answers."""
        child = await self.kept.answering()
        opened = await child.control.open()
        self._traits = opened.traits
        self._capabilities = dict.fromkeys(opened.capabilities)

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
        name = protocol.__name__
        if name not in self._capabilities:
            return None
        if self._capabilities[name] is None:
            self._capabilities[name] = remote_class(cast("type", protocol))(self._peer, name)
        return cast("T", self._capabilities[name])

    # --- the contract ---

    async def version(self) -> RuntimeVersion:
        return await self._remote.version()

    async def health(self) -> RuntimeHealth:
        return await self._remote.health()

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        return await self._remote.create_sandbox(spec)

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        await self._remote.stop_sandbox(sandbox_id)

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        await self._remote.remove_sandbox(sandbox_id)

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        return await self._remote.list_sandboxes(match)

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        return await self._remote.sandbox_status(sandbox_id)

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        return await self._remote.create_unit(sandbox_id, spec, sandbox)

    async def start_unit(self, unit_id: UnitId) -> None:
        await self._remote.start_unit(unit_id)

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        await self._remote.stop_unit(unit_id, grace_seconds)

    async def remove_unit(self, unit_id: UnitId) -> None:
        await self._remote.remove_unit(unit_id)

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        return await self._remote.list_units(match)

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        return await self._remote.unit_status(unit_id)

    # --- private ---

    def _peer(self) -> Peer:
        return self.kept.running().peer

    async def _start(self) -> ChildProcess:
        return await ChildProcess.start(self._owner, self._server, self._program, variables=self.variables)


class HostServer:
    """Handles the child's calls to the agent's pod network, and the events and log lines that the child sends."""

    def __init__(self, name: str, host: Host) -> None:
        self._name = name
        self._host = host
        self._served = Served()
        if host.pod_network is not None:
            self._served.put(NETWORK, host.pod_network, PodNetwork)

    async def serve(self, target: str, method: str, args: Encoded, emit: Emit) -> Any:
        """Handle a call of the child; see `CallHandler.serve`."""
        return await self._served.serve(target, method, args, emit)

    def note(self, target: str, method: str, args: Encoded) -> None:
        """Record an event, or write a log line, that the child sent."""
        if target == EVENTS:
            (event,) = args.decode(tuple[EventNote])
            self._host.events.record(
                event.ref, type=event.type, reason=event.reason, message=text_of(event.message)
            )
        elif target == LOG:
            write_log(args, runtime=self._name)


def _names_of(factory: RuntimeFactory | None, settings: Any) -> tuple[str, str]:
    """Return the names of factory and settings type, for `Init`. Raises LookupError if they cannot be imported by name."""
    if factory is None:
        return "", ""  # a program gets plain values
    if isinstance(factory, FactoryElsewhere):
        if not factory.name or (settings is not None and not factory.settings):
            raise LookupError("its factory or the class of its settings cannot be imported by name")
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
        sys_path=[path for path in sys.path if path],
    )
