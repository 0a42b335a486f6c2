"""`Fleet`: the node's runtimes in order, and the task of each.

Each runtime runs in a task of its own, which is restarted when it fails: one runtime never ends another. Added
runtimes, removals and cordons are stored as files (`DropIns`). Pods are not handled here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import structlog

from kubeletx.api import Endpoint, InvalidConfig, Runtime, RuntimeName, Unavailable
from kubeletx.api.backoff import Backoff

from .cgroup_driver import NodeCgroupDriver
from .endpoints.drop_ins import DropIns
from .endpoints.grammar import check_name
from .endpoints.kinds import KindTable, RuntimeKind
from .handles.handle import RuntimeHandle, RuntimeListener
from .handles.limits import Limits
from .host.host import HostParts, RuntimeHost

log = structlog.get_logger(__name__)

_STEADY_SECONDS = 300.0
"""A task that fails after running at least this long is restarted with the smallest delay again."""


class FleetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of the runtimes.

    `settings`: plugin kind → decoded settings. `class_map`: runtime class → NAME or NAME--HANDLER.
    """

    endpoints: tuple[Endpoint, ...] = ()
    settings: dict[str, Any] = {}
    class_map: Mapping[str, str] = {}
    limits: Limits = Limits()
    cgroup_driver: str | None = None
    """Configured driver; empty if not set; None if pods get no cgroups."""


