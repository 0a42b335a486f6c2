"""`AdminBackend`: the operations that the HTTP servers call in the agent, as one protocol for each subject.

The agent implements the protocols. The servers only translate HTTP requests to calls of these methods. Rules for
every method:

- Errors are classes of `kubeletx.api.errors`; the server converts them to v1 Status objects.
- A list shows the last known state: it does not wait for a runtime that hangs. If the result has the field `missing`,
  that names the runtimes that did not answer.
- Pods have their status and, once they are assigned to a runtime, the annotation ``kubeletx.io/bound-runtime``.
  Orphaned pods, which were found on a runtime but belong to no source, have the annotation `names.ORPHANED`.
- Async iterators end when the caller closes them (`aclose`); the server does so when its client disconnects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from kubeletx.api import Session, StreamRequest, StreamUrl
from kubeletx.api.counting import Metric
from kubeletx.kube.manifests.objects import LocalObject
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node

from .session_views import SessionRequest, SessionUsageList, SessionView
from .views import (
    AccessDecision,
    AccessFiles,
    AccessRequest,
    ApplyResult,
    ConfigValue,
    DeleteOptions,
    HealthView,
    ImageListing,
    LogOptions,
    MachineSize,
    MachineView,
    NicRequest,
    NicView,
    PanelContent,
    PanelView,
    PluginReload,
    PluginView,
    PodChange,
    PodHistory,
    PodTarget,
    Progress,
    PruneResult,
    PullUpdate,
    RuntimeDetail,
    RuntimeView,
    SnapshotView,
    StandbyView,
    UsageHistory,
    UsageView,
    VersionView,
    VolumeView,
)


class AboutVerbs(Protocol):
    """Queries about the agent itself: version, health, metrics, plugins, panels, configuration."""

    async def version(self) -> VersionView:
        """Return the version, process id, start time and node name of this agent."""
        ...

    async def health(self) -> HealthView:
        """Return the health of each part of the agent, such as ``syncloop``. Quick: it calls no runtime."""
        ...

    async def metrics(self) -> Sequence[Metric]:
        """Return the agent's metrics. Quick: reading their values calls no runtime."""
        ...

    async def plugins(self) -> Sequence[PluginView]:
        """Return every plugin that was found at the start or by a reload, in order of name."""
        ...

    async def list_panels(self) -> Sequence[PanelView]:
        """Return every panel (a table, text or picture about the node) that plugins registered, by name."""
        ...

    async def show_panel(self, name: str) -> PanelContent:
        """Return the current content of a panel.

        Raises NotFound for an unknown name, TimedOut if the plugin is too slow, and other errors if it fails.
        """
        ...

    async def config_view(self) -> Sequence[ConfigValue]:
        """Return the effective settings with their origins, as `agent.config.view.effective_values` does."""
        ...


