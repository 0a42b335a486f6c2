"""`Fleet`: makes, runs, adds, cordons and removes the node's runtimes.

Each runtime runs in a task of its own (`RuntimeTasks`). Added runtimes, removals and cordons are stored as files
(`DropIns`). Pods are not handled here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from kubeletx.api import Clock, Endpoint, InvalidConfig, RuntimeName, Unavailable
from kubeletx.api.backoff import Backoff

from .cgroup_driver import NodeCgroupDriver
from .endpoints.drop_ins import DropIns
from .endpoints.grammar import check_name
from .endpoints.kinds import KindTable
from .handles.handle import RuntimeHandle, RuntimeListener
from .handles.limits import Limits
from .host.host import HostParts, RuntimeHost
from .maker import MadeRuntime, RuntimeMaker
from .stall_notes import StallNotes

if TYPE_CHECKING:  # loaded only when a runtime is isolated, to save memory
    from .isolation import IsolatedRuntime

log = structlog.get_logger(__name__)


class FleetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of the runtimes.

    `endpoints`: runtimes of flags and configuration file. `settings`: decoded settings by plugin kind. `class_map`:
    runtime class name to NAME or NAME--HANDLER of a runtime. `isolation`: runtime kind to process or none, for
    endpoints without ``isolation=``. `variables`: names of further environment variables of isolated runtimes.
    """

    endpoints: tuple[Endpoint, ...] = ()
    settings: dict[str, Any] = {}
    class_map: Mapping[str, str] = {}
    isolation: Mapping[str, str] = {}
    variables: tuple[str, ...] = ()
    limits: Limits = Limits()
    cgroup_driver: str | None = None
    """Configured cgroup driver; empty if not set; None if pods get no cgroups."""


