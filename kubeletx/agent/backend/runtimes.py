"""Runtime commands of the admin socket: list, describe, add, remove with drain, cordon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from kubeletx.api import CAPABILITIES, KubeletxError, NotFound, PodUid, SupportsImages, TimedOut
from kubeletx.plugins.reload import RunningPlugins
from kubeletx.pods import PodManager
from kubeletx.runtimes.endpoints.grammar import parse_endpoints
from kubeletx.runtimes.endpoints.kinds import KindTable
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.views import (
    ConditionView,
    FilesystemView,
    ImageServiceView,
    PluginReload,
    Progress,
    RuntimeDetail,
    RuntimeView,
)

from .plugins import plugin_views, process_of
from .watching import Latest

T = TypeVar("T")

QUERY_SECONDS = 5.0


class RuntimeBackend:
    """Carries out the runtime commands of the admin socket. Implements `RuntimeVerbs`.

    The runtime registry calls it after each change of a runtime, for `watch_runtimes`.
    """

    def __init__(
        self,
        registry: RuntimeRegistry,
        manager: PodManager,
        kinds: KindTable,
        stores: ImageStores,
        plugins: RunningPlugins,
    ) -> None:
        self._registry = registry
        self._plugins = plugins
        self._stores = stores
        self._manager = manager
        self._kinds = kinds
        self._watchers: list[Latest[None]] = []
        self._changes: set[asyncio.Task[Any]] = set()
        """Tasks that add or remove runtimes; they continue when their client disconnects."""
        registry.subscribe(self)

    def runtime_changed(self, name: str) -> None:
        """Send the new list of runtimes to every watch. `name`, the runtime that changed, is not used."""
        for watcher in self._watchers:
            watcher.put("all", None)

    def pod_changed(self, name: str, uid: str, event: object) -> None:
        """Do nothing: changes of pods do not affect the list of runtimes."""

    async def list_runtimes(self) -> Sequence[RuntimeView]:
        return [self._view(handle) for handle in self._registry.handles()]

    async def watch_runtimes(self) -> AsyncIterator[Sequence[RuntimeView]]:
        changes: Latest[None] = Latest()
        self._watchers.append(changes)
        try:
            yield await self.list_runtimes()
            async for _ in changes:
                yield await self.list_runtimes()
        finally:
            self._watchers.remove(changes)

    async def describe_runtime(self, name: str) -> RuntimeDetail:
        handle = self._registry.get(name)
        traits = handle.traits
        health = store = None
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                health = await handle.health()
                images = handle.capability(SupportsImages)
                store = await handle.ask("store_info", images.store_info) if images is not None else None
        except (KubeletxError, TimeoutError):
            pass
        version = handle.last_version
        return RuntimeDetail(
            runtime=self._view(handle),
            capabilities={
                capability.__name__.removeprefix("Supports"): handle.capability(capability) is not None
                for capability in CAPABILITIES
            },
            traits=msgspec.to_builtins(traits) if traits is not None else {},
            conditions=tuple(
                ConditionView(type=c.type, ok=c.ok, reason=c.reason, message=c.message)
                for c in (health.conditions if health is not None else ())
            ),
            handlers=handle.state.handlers,
            api_version=version.api_version if version is not None else "",
            store_id=str(store.id) if store is not None else "",
            filesystems=tuple(
                FilesystemView(mountpoint=f.mountpoint, used_bytes=f.used_bytes)
                for f in (store.filesystems if store is not None else ())
            ),
            pods=tuple(
                sorted(w.desired.ref for w in self._manager.workers.values() if w.facts.runtime == name)
            ),
            isolation="process" if handle.name in self._registry.fleet.isolated else "none",
            process=process_of(self._registry, name),
            agent_calls={method: count.calls for method, count in sorted(handle.counts.items())},
        )

    async def add_runtime(self, text: str, image_endpoint: str | None = None) -> RuntimeView:
        images = [image_endpoint] if image_endpoint else []
        (endpoint,) = parse_endpoints([text], images, self._kinds, "runtime add", places=["the endpoint"])
        handle = self._registry.fleet.add(endpoint)
        return self._view(handle)

    async def remove_runtime(
        self, name: str, *, drain: bool, force: bool, timeout_seconds: float
    ) -> AsyncIterator[Progress]:
        self._registry.get(name)
        if drain:
            self._registry.cordon(name)
            yield Progress(message=f"runtime {name} cordoned")
            async for progress in self._drain(name, timeout_seconds):
                yield progress
        await self._complete(self._registry.remove(name, force=force), f"remove {name}")
        for ref in self._manager.end_on(name, force=True).values():
            yield Progress(message=f"pod {ref} ended by force")
        yield Progress(message=f"runtime {name} removed", done=True)

    async def reload_plugins(self) -> PluginReload:
        reloaded = await self._plugins.reload()
        await self._complete(self._registry.fleet.repair(), "repair runtimes")
        errors = await self._complete(self._registry.fleet.reload_dropins(), "reload drop-ins")
        cleared = [
            f"runtime {name}: its plugin blocked the agent once; from the next start on it is not isolated for that"
            for name in self._registry.fleet.clear_stalls()
        ]
        return PluginReload(
            plugins=tuple(plugin_views(reloaded.plugins)),
            notes=(*reloaded.notes, *map(str, errors), *self._registry.fleet.broken.values(), *cleared),
        )

    async def cordon(self, name: str) -> RuntimeView:
        self._registry.cordon(name)
        return self._view(self._registry.get(name))

    async def uncordon(self, name: str) -> RuntimeView:
        self._registry.cordon(name, False)
        return self._view(self._registry.get(name))

    # --- private ------------------------------------------------------------------------------------

    async def _complete(self, change: Coroutine[Any, Any, T], name: str) -> T:
        """Run `change` to its end even if the caller is cancelled, so that no runtime is left half removed."""
        task = asyncio.create_task(change, name=name)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _drain(self, name: str, timeout_seconds: float) -> AsyncIterator[Progress]:
        """End the pods of the runtime; yields one message for each pod that has ended.

        Raises TimedOut if pods are left after `timeout_seconds`.
        """
        left = self._manager.end_on(name)
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        try:
            while left:
                ended = [uid for uid in left if not self._is_on(uid, name)]
                for uid in ended:  # more pods may end while the caller is slow: the outer loop checks again
                    yield Progress(message=f"pod {left.pop(uid)} ended")
                if not ended:
                    async with asyncio.timeout_at(deadline):
                        await self._manager.wait_change()
        except TimeoutError:
            raise TimedOut(
                f"runtime {name} was not drained within {timeout_seconds:g} s; still there: "
                f"{', '.join(sorted(left.values()))}; it stays cordoned"
            ) from None

    def _is_on(self, uid: PodUid, runtime: str) -> bool:
        worker = self._manager.workers.get(uid)
        return worker is not None and worker.facts.runtime == runtime

    def _view(self, handle: RuntimeHandle) -> RuntimeView:
        state, version = handle.state, handle.last_version
        default = self._registry.default_for(handle.workload_type)
        status = "Ready" if state.is_ready else ("Unknown" if state.reason == "NotConnected" else "NotReady")
        return RuntimeView(
            name=handle.name,
            workload_type=handle.workload_type,
            kind=handle.kind,
            url=handle.endpoint.url,
            status=status,
            since=state.since,
            version=f"{version.name} {version.version}" if version is not None else "",
            pods=len(self._registry.bound_uids(handle.name)),
            default=default is handle,
            image_service=self._image_service(handle, is_default=default is handle),
            cordoned=state.cordoned,
            image_url=handle.endpoint.image_url,
            reason=state.reason,
            message=state.message,
            origin=handle.endpoint.origin,
            abandoned_calls=dict(handle.abandoned),
            calls=sum(count.calls for count in handle.counts.values()),
            failed_calls=sum(count.errors for count in handle.counts.values()),
            call_seconds=round(sum(count.durations.sum_seconds for count in handle.counts.values()), 4),
        )

    def _image_service(self, handle: RuntimeHandle, *, is_default: bool) -> ImageServiceView | None:
        if handle.state.reachable:
            keeps_images = handle.capability(SupportsImages) is not None
        else:
            keeps_images = handle.traits is None or handle.traits.images
        if not keeps_images:
            return None
        disk = self._stores.disks.get(handle.name)
        return ImageServiceView(
            name=handle.name,
            workload_type=handle.workload_type,
            url=handle.endpoint.image_url or handle.endpoint.url,
            store=self._stores.known_id(handle),
            is_default=is_default,
            capacity_bytes=disk.capacity_bytes if disk is not None else None,
            available_bytes=disk.available_bytes if disk is not None else None,
        )


def one_of(registry: RuntimeRegistry, name: str | None, workload_type: str = "container") -> RuntimeHandle:
    """Return the runtime named `name`; None: the default runtime of the workload type.

    Raises NotFound if there is none, Unavailable while it does not answer.
    """
    handle = registry.get(name) if name is not None else registry.default_for(workload_type)
    if handle is None:
        raise NotFound(
            f"no {workload_type} runtime on this node; 'kubeletx get runtimes' lists all, name one of them"
        )
    handle.require_reachable()
    return handle
