"""`AdminBackend`: what the servers of this package need from the agent, one protocol for each subject.

The agent implements them; `admin`, `healthz` and `metrics` only translate them to HTTP. Routes take the protocol that
they need. Rules for every method:

- Errors are those of `kubeletx.api.errors`; the server turns them into v1 Status objects.
- Lists show the last known state and do not wait for a runtime that hangs; runtimes that did not answer are named.
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
    """Questions about the agent itself."""

    async def version(self) -> VersionView:
        """Version of this agent."""
        ...

    async def health(self) -> HealthView:
        """Health of each part of the agent, such as ``syncloop``; quick, calls no runtime."""
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
        """Effective settings and their origins, as `agent.config.view.effective_values` returns them."""
        ...


class PodVerbs(Protocol):
    """Commands on the pods of all sources."""

    async def list_pods(self) -> Sequence[Pod]:
        """All pods of all sources, and orphans, by namespace and name."""
        ...

    def watch_pods(self) -> AsyncIterator[PodChange]:
        """Yield ADDED for each existing pod, then each change.

        A slow reader gets the newest state of each pod and misses only states in between.
        """
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
        """Do as `apply_pod` for an existing pod; raises NotFound for another.

        `force`: delete the pod and create it again.
        """
        ...

    async def delete_pod(self, target: PodTarget, options: DeleteOptions) -> Pod:
        """Begin to delete the pod; returns its state then.

        Refuses a pod of another source than `apply` with Conflict, naming the source, unless it is forced
        without grace period. Orphans may always be deleted.
        """
        ...

    async def open_logs(self, target: PodTarget, options: LogOptions) -> AsyncIterator[bytes]:
        """Check that there is such a log (NotFound, InvalidConfig), then yield its lines as bytes."""
        ...

    async def exec(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """Run a command in a container; an empty `container` means the default one.

        Returns the session, or the URL at which the runtime serves it.
        """
        ...

    async def attach(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """Join the streams of a container's main process; an empty `container` means the default one.

        Returns the session, or the URL at which the runtime serves it.
        """
        ...

    async def port_forward(self, target: PodTarget, port: int) -> Session | StreamUrl:
        """Open one connection to `port` on the pod's loopback.

        Returns the session, or the URL at which the runtime serves it.
        """
        ...


class NodeVerbs(Protocol):
    """Questions about the node, its events and its usage."""

    async def get_node(self) -> Node:
        """The Node object as it would be reported now."""
        ...

    def watch_node(self) -> AsyncIterator[Node]:
        """Yield the Node object now, and again after each change of a condition."""
        ...

    async def list_events(self) -> Sequence[Event]:
        """The kept events, oldest first."""
        ...

    def watch_events(self) -> AsyncIterator[Event]:
        """Yield events from now on; a repeated event is yielded again with a higher count."""
        ...

    async def usage(self) -> UsageView:
        """Usage of the node, its runtimes and pods; at most a few seconds old."""
        ...


class RuntimeVerbs(Protocol):
    """Commands on runtimes and the plugins that serve them."""

    async def list_runtimes(self) -> Sequence[RuntimeView]:
        """All runtimes in configured order: the first uncordoned one of a workload type is its default."""
        ...

    def watch_runtimes(self) -> AsyncIterator[Sequence[RuntimeView]]:
        """Yield the whole list now, and again after each change."""
        ...

    async def describe_runtime(self, name: str) -> RuntimeDetail:
        """Details of one runtime. Raises NotFound."""
        ...

    async def add_runtime(self, text: str, image_endpoint: str | None = None) -> RuntimeView:
        """Add a runtime by its endpoint (``type:name:url``), also for later starts of the agent.

        Raises InvalidConfig and AlreadyExists.
        """
        ...

    def remove_runtime(
        self, name: str, *, drain: bool, force: bool, timeout_seconds: float
    ) -> AsyncIterator[Progress]:
        """Remove a runtime; yields progress.

        Raises Conflict while it has pods, unless `drain` or `force` (DECISIONS 11).
        """
        ...

    async def cordon(self, name: str) -> RuntimeView:
        """Cordon the runtime, also for later starts of the agent: it gets no new pods."""
        ...

    async def uncordon(self, name: str) -> RuntimeView:
        """Uncordon the runtime: it gets new pods again."""
        ...

    async def reload_plugins(self) -> PluginReload:
        """Load the plugins of new distributions; loaded code is never replaced.

        The result names plugins that fail.
        """
        ...


class ImageVerbs(Protocol):
    """Commands on the images of all stores."""

    async def list_images(self) -> ImageListing:
        """Images of all stores; an image is listed once per store."""
        ...

    def watch_images(self) -> AsyncIterator[ImageListing]:
        """Yield the whole list now, and again after each change."""
        ...

    def pull_image(self, image: str, runtime: str | None) -> AsyncIterator[PullUpdate]:
        """Pull the image into the store of `runtime` (None: the default container runtime); yields progress."""
        ...

    async def remove_image(self, image: str, runtime: str | None) -> Sequence[str]:
        """Remove the image from the store of `runtime` (None: from all stores); returns the stores' ids.

        Raises Conflict while it is in use or pinned.
        """
        ...

    async def prune_images(self, runtime: str | None, all_unused: bool) -> PruneResult:
        """Remove unused images that this agent pulled; with `all_unused`, also images that other clients pulled.

        `runtime` None: in all stores.
        """
        ...


class AdminBackend(msgspec.Struct, frozen=True, kw_only=True):
    """The agent as its servers see it: one object per subject, which the agent implements."""

    about: AboutVerbs
    pods: PodVerbs
    machines: MachineVerbs
    node: NodeVerbs
    runtimes: RuntimeVerbs
    images: ImageVerbs