class Fleet:
    """Manages the node's runtimes: makes, runs, adds, cordons and removes them.

    The registry makes it and passes its TaskGroup to `begin`. All methods must be called on the same event loop.
    """

    def __init__(
        self,
        *,
        kinds: KindTable,
        plan: FleetConfig,
        parts: HostParts,
        listener: RuntimeListener,
        is_used: Callable[[RuntimeName], bool],
        bound_kinds: Callable[[RuntimeName], Collection[str]],
        beside: Callable[[RuntimeHandle], Coroutine[Any, Any, None]],
    ) -> None:
        """`parts`: objects that all runtimes share. `is_used`: returns True if pods are assigned to the runtime.

        `bound_kinds`: returns the kinds that made the runtime's pods. `beside`: returns a coroutine that runs concurrently
        with the runtime, and ends and restarts together with it.
        """
        self._kinds = kinds
        self._plan = plan
        self._settings = dict(plan.settings)
        self._parts = parts
        self._listener = listener
        self._is_used = is_used
        self._notes = StallNotes(parts.root)
        self._maker = RuntimeMaker(
            kinds,
            self._settings,
            plan.isolation,
            parts,
            bound_kinds=bound_kinds,
            stalled=self._notes.load(),
            variables=plan.variables,
        )
        self._dropins = DropIns(parts.root)
        self._handles: dict[RuntimeName, RuntimeHandle] = {}
        self._hosts: dict[RuntimeName, RuntimeHost] = {}
        self._isolated: dict[RuntimeName, IsolatedRuntime] = {}
        self._broken: dict[RuntimeName, str] = {}
        """Runtimes that their plugins could not make, with the reasons."""
        self._tasks = RuntimeTasks(parts.clock, beside)
        self._leaving: set[RuntimeName] = set()
        self._reloading = asyncio.Lock()
        self.cgroup_driver = NodeCgroupDriver(plan.cgroup_driver, self._reported_cgroup_drivers)

    @property
    def handles(self) -> Mapping[RuntimeName, RuntimeHandle]:
        """Every runtime by name; a live, read-only view. Order: flags, configuration, drop-in files."""
        return MappingProxyType(self._handles)

    @property
    def isolated(self) -> Mapping[RuntimeName, IsolatedRuntime]:
        """The runtimes whose plugin runs in a process of its own, by name; a live, read-only view."""
        return MappingProxyType(self._isolated)

    # --- life ---

    def configure(self) -> tuple[InvalidConfig, ...]:
        """Make all configured runtimes, without running them; return the errors of unusable drop-in files.

        A runtime that its plugin could not make is a `BrokenRuntime`: it is not ready, with the reason.
        """
        names = [endpoint.name for endpoint in self._plan.endpoints]
        loaded = self._dropins.load(self._kinds, names)
        for endpoint in self._plan.endpoints:
            if endpoint.name in loaded.removed:
                log.info("Skipped removed runtime", runtime=endpoint.name, origin=endpoint.origin)
            else:
                self._put(self._maker.make_or_break(endpoint), endpoint.name in loaded.cordoned)
        for endpoint in loaded.endpoints:
            self._put(self._maker.make_or_break(endpoint), endpoint.name in loaded.cordoned)
        return loaded.errors

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Start the task of every runtime in `group`; tasks of runtimes that are added later run there too."""
        self._tasks.begin(group)
        for handle in self._handles.values():
            self._tasks.launch(handle)

    def end(self) -> None:
        """Clean up after the tasks of all runtimes have ended; the runtimes' idle threads end too."""
        self._tasks.end()
        for host in self._hosts.values():
            host.close()

    # --- changes at run time ---

    def is_leaving(self, name: RuntimeName) -> bool:
        """Return True while the runtime is being removed; no pod may be assigned to it then."""
        return name in self._leaving

    @contextlib.contextmanager
    def leaving(self, handle: RuntimeHandle) -> Iterator[None]:
        """Context in which the runtime counts as being removed, so that no pod is assigned to it."""
        self._leaving.add(handle.name)
        try:
            yield
        finally:
            self._leaving.discard(handle.name)

    def add(self, endpoint: Endpoint) -> RuntimeHandle:
        """Add a runtime and save it, so that it exists after a restart of the agent too.

        Raises InvalidConfig for an invalid name or endpoint, Unavailable if its plugin cannot make the runtime or the
        runtime cannot be saved; nothing is added then.
        """
        name = endpoint.name
        check_name(name, "runtime name", taken=self._handles)
        made = self._maker.make(endpoint)
        endpoint = made.endpoint
        handle = self._put(made, cordoned=False)
        try:
            origin = self._make_lasting(endpoint)
        except Unavailable:
            self._drop(handle)
            raise
        handle.endpoint = msgspec.structs.replace(endpoint, origin=origin)
        self._tasks.launch(handle)
        log.info("Added runtime", runtime=name, kind=endpoint.kind, url=endpoint.url)
        self._listener.runtime_changed(name)
        return handle

    async def remove(self, handle: RuntimeHandle, before_drop: Callable[[], Awaitable[None]]) -> None:
        """Stop and remove a runtime; it stays removed after a restart of the agent.

        `before_drop`: awaited after the runtime's task has stopped, while `handles` still contains the runtime.
        """
        self._dropins.remove(handle.endpoint)
        self._dropins.cordon(handle.name, False)
        await self._tasks.stop(handle)
        await before_drop()
        self._drop(handle)
        log.info("Removed runtime", runtime=handle.name)
        self._listener.runtime_changed(handle.name)

    def cordon(self, handle: RuntimeHandle, cordoned: bool) -> None:
        """Cordon or uncordon a runtime and save that, so that it holds after a restart of the agent too."""
        self._dropins.cordon(handle.name, cordoned)
        if handle.state.cordoned != cordoned:
            log.info("Cordoned runtime" if cordoned else "Uncordoned runtime", runtime=handle.name)
            handle.cordon(cordoned)

    def put_settings(self, kind: str, settings: object) -> None:
        """Set the settings of a plugin kind for runtimes that are made from now on."""
        self._settings[kind] = settings

    def clear_stalls(self) -> tuple[str, ...]:
        """Delete the notes about plugins that blocked the agent; return the names of their runtimes.

        The runtimes stay isolated until the agent's next start. Raises Unavailable if a note cannot be deleted.
        """
        try:
            return self._notes.clear()
        except OSError as error:
            raise Unavailable(f"cannot delete {error.filename}: {error.strerror}") from error

    async def reload_dropins(self) -> tuple[InvalidConfig, ...]:
        """Read the drop-in files again and apply changes: add, remove and cordon runtimes.

        Returns the errors of unusable files, and of changed or deleted ones whose runtime has pods.
        """
        async with self._reloading:
            return await self._reload_dropins()

    async def repair(self) -> None:
        """Make every runtime again that its plugin could not make; see `broken`."""
        async with self._reloading:
            for name in list(self._broken):
                await self._make_again(self._handles[name])

    @property
    def broken(self) -> Mapping[RuntimeName, str]:
        """Reason of each runtime that its plugin could not make; a live, read-only view."""
        return MappingProxyType(self._broken)

    async def _make_again(self, handle: RuntimeHandle) -> None:
        if self.is_leaving(handle.name):
            return
        made = self._maker.make_or_break(handle.endpoint)
        with self.leaving(handle):
            await self._tasks.stop(handle)
        self._hosts[handle.name].close()
        self._tasks.launch(self._put(made, handle.state.cordoned))
        if not made.why:
            log.info("Made runtime again", runtime=handle.name, kind=made.endpoint.kind)
        self._listener.runtime_changed(handle.name)

    async def _reload_dropins(self) -> tuple[InvalidConfig, ...]:
        mine = {h.endpoint.origin: h for h in self._handles.values() if self._is_dropin(h.endpoint)}
        others = [h.name for h in self._handles.values() if h.endpoint.origin not in mine]
        loaded = self._dropins.load(self._kinds, others)
        wanted = {endpoint.origin: endpoint for endpoint in loaded.endpoints}
        errors = list(loaded.errors)
        broken = {error.obj for error in loaded.errors} | {error.field.partition(":")[0] for error in errors}
        for origin, handle in mine.items():
            if origin in broken or _equal(wanted.get(origin), handle.endpoint):
                continue
            if self.is_leaving(handle.name):
                continue  # `remove` has deleted its file, and drops it once it has stopped
            is_repair = handle.name in self._broken and origin in wanted
            if self._is_used(handle.name) and not is_repair:
                errors.append(_still_used(origin, handle.name))
                wanted.pop(origin, None)
                continue
            with self.leaving(handle):
                await self._tasks.stop(handle)
                self._drop(handle)
            self._listener.runtime_changed(handle.name)
        for endpoint in wanted.values():
            if endpoint.name in self._handles:
                continue
            handle = self._put(self._maker.make_or_break(endpoint), endpoint.name in loaded.cordoned)
            self._tasks.launch(handle)
            log.info("Added runtime", runtime=endpoint.name, kind=endpoint.kind, origin=endpoint.origin)
            self._listener.runtime_changed(handle.name)
        for handle in self._handles.values():
            handle.cordon(handle.name in loaded.cordoned)
        return tuple(errors)

    # --- private ---

    def _put(self, made: MadeRuntime, cordoned: bool) -> RuntimeHandle:
        """Add the runtime to the table, in the place of one with the same name, and return its handle."""
        endpoint = made.endpoint
        kind = self._kinds.find(endpoint.kind)
        handle = RuntimeHandle(
            endpoint=endpoint,
            runtime=made.runtime,
            agent_id=self._parts.agent_id,
            clock=self._parts.clock,
            events=self._parts.events,
            listener=self._listener,
            limits=self._plan.limits,
            judge=lambda health, traits: self.cgroup_driver.judge(health, traits.cgroup_driver),
            plugin=kind.label if kind is not None else "",
            abandons=made.isolated is None and (kind is None or not kind.origin.is_own),
        )
        handle.cordon(cordoned)
        self._handles[endpoint.name] = handle
        self._hosts[endpoint.name] = made.host
        self._isolated.pop(endpoint.name, None)
        if made.isolated is not None:
            self._isolated[endpoint.name] = made.isolated
        self._broken.pop(endpoint.name, None)
        if made.why:
            self._broken[endpoint.name] = made.why
        return handle

    def _reported_cgroup_drivers(self) -> list[str]:
        return [h.traits.cgroup_driver for h in self._handles.values() if h.traits is not None]

    def _make_lasting(self, endpoint: Endpoint) -> str:
        """Save the endpoint and return its origin.

        If it equals a removed runtime of the flags, that one is used again; otherwise a drop-in file is written.
        """
        for planned in self._plan.endpoints:
            if msgspec.structs.replace(planned, origin=endpoint.origin) == endpoint:
                self._dropins.unmask(endpoint.name)
                return planned.origin
        return str(self._dropins.add(endpoint))

    def _drop(self, handle: RuntimeHandle) -> None:
        self._handles.pop(handle.name, None)
        self._isolated.pop(handle.name, None)
        self._broken.pop(handle.name, None)
        host = self._hosts.pop(handle.name, None)
        if host is not None:
            host.close()

    def _is_dropin(self, endpoint: Endpoint) -> bool:
        return endpoint.origin.startswith(f"{self._dropins.runtimes}/")