class PodVerbs(Protocol):
    """Operations on the pods of all sources: API server, manifest files, manifest URL, ``kubeletx apply``."""

    async def list_pods(self) -> Sequence[Pod]:
        """Return all pods of all sources, orphaned pods, and pods that wait until an older pod of their name has ended.

        They are in order of namespace and name.
        """
        ...

    def watch_pods(self) -> AsyncIterator[PodChange]:
        """Yield ADDED for each existing pod, then each change.

        A slow reader gets the newest state of each pod and misses only states in between.
        """
        ...

    async def pod_history(self, target: PodTarget) -> PodHistory:
        """Return the agent's last actions on the pod with their results, oldest first, and the pod's start.

        Raises NotFound, or Conflict if the pod waits for the end of an older pod of its name.
        """
        ...

    async def apply_pod(self, pod: Pod, *, dry_run: bool = False) -> ApplyResult:
        """Create the pod; if it exists, change its mutable fields (DECISIONS 14).

        Raises Conflict if other fields differ. `pod`: as in the manifest, without defaults, not validated.
        `dry_run`: only report what would happen.
        """
        ...

    async def replace_pod(self, pod: Pod, force: bool, *, dry_run: bool = False) -> ApplyResult:
        """Change an existing pod, as `apply_pod` does. Raises NotFound if there is no such pod.

        `force`: delete the pod and create it again, so that every field may change.
        """
        ...

    async def delete_pod(self, target: PodTarget, options: DeleteOptions) -> Pod:
        """Begin to delete the pod; returns the pod without waiting for its end.

        Without a UID in `target`, pods of the same name that wait for its end are deleted too.
        Raises Conflict, which names the source, for a pod of another source than ``kubeletx apply``, unless
        `options` has `force` and a grace period of 0. Orphaned pods can always be deleted.
        """
        ...

    async def restart(self, target: PodTarget, container: str, timeout_seconds: float) -> Sequence[str]:
        """Restart a container, or with an empty name all containers of the pod, and wait until they run again.

        Returns the names of the containers. `timeout_seconds` 0: do not wait. Raises TimedOut, Conflict if none runs or
        their restart policy is Never, Unsupported for a machine.
        """
        ...

    async def open_logs(self, target: PodTarget, options: LogOptions) -> AsyncIterator[bytes]:
        """Open a container's log; returns an iterator over its lines as bytes.

        Raises NotFound if there is no such log, InvalidConfig for unusable options.
        """
        ...

    def awake(self, target: PodTarget) -> AbstractAsyncContextManager[None]:
        """Return a context in which the pod runs, for the time of an exec, an attach or one forwarded connection.

        A frozen pod is thawed on entry, and may be frozen again after the exit. Raises NotFound. The entry raises
        Conflict if the configuration forbids the thaw, or if the pod cannot be thawed.
        """
        ...

    async def exec(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """Run a command in a container; an empty `container` means the default one.

        Returns the session, or the URL at which the runtime serves it. Raises Unsupported if the runtime cannot run
        commands, and for a terminal in a virtual machine.
        """
        ...

    async def attach(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """Join the streams of a container's main process; an empty `container` means the default one.

        Returns the session, or the URL at which the runtime serves it. Raises Unsupported if the runtime cannot attach.
        """
        ...

    async def port_forward(self, target: PodTarget, port: int) -> Session | StreamUrl:
        """Open one connection to `port` on the pod's loopback.

        Returns the session, or the URL at which the runtime serves it. Raises Conflict if the pod does not run,
        Unsupported if the runtime cannot forward ports.
        """
        ...


class StandbyVerbs(Protocol):
    """Operations that freeze, hibernate and wake pods."""

    async def set_standby(self, target: PodTarget, verb: str, timeout_seconds: float) -> StandbyView:
        """Request a state of the pod, and wait until all its containers have it.

        `verb`: standby, hibernate or activate. The request is stored, and valid until the next one. Raises TimedOut
        after `timeout_seconds`, and Conflict if a container cannot be changed; the request is kept and tried again.
        Raises Conflict if a later command replaces the request, Unsupported if the pod's runtime cannot freeze
        containers.
        """
        ...


class MachineVerbs(Protocol):
    """Operations on the virtual machine of a pod; `target` names the pod.

    Every method raises Unsupported, with the reason, if the pod runs containers or its runtime lacks the capability.
    """

    async def find_machine(self, target: PodTarget) -> MachineView:
        """Return the state of the machine, and what was requested for it."""
        ...

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        """Request a power state, and wait until the machine has it. `verb`: pause, resume, suspend, start or stop.

        The request overrides the pod's powerSpec until the opposite request or a change of powerSpec. Raises TimedOut
        after `timeout_seconds`, and Conflict if the change fails; the request is kept and tried again. Raises Conflict
        if a later command replaces the request.
        """
        ...

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        """Wait `delay_seconds`, then reboot the machine. `cancel_reboot` ends the wait; this then raises Conflict.

        Raises Conflict also if the machine does not run, and while another reboot of it is under way.
        """
        ...

    async def cancel_reboot(self, target: PodTarget) -> MachineView:
        """Cancel a delayed reboot. Raises NotFound if there is none."""
        ...

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        """Request other CPU and memory limits; the returned view shows the machine's present limits.

        A machine that does not run gets the limits when it runs again. Raises Conflict if the resize fails: limits that
        are impossible on this node are dropped, any other failure is tried again.
        """
        ...

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        """Return the snapshots of the machine, oldest first."""
        ...

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        """Create a snapshot of the machine's disks. `memory`: include the guest's memory.

        Raises Conflict for the memory of a machine that neither runs nor is paused, AlreadyExists if the machine has a
        snapshot of this name.
        """
        ...

    async def restore_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Restore the machine from a snapshot.

        Raises NotFound if there is no such snapshot; the machine is then unchanged. Raises Conflict for a snapshot with
        memory if the machine is to be off, since restoring it would start the machine.
        """
        ...

    async def delete_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Delete a snapshot. Raises NotFound if there is no such snapshot."""
        ...

    async def list_nics(self, target: PodTarget) -> Sequence[NicView]:
        """Return the network interfaces of the machine, then requested interfaces that it does not have yet."""
        ...

    async def attach_nic(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        """Request another network interface; if the machine runs, wait until the interface is attached.

        Returns all interfaces, or only the requested one if the machine does not run. Raises Conflict if attaching
        fails. After a temporary failure the request is kept and tried again; after a permanent one it is removed.
        """
        ...

    async def detach_nic(self, target: PodTarget, name: str) -> Sequence[NicView]:
        """Request the removal of a network interface; if the machine runs, wait until the interface is removed.

        Returns the remaining interfaces; none if the machine does not run. Succeeds if there is no interface of this
        name. Raises Conflict if detaching fails; it is then tried again.
        """
        ...

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        """Return the content of the machine's screen as a PNG image. Raises Conflict if the machine is off."""
        ...

    async def machine_definition(self, target: PodTarget) -> str:
        """Return the machine's definition in the format of its runtime, such as libvirt's domain XML."""
        ...


class VolumeVerbs(Protocol):
    """Queries about the volumes of all pods on this node."""

    async def list_volumes(self) -> Sequence[VolumeView]:
        """Return every volume that is prepared, being prepared or being released, in order of pod and name."""
        ...

    def watch_volumes(self) -> AsyncIterator[Sequence[VolumeView]]:
        """Yield the list of all volumes now, and the whole list again after each change."""
        ...


class NodeVerbs(Protocol):
    """Queries about the node, its events and its resource usage."""

    async def get_node(self) -> Node:
        """Return the Node object as the agent would report it to an API server now."""
        ...

    def cluster_node(self) -> Node:
        """Return the Node as the API server has it, with taints and annotations of others. Raises NotFound without one."""
        ...

    def watch_node(self) -> AsyncIterator[Node]:
        """Yield the Node object now, and again after each change of a condition."""
        ...

    async def list_events(self) -> Sequence[Event]:
        """Return the stored events of the node, its pods and its runtimes, oldest first."""
        ...

    def watch_events(self) -> AsyncIterator[Event]:
        """Yield events as they are recorded; an event that occurs again is yielded again with a higher count."""
        ...

    async def usage(self) -> UsageView:
        """Return the resource usage of the node, its runtimes and pods; at most a few seconds old.

        The node's usage is the machine's, with all processes. Waits a second if a CPU usage was read only once, since
        its rate needs two readings.
        """
        ...

    def usage_history(self, after: int) -> UsageHistory:
        """Return the usage of the last minutes, from sample number `after` on.

        It is measured only while a client asks: the first answer is empty, and a minute without a call ends it.
        """
        ...


class DrainVerbs(Protocol):
    """End of all pods of the node."""

    def drain(self, timeout_seconds: float) -> AsyncIterator[Progress]:
        """End all pods in order, as at a shutdown of the host, and yield the progress; new pods are refused from now on.

        The drain continues if the caller stops waiting; the same call again waits for it. Raises TimedOut if pods are
        left after `timeout_seconds`, Conflict if `undo` ends the drain.
        """
        ...

    async def cordon_node(self, cordoned: bool) -> Progress:
        """Refuse new pods, or accept them again; this holds after a restart of the agent too.

        Static pods are accepted. Raises Conflict in a cluster, whose scheduler must know of it.
        """
        ...

    async def undo(self) -> Progress:
        """Accept new pods again. Ended pods of the node's own sources run again after a restart of the agent."""
        ...


class RuntimeVerbs(Protocol):
    """Operations on runtimes and on the plugins that provide them."""

    async def list_runtimes(self) -> Sequence[RuntimeView]:
        """Return all runtimes in configured order.

        The default runtime of a workload type is the first one of this type that is not cordoned.
        """
        ...

    def watch_runtimes(self) -> AsyncIterator[Sequence[RuntimeView]]:
        """Yield the list of all runtimes now, and the whole list again after each change."""
        ...

    async def describe_runtime(self, name: str) -> RuntimeDetail:
        """Return the details of one runtime, without what it does not answer within seconds. Raises NotFound."""
        ...

    async def add_runtime(self, text: str, image_endpoint: str | None = None) -> RuntimeView:
        """Add a runtime, and store it for later starts of the agent.

        `text`: its endpoint, ``type:name:url``. `image_endpoint`: URL of a separate image service; None: there is
        none. Raises InvalidConfig for an invalid endpoint, AlreadyExists if the runtime exists.
        """
        ...

    def remove_runtime(
        self, name: str, *, drain: bool, force: bool, timeout_seconds: float
    ) -> AsyncIterator[Progress]:
        """Remove a runtime; yields the progress. Raises Conflict while it has pods, unless `drain` or `force`.

        `drain`: first cordon the runtime and end its pods with their grace periods; raises TimedOut if that takes
        longer than `timeout_seconds`, and the runtime stays cordoned. `force`: end its pods even if the runtime does
        not answer (DECISIONS 11).
        """
        ...

    async def cordon(self, name: str) -> RuntimeView:
        """Cordon the runtime, so that it gets no new pods; it stays cordoned after a restart of the agent."""
        ...

    async def uncordon(self, name: str) -> RuntimeView:
        """Uncordon the runtime, so that it gets new pods again."""
        ...

    async def reload_plugins(self) -> PluginReload:
        """Load the plugins of newly installed Python distributions; code that is loaded already is not replaced.

        Runtimes that could not be made are made again, the drop-in files are read again, and the next start of the
        agent isolates no runtime for a plugin that blocked the agent before.

        The result contains the plugins that failed, with the reason.
        """
        ...


class ImageVerbs(Protocol):
    """Operations on the images of all runtimes' stores."""

    async def list_images(self) -> ImageListing:
        """Return the images of all stores. An image that is in two stores is listed twice."""
        ...

    def watch_images(self) -> AsyncIterator[ImageListing]:
        """Yield the images of all stores now, and the whole list again after each change."""
        ...

    def pull_image(self, image: str, runtime: str | None) -> AsyncIterator[PullUpdate]:
        """Pull the image into the store of `runtime`; yields the progress.

        `runtime` None: the default container runtime.
        """
        ...

    async def remove_image(self, image: str, runtime: str | None) -> Sequence[str]:
        """Remove the image from the store of `runtime`; returns the ids of the stores that had it.

        `image`: a name, an id, or the beginning of an id. `runtime` None: from all stores. Raises NotFound if no store
        has it, Conflict while it is in use or pinned.
        """
        ...

    async def prune_images(self, runtime: str | None, all_unused: bool) -> PruneResult:
        """Remove unused images that this agent pulled; with `all_unused`, also images that other clients pulled.

        `runtime`: only in the store of this runtime; None: in all stores. A store that fails is skipped, and its
        runtimes are named in `missing` of the result.
        """
        ...


class SessionVerbs(Protocol):
    """Operations on application sessions, named by ids ``namespace/name``."""

    async def list_sessions(self) -> Sequence[SessionView]:
        """Return all sessions in order of their ids, with those that ended within the last ten minutes."""
        ...

    async def find_session(self, id: str) -> SessionView:
        """Return one session. Raises NotFound."""
        ...

    async def session_usage(self) -> SessionUsageList:
        """Measure the usage of open sessions now, and return it by application and by session."""
        ...

    async def open_session(self, request: SessionRequest, *, wait: bool) -> SessionView:
        """Open a session, which wakes its pod. The same request again returns the session that exists.

        `wait`: return when it is open, or has ended because that failed. Raises NotFound if the pod is not on this node,
        Conflict if the pod ends or the name is taken, InvalidConfig for an invalid request.
        """
        ...

    async def close_session(self, id: str, grace_seconds: float | None, *, wait: bool) -> SessionView:
        """Begin to close a session. `grace_seconds` None: the session's own. `wait`: return when it has ended.

        Raises NotFound.
        """
        ...


class ObjectVerbs(Protocol):
    """Operations on the config maps, secrets and claims of pods that come from no cluster.

    Objects are returned in their JSON form, without values of secrets.
    """

    async def list_objects(self, kind: str) -> Sequence[dict[str, Any]]:
        """Return the objects of a kind, such as ConfigMap, by namespace and name. Raises NotFound for another kind."""
        ...

    async def apply_object(self, item: LocalObject, *, dry_run: bool = False) -> ApplyResult:
        """Create or change the object. `dry_run`: only report what would happen, and mark a secret's changed values.

        Raises Conflict if the object comes from a manifest, or may not change so.
        """
        ...

    async def delete_object(self, kind: str, namespace: str, name: str) -> None:
        """Delete the object. Raises NotFound, and Conflict if it comes from a manifest or is a claim in use."""
        ...


class AccessVerbs(Protocol):
    """Access to the kubelet's API, for programs of this node that serve its users, such as kubeletx-web."""

    def files(self) -> AccessFiles:
        """Return the files and settings of TLS. Raises InvalidConfig if there is no usable certificate."""
        ...

    async def decide(self, asked: AccessRequest) -> AccessDecision:
        """Decide on a request to read: verb get on nodes/proxy, as for most paths of the kubelet's API."""
        ...


class AdminBackend(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the servers call in the agent: one object for each subject. The agent implements them."""

    about: AboutVerbs
    pods: PodVerbs
    objects: ObjectVerbs
    machines: MachineVerbs
    standby: StandbyVerbs
    node: NodeVerbs
    drain: DrainVerbs
    runtimes: RuntimeVerbs
    images: ImageVerbs
    volumes: VolumeVerbs
    sessions: SessionVerbs
    fornaxcore: Callable[[], msgspec.Struct]
    """Returns a `kubeletx.fornax.views.FornaxStatus`. Raises NotFound if the agent has no FornaxCores."""
    edge: Callable[[], msgspec.Struct]
    """Returns a `kubeletx.agent.edge.guardian.EdgeView`. Raises NotFound if the node has no guardian."""
    access: AccessVerbs | None = None
    """None: the agent does not serve the kubelet's API."""