class Fleet:
    """Holds the node's runtimes: makes, runs, adds, cordons and removes them.

    Made by the registry, whose TaskGroup it uses; call it on the same event loop.
    """

    def __init__(
        self,
        *,
        kinds: KindTable,
        plan: FleetConfig,
        parts: HostParts,
        listener: RuntimeListener,
        is_used: Callable[[RuntimeName], bool],
        beside: Callable[[RuntimeHandle], Coroutine[Any, Any, None]],
    ) -> None:
        """`is_used`: returns whether pods are bound to the runtime.

        `beside`: returns a coroutine that runs in parallel to a runtime, for as long as the runtime's task.
        """
        self._kinds = kinds
        self._plan = plan
        self._settings = dict(plan.settings)
        self._parts = parts
        self._listener = listener
        self._is_used = is_used
        self._beside = beside
        self._dropins = DropIns(parts.root)
        self._handles: dict[RuntimeName, RuntimeHandle] = {}
        self._hosts: dict[RuntimeName, RuntimeHost] = {}
        self._tasks: dict[RuntimeName, asyncio.Task[None]] = {}
        self._leaving: set[RuntimeName] = set()
        self._group: asyncio.TaskGroup | None = None
        self._reloading = asyncio.Lock()
        self.cgroup_driver = NodeCgroupDriver(plan.cgroup_driver, self._told_cgroup_drivers)

    @property
    def handles(self) -> Mapping[RuntimeName, RuntimeHandle]:
        """Every runtime, in the order listed: flags, configuration, drop-ins; a live, read-only view."""
        return MappingProxyType(self._handles)

    # --- life ---

    def configure(self) -> tuple[InvalidConfig, ...]:
        names = [endpoint.name for endpoint in self._plan.endpoints]
        loaded = self._dropins.load(self._kinds, names)
        for endpoint in self._plan.endpoints:
            if endpoint.name in loaded.removed:
                log.info("Skipped removed runtime", runtime=endpoint.name, origin=endpoint.origin)
            else:
                self._make(endpoint, endpoint.name in loaded.cordoned)
        errors = list(loaded.errors)
        for endpoint in loaded.endpoints:
            try:
                self._make(endpoint, endpoint.name in loaded.cordoned)
            except InvalidConfig as error:
                errors.append(error)
        return tuple(errors)

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Start the task of every runtime in `group`; runtimes that are added later run there too."""
        self._group = group
        for handle in self._handles.values():
            self._launch(handle)

    def end(self) -> None:
        """Forget the tasks, which have ended, and let the runtimes' idle threads end."""
        self._group = None
        self._tasks.clear()
        for host in self._hosts.values():
            host.close()

    # --- changes at run time ---

    def is_leaving(self, name: RuntimeName) -> bool:
        """Return True while the runtime is being removed; no pod may be bound to it then."""
        return name in self._leaving

    @contextlib.contextmanager
    def leaving(self, handle: RuntimeHandle) -> Iterator[None]:
        """Context in which the runtime counts as being removed, so that no pod is bound to it."""
        self._leaving.add(handle.name)
        try:
            yield
        finally:
            self._leaving.discard(handle.name)

    def add(self, endpoint: Endpoint) -> RuntimeHandle:
        """Add a runtime and save it, so that it survives a restart of the agent.

        Raises InvalidConfig, and Unavailable if it cannot be saved.
        """
        name = endpoint.name
        check_name(name, "runtime name", taken=self._handles)
        handle = self._make(endpoint, cordoned=False)
        try:
            origin = self._make_lasting(endpoint)
        except Unavailable:
            self._drop(handle)
            raise
        handle.endpoint = msgspec.structs.replace(endpoint, origin=origin)
        self._launch(handle)
        log.info("Added runtime", runtime=name, kind=endpoint.kind, url=endpoint.url)
        self._listener.runtime_changed(name)
        return handle

    async def remove(self, handle: RuntimeHandle, before_drop: Callable[[], Awaitable[None]]) -> None:
        """Stop and remove a runtime; it stays removed after a restart of the agent.

        `before_drop`: awaited when the runtime's task has stopped and the runtime is still listed.
        """
        self._dropins.remove(handle.endpoint)
        self._dropins.cordon(handle.name, False)
        await self._stop(handle)
        await before_drop()
        self._drop(handle)
        log.info("Removed runtime", runtime=handle.name)
        self._listener.runtime_changed(handle.name)

    def cordon(self, handle: RuntimeHandle, cordoned: bool) -> None:
        """Cordon or uncordon a runtime; this also holds after a restart of the agent."""
        self._dropins.cordon(handle.name, cordoned)
        if handle.state.cordoned != cordoned:
            log.info("Cordoned runtime" if cordoned else "Uncordoned runtime", runtime=handle.name)
            handle.cordon(cordoned)

    def put_settings(self, kind: str, settings: object) -> None:
        self._settings[kind] = settings

    async def reload_dropins(self) -> tuple[InvalidConfig, ...]:
        async with self._reloading:
            return await self._reload_dropins()

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
                continue  # `remove` took its file away and drops it once it has stopped
            if self._is_used(handle.name):
                errors.append(_still_used(origin, handle.name))
                wanted.pop(origin, None)
                continue
            with self.leaving(handle):
                await self._stop(handle)
                self._drop(handle)
            self._listener.runtime_changed(handle.name)
        for endpoint in wanted.values():
            if endpoint.name in self._handles:
                continue
            try:
                handle = self._make(endpoint, endpoint.name in loaded.cordoned)
            except InvalidConfig as error:
                errors.append(error)
                continue
            self._launch(handle)
            log.info("Added runtime", runtime=endpoint.name, kind=endpoint.kind, origin=endpoint.origin)
            self._listener.runtime_changed(handle.name)
        for handle in self._handles.values():
            handle.cordon(handle.name in loaded.cordoned)
        return tuple(errors)

    # --- private ---

    def _make(self, endpoint: Endpoint, cordoned: bool) -> RuntimeHandle:
        kind = self._kinds.get(endpoint.kind)
        host = RuntimeHost(endpoint.name, self._parts)
        try:
            runtime = _make_runtime(kind, endpoint, self._settings.get(kind.name), host)
        except InvalidConfig:
            raise
        except Exception as error:
            raise InvalidConfig(
                obj=endpoint.origin,
                field=f"runtime {endpoint.name}",
                problem=f"plugin kind {kind.name!r} failed: {type(error).__name__}: {error}",
                fix="correct the URL or report the plugin's bug",
            ) from error
        handle = RuntimeHandle(
            endpoint=endpoint,
            runtime=runtime,
            agent_id=self._parts.agent_id,
            clock=self._parts.clock,
            events=self._parts.events,
            listener=self._listener,
            limits=self._plan.limits,
            judge=lambda health, traits: self.cgroup_driver.judge(health, traits.cgroup_driver),
        )
        handle.cordon(cordoned)
        self._handles[endpoint.name] = handle
        self._hosts[endpoint.name] = host
        return handle

    def _told_cgroup_drivers(self) -> list[str]:
        return [h.traits.cgroup_driver for h in self._handles.values() if h.traits is not None]

    def _make_lasting(self, endpoint: Endpoint) -> str:
        """Persist the endpoint and return its origin: its own file, or the flag from which it was removed before."""
        for planned in self._plan.endpoints:
            if msgspec.structs.replace(planned, origin=endpoint.origin) == endpoint:
                self._dropins.unmask(endpoint.name)
                return planned.origin
        return str(self._dropins.add(endpoint))

    def _launch(self, handle: RuntimeHandle) -> None:
        if self._group is not None:
            self._tasks[handle.name] = self._group.create_task(
                self._supervise(handle), name=f"runtime-{handle.name}"
            )

    async def _supervise(self, handle: RuntimeHandle) -> None:
        clock = self._parts.clock
        backoff = Backoff(1.0, 60.0)
        while True:
            began = clock.monotonic()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(handle.run(), name=f"runtime-{handle.name}-handle")
                    group.create_task(self._beside(handle), name=f"runtime-{handle.name}-beside")
            except* Exception as errors:
                if clock.monotonic() - began > _STEADY_SECONDS:
                    backoff.reset()
                delay = backoff.next()
                log.exception(
                    "Failed to run runtime; starting it again", runtime=handle.name, err=str(errors)
                )
                await clock.sleep(delay)

    async def _stop(self, handle: RuntimeHandle) -> None:
        task = self._tasks.pop(handle.name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _drop(self, handle: RuntimeHandle) -> None:
        self._handles.pop(handle.name, None)
        host = self._hosts.pop(handle.name, None)
        if host is not None:
            host.close()

    def _is_dropin(self, endpoint: Endpoint) -> bool:
        return endpoint.origin.startswith(f"{self._dropins.runtimes}/")


def _make_runtime(kind: RuntimeKind, endpoint: Endpoint, settings: Any, host: RuntimeHost) -> Runtime:
    if endpoint.isolation == "none":
        return kind.factory(endpoint, settings, host)
    from .isolation import IsolatedRuntime

    return IsolatedRuntime(kind.factory, endpoint, settings, host)


def _equal(wanted: Endpoint | None, present: Endpoint) -> bool:
    return wanted is not None and wanted == present


def _still_used(origin: str, name: str) -> InvalidConfig:
    return InvalidConfig(
        obj=origin,
        field="drop-in",
        problem=f"changed or gone, but pods are on runtime {name!r}",
        fix="drain the runtime, then remove it",
    )