def _equal(wanted: Endpoint | None, present: Endpoint) -> bool:
    return wanted is not None and wanted == present


def _still_used(origin: str, name: str) -> InvalidConfig:
    return InvalidConfig(
        obj=origin,
        field="drop-in",
        problem=f"changed or removed, but runtime {name!r} has pods",
        fix="drain the runtime, then remove it",
    )


_STEADY_SECONDS = 300.0
"""A task that fails after running at least this long is restarted with the smallest delay again."""


class RuntimeTasks:
    """The tasks of all runtimes, in one TaskGroup.

    A task that fails is started again after 1 s, then up to 60 s; other runtimes are not affected.
    """

    def __init__(self, clock: Clock, beside: Callable[[RuntimeHandle], Coroutine[Any, Any, None]]) -> None:
        """`beside`: returns a coroutine that runs concurrently with the runtime, and ends and restarts together with it."""
        self._clock = clock
        self._beside = beside
        self._tasks: dict[RuntimeName, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Start the tasks in `group` from now on; before, `launch` does nothing."""
        self._group = group

    def end(self) -> None:
        """Forget the tasks, after the group has ended."""
        self._group = None
        self._tasks.clear()

    def launch(self, handle: RuntimeHandle) -> None:
        """Start the task of a runtime."""
        if self._group is not None:
            self._tasks[handle.name] = self._group.create_task(
                self._supervise(handle), name=f"runtime-{handle.name}"
            )

    async def stop(self, handle: RuntimeHandle) -> None:
        """Cancel the task of a runtime and wait until it has ended; does nothing without one."""
        task = self._tasks.pop(handle.name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _supervise(self, handle: RuntimeHandle) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            began = self._clock.monotonic()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(handle.run(), name=f"runtime-{handle.name}-handle")
                    group.create_task(self._beside(handle), name=f"runtime-{handle.name}-beside")
            except* Exception as errors:
                if self._clock.monotonic() - began > _STEADY_SECONDS:
                    backoff.reset()
                delay = backoff.next()
                log.exception(
                    "Failed to run runtime; starting it again", runtime=handle.name, err=str(errors)
                )
                await self._clock.sleep(delay)
