"""`Backend`: the parts put together in the shape that the servers ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kubeletx.api import Session, StreamRequest, StreamUrl
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node
from kubeletx.server.views import (
    ApplyResult,
    ConfigValue,
    DeleteOptions,
    HealthView,
    ImageListing,
    LogOptions,
    MetricsView,
    PluginReload,
    PluginView,
    PodChange,
    PodTarget,
    Progress,
    PruneResult,
    PullUpdate,
    RuntimeDetail,
    RuntimeView,
    UsageView,
    VersionView,
)

from .about import AgentBackend
from .images import ImageBackend
from .machines import MachineBackend
from .node import NodeBackend
from .pods import PodBackend
from .runtimes import RuntimeBackend


class Backend:
    """Implements `AdminBackend` by handing each call to the part that knows the subject."""

    def __init__(
        self,
        *,
        about: AgentBackend,
        pods: PodBackend,
        node: NodeBackend,
        runtimes: RuntimeBackend,
        images: ImageBackend,
        machines: MachineBackend,
    ) -> None:
        self._machines = machines
        self._about = about
        self._pods = pods
        self._node = node
        self._runtimes = runtimes
        self._images = images

    async def version(self) -> VersionView:
        """See `AdminBackend.version`."""
        return await self._about.version()

    async def health(self) -> HealthView:
        """See `AdminBackend.health`."""
        return await self._about.health()

    async def metrics(self) -> MetricsView:
        """See `AdminBackend.metrics`."""
        return await self._about.metrics()

    async def plugins(self) -> Sequence[PluginView]:
        """See `AdminBackend.plugins`."""
        return await self._about.plugins()

    async def reload_plugins(self) -> PluginReload:
        """See `AdminBackend.reload_plugins`."""
        return await self._runtimes.reload_plugins()

    async def config_view(self) -> Sequence[ConfigValue]:
        """See `AdminBackend.config_view`."""
        return await self._about.config_view()

    async def list_pods(self) -> Sequence[Pod]:
        """See `AdminBackend.list_pods`."""
        return await self._pods.list_pods()

    def watch_pods(self) -> AsyncIterator[PodChange]:
        """See `AdminBackend.watch_pods`."""
        return self._pods.watch_pods()

    async def apply_pod(self, pod: Pod, *, dry_run: bool = False) -> ApplyResult:
        """See `AdminBackend.apply_pod`."""
        return await self._pods.apply_pod(pod, dry_run=dry_run)

    async def replace_pod(self, pod: Pod, force: bool, *, dry_run: bool = False) -> ApplyResult:
        """See `AdminBackend.replace_pod`."""
        return await self._pods.replace_pod(pod, force, dry_run=dry_run)

    async def delete_pod(self, target: PodTarget, options: DeleteOptions) -> Pod:
        """See `AdminBackend.delete_pod`."""
        return await self._pods.delete_pod(target, options)

    async def open_logs(self, target: PodTarget, options: LogOptions) -> AsyncIterator[bytes]:
        """See `AdminBackend.open_logs`."""
        return await self._pods.open_logs(target, options)

    async def exec(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """See `AdminBackend.exec`."""
        return await self._pods.exec(target, container, request)

    async def attach(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """See `AdminBackend.attach`."""
        return await self._pods.attach(target, container, request)

    async def port_forward(self, target: PodTarget, port: int) -> Session | StreamUrl:
        """See `AdminBackend.port_forward`."""
        return await self._pods.port_forward(target, port)

    @property
    def machines(self) -> MachineBackend:
        """See `AdminBackend.machines`."""
        return self._machines

    async def get_node(self) -> Node:
        """See `AdminBackend.get_node`."""
        return await self._node.get_node()

    def watch_node(self) -> AsyncIterator[Node]:
        """See `AdminBackend.watch_node`."""
        return self._node.watch_node()

    async def list_events(self) -> Sequence[Event]:
        """See `AdminBackend.list_events`."""
        return await self._node.list_events()

    def watch_events(self) -> AsyncIterator[Event]:
        """See `AdminBackend.watch_events`."""
        return self._node.watch_events()

    async def usage(self) -> UsageView:
        """See `AdminBackend.usage`."""
        return await self._node.usage()

    async def list_runtimes(self) -> Sequence[RuntimeView]:
        """See `AdminBackend.list_runtimes`."""
        return await self._runtimes.list_runtimes()

    def watch_runtimes(self) -> AsyncIterator[Sequence[RuntimeView]]:
        """See `AdminBackend.watch_runtimes`."""
        return self._runtimes.watch_runtimes()

    async def describe_runtime(self, name: str) -> RuntimeDetail:
        """See `AdminBackend.describe_runtime`."""
        return await self._runtimes.describe_runtime(name)

    async def add_runtime(self, text: str, image_endpoint: str | None = None) -> RuntimeView:
        """See `AdminBackend.add_runtime`."""
        return await self._runtimes.add_runtime(text, image_endpoint)

    def remove_runtime(
        self, name: str, *, drain: bool, force: bool, timeout_seconds: float
    ) -> AsyncIterator[Progress]:
        """See `AdminBackend.remove_runtime`."""
        return self._runtimes.remove_runtime(name, drain=drain, force=force, timeout_seconds=timeout_seconds)

    async def cordon(self, name: str) -> RuntimeView:
        """See `AdminBackend.cordon`."""
        return await self._runtimes.cordon(name)

    async def uncordon(self, name: str) -> RuntimeView:
        """See `AdminBackend.uncordon`."""
        return await self._runtimes.uncordon(name)

    async def list_images(self) -> ImageListing:
        """See `AdminBackend.list_images`."""
        return await self._images.list_images()

    def watch_images(self) -> AsyncIterator[ImageListing]:
        """See `AdminBackend.watch_images`."""
        return self._images.watch_images()

    def pull_image(self, image: str, runtime: str | None) -> AsyncIterator[PullUpdate]:
        """See `AdminBackend.pull_image`."""
        return self._images.pull_image(image, runtime)

    async def remove_image(self, image: str, runtime: str | None) -> Sequence[str]:
        """See `AdminBackend.remove_image`."""
        return await self._images.remove_image(image, runtime)

    async def prune_images(self, runtime: str | None, all_unused: bool) -> PruneResult:
        """See `AdminBackend.prune_images`."""
        return await self._images.prune_images(runtime, all_unused)
