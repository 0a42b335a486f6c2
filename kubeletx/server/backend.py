"""`AdminBackend`: one protocol for each subject that the servers of this room ask the agent about.

The agent implements them; `admin`, `healthz` and `metrics` only translate them to HTTP. Routes take the protocol that
they need. Rules for every method:

- Errors are those of `kubeletx.api.errors`; the server turns them into v1 Status objects.
- Lists show the last known state and do not wait for a runtime that hangs; what did not answer is named.
- Pods carry their status, and the annotation ``kubeletx.io/bound-runtime`` once they are bound. Pods without
  an owner are listed too, with annotation `views.ORPHANED`.
- Async iterators end when the caller closes them (`aclose`), which the server does when its client leaves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from kubeletx.api import Session, StreamRequest, StreamUrl
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node

from .machine.verbs import MachineVerbs
from .views import (
    ActionView,
    ApplyResult,
    ConfigValue,
    DeleteOptions,
    HealthView,
    ImageListing,
    LogOptions,
    MetricsView,
    PanelContent,
    PanelView,
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


class AboutVerbs(Protocol):
    """The agent itself."""

    async def version(self) -> VersionView:
        """Version of this agent."""
        ...

    async def health(self) -> HealthView:
        """Health of the parts (``syncloop`` and others); quick, asks no runtime."""
        ...

    async def metrics(self) -> MetricsView:
        """Counters of the agent; fast, without a call to a runtime."""
        ...

    async def plugins(self) -> Sequence[PluginView]:
        """Every plugin found at start or by a reload, in order of name."""
        ...

    async def list_panels(self) -> Sequence[PanelView]:
        """Every panel that plugins registered, by name."""
        ...

    async def show_panel(self, name: str) -> PanelContent:
        """The panel's current content. Raises NotFound, TimedOut, and others when the plugin fails."""
        ...

    async def config_view(self) -> Sequence[ConfigValue]:
        """Effective settings and their origins (`agent.config_view.effective_values`)."""
        ...


class PodVerbs(Protocol):
    """Pods of all sources."""

    async def list_pods(self) -> Sequence[Pod]:
        """All pods of all sources, and orphans, by namespace and name."""
        ...

    def watch_pods(self) -> AsyncIterator[PodChange]:
        """Yield ADDED for each existing pod, then each change. Slow readers lose intermediate states only."""
        ...

    async def pod_history(self, target: PodTarget) -> Sequence[ActionView]:
        """The last actions of the pod with their results, oldest first. Raises NotFound."""
        ...

    async def apply_pod(self, pod: Pod, *, dry_run: bool = False) -> ApplyResult:
        """Create this pod, or change its mutable fields (DECISIONS 14); raises Conflict for other changes.

        `pod`: as in the manifest, without defaults, not validated. `dry_run`: only report what would happen.
        """
        ...

    async def replace_pod(self, pod: Pod, force: bool, *, dry_run: bool = False) -> ApplyResult:
        """Like `apply_pod`, but the pod must exist (NotFound). `force`: delete it and create it again."""
        ...

    async def delete_pod(self, target: PodTarget, options: DeleteOptions) -> Pod:
        """Begin to delete the pod, and return it as it is then.

        Pods of other sources than `apply` are refused with Conflict, naming the source, unless forced without grace;
        orphans may always be deleted.
        """
        ...

    async def open_logs(self, target: PodTarget, options: LogOptions) -> AsyncIterator[bytes]:
        """Check that there is such a log (NotFound, InvalidConfig), then yield its lines as bytes."""
        ...

    async def exec(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """Run a command; `container` empty is the pod's first one."""
        ...

    async def attach(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """Join the streams of the main process; `container` empty is the pod's first one."""
        ...

    async def port_forward(self, target: PodTarget, port: int) -> Session | StreamUrl:
        """Open one connection to `port` on the pod's loopback."""
        ...


class NodeVerbs(Protocol):
    """The node, its events and its usage."""

    async def get_node(self) -> Node:
        """The node as it would be reported."""
        ...

    def watch_node(self) -> AsyncIterator[Node]:
        """Yield the node now, and again after each change."""
        ...

    async def list_events(self) -> Sequence[Event]:
        """The kept events, oldest first."""
        ...

    def watch_events(self) -> AsyncIterator[Event]:
        """Yield events from now on; a repetition comes again with a higher count."""
        ...

    async def usage(self) -> UsageView:
        """Usage; figures are at most a few seconds old."""
        ...


class RuntimeVerbs(Protocol):
    """Runtimes and the plugins that serve them."""

    async def list_runtimes(self) -> Sequence[RuntimeView]:
        """All runtimes in their order: the first of a type is its default."""
        ...

    def watch_runtimes(self) -> AsyncIterator[Sequence[RuntimeView]]:
        """Yield the whole list now, and again after each change."""
        ...

    async def describe_runtime(self, name: str) -> RuntimeDetail:
        """Everything about one runtime."""
        ...

    async def add_runtime(self, text: str, image_endpoint: str | None = None) -> RuntimeView:
        """Add one endpoint (``type:name:url``) permanently. Raises InvalidConfig and AlreadyExists."""
        ...

    def remove_runtime(
        self, name: str, *, drain: bool, force: bool, timeout_seconds: float
    ) -> AsyncIterator[Progress]:
        """Remove a runtime; yields progress.

        Raises Conflict while it has pods, unless `drain` or `force` (DECISIONS 11).
        """
        ...

    async def cordon(self, name: str) -> RuntimeView:
        """Cordon the runtime permanently: it gets no new pods."""
        ...

    async def uncordon(self, name: str) -> RuntimeView:
        """Uncordon the runtime: it gets new pods again."""
        ...

    async def reload_plugins(self) -> PluginReload:
        """Load the plugins of new distributions; loaded code is never replaced. Plugins that fail are named."""
        ...


class ImageVerbs(Protocol):
    """Images of all stores."""

    async def list_images(self) -> ImageListing:
        """Images of all stores, each once."""
        ...

    def watch_images(self) -> AsyncIterator[ImageListing]:
        """Yield the whole list now, and again after each change."""
        ...

    def pull_image(self, image: str, runtime: str | None) -> AsyncIterator[PullUpdate]:
        """Pull into the store of `runtime` (None: the default container runtime's)."""
        ...

    async def remove_image(self, image: str, runtime: str | None) -> Sequence[str]:
        """Remove the image from the runtime's store, or from all; returns the stores' names.

        Raises Conflict while in use.
        """
        ...

    async def prune_images(self, runtime: str | None, all_unused: bool) -> PruneResult:
        """Remove unused images this agent pulled; `all_unused`: also those of other clients."""
        ...


class AdminBackend(msgspec.Struct, frozen=True, kw_only=True):
    """The agent as its servers see it, one object per subject."""

    about: AboutVerbs
    pods: PodVerbs
    machines: MachineVerbs
    node: NodeVerbs
    runtimes: RuntimeVerbs
    images: ImageVerbs
